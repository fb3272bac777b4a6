"""A child in a sandbox that does what a prompt in its files told it: each try is made from inside,
by the only ways to the hub that there are; each is refused and logged. A person may do the same."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hub.tree.support import PROGRAM, Grove, made_grove
from tests.waiting import wait_until

pytestmark = pytest.mark.storm

# Asks the hub over a socket, and prints what it is answered; the next line is the next request.
ASKS = """
import http.client, json, socket, sys
def ask(path, method, target, body):
    link = http.client.HTTPConnection("localhost", timeout=60)
    link.sock = socket.socket(socket.AF_UNIX)
    link.sock.connect(path)
    head = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    link.request(method, target, json.dumps(body) if body is not None else None, head)
    answer = link.getresponse()
    return [answer.status, answer.read().decode()]
for line in sys.stdin:
    try:
        said = ask(*json.loads(line))
    except (OSError, TypeError, ValueError) as error:
        said = [0, type(error).__name__]
    print("ANSWER", json.dumps(said), flush=True)
"""


class Child:
    """The child. Its program asks what the test types."""

    def __init__(self, grove: Grove, name: str) -> None:
        self.grove, self.name, self.asked = grove, name, 0
        self.own = str(grove.pen.session(name) / "api" / "hub.sock")

    def ask(self, method: str, target: str, body: Any = None, socket: str = "") -> list[Any]:
        line = json.dumps([socket or self.own, method, target, body])
        typed = {"text": f"{line}\r"}
        self.grove.pen.client().post("agents", self.name, "input", body=typed)
        self.asked += 1
        wait_until(lambda: len(self._answers()) >= self.asked)
        found: list[Any] = json.loads(self._answers()[self.asked - 1])
        return found

    def _answers(self) -> list[str]:
        *lines, _ = self.grove.pen.log(self.name).decode().split("\n")  # whole ones
        return [line.partition("ANSWER ")[2] for line in lines if line.startswith("ANSWER ")]

    def call(self, tool: str, owner: str = "", **arguments: Any) -> list[Any]:
        params = {"name": tool, "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return self.ask("POST", f"/agents/{owner or self.name}/mcp", body)


@pytest.fixture
def grove() -> Iterator[Grove]:
    with made_grove() as made:
        yield made


def test_m8_what_an_injected_child_tries_is_refused_and_logged(grove: Grove) -> None:
    (grove.repo / "main.py").write_text("x\n")
    # No echo and no line limit of a terminal between what is typed and what it reads.
    program = ["sh", "-c", f"stty -echo -icanon; exec python3 -c '{ASKS}'"]
    boxed = {**PROGRAM, "command": program, "sandbox": {"enabled": True, "allow_network": False}}
    tree = {"enabled": True}
    grove.pen.role("boxed", **boxed, worktree=tree, budget={"tokens": 1000})
    wide = {"allow_network": True, "read_only_paths": ["~"], "enabled": False}
    grove.pen.role("wide", **{**PROGRAM, "sandbox": wide}, env={"TOKEN": "s"}, worktree=tree)
    grove.pen.role("lead", **PROGRAM, may_grant="boxed")
    grove.run("lead", role="lead")
    names = [
        grove.call("lead", "spawn_subtree", task="{}", branch_name=each, role="boxed")["name"]
        for each in ("amy", "bob")
    ]
    amy, bob = Child(grove, names[0]), names[1]
    amy.asked = 0
    wait_until(lambda: len(amy._answers()) >= 1)  # to its task, which is no request
    amy.asked = 1
    # Another way than its own socket does not exist in there.
    for socket in (grove.pen.home.socket("hub"), grove.pen.session(bob) / "api" / "hub.sock"):
        assert amy.ask("GET", "/status", socket=str(socket))[0] == 0
    # As its parent or a sibling; stop, write as, and read of others; land in main.
    tries: list[tuple[str, str, Any]] = [
        ("POST", "/agents/lead/mcp", {}),
        ("POST", f"/agents/{bob}/mcp", {}),
        ("DELETE", f"/agents/{bob}", None),
        ("DELETE", "/tree/lead", None),
        ("POST", f"/agents/{bob}/messages", {"text": "x", "sender": "lead"}),
        ("GET", f"/agents/{bob}/messages", None),
        ("GET", "/agents/lead/queue", None),
        ("POST", "/landings", {"names": [amy.name], "into": "main"}),
        ("POST", "/agents", {"role": "wide"}),
        ("POST", f"/agents/{bob}/input", {"text": "x"}),
    ]
    for method, target, body in tries:
        assert amy.ask(method, target, body)[0] == 403, target
    noted = {line["path"] for line in grove.pen.logged("a request was refused")}
    assert noted >= {target for _, target, body in tries if "messages" not in target}
    # By its tools: another's child, a branch that is not its own, too deep, too many, too dear.
    status, text = amy.call("merge_child", name=bob)
    assert (status, "no child of" in text) == (200, True)
    status, text = amy.call("agent_diff", name=bob)
    assert "no agent of yours" in text
    many = [{"name": f"w{number}", "task": "{}"} for number in range(9)]
    assert "max_children" in amy.call("spawn_workers", workers=many)[1]
    status, text = amy.call("spawn_subtree", task="{}", branch_name="deep", role="wide")
    below = f"{amy.name}.deep"
    assert "env TOKEN" in text  # not granted
    agent = grove.pen.agents()[below]
    assert agent["is_sandboxed"]
    assert agent["ceiling"]["network"] is False
    assert "2 deep" in _refused(grove, below)
    grove.pen.cli("stop", below)
    grove.spend(amy.name, 1000)
    assert (
        "nothing of your budget is left" in amy.call("spawn_subtree", task="{}", branch_name="d")[1]
    )
    events = [event["what"] for event in grove.pen.events(amy.name, "child.refused")]
    assert sorted(set(events)) == ["agent_diff", "merge_child", "spawn_subtree", "spawn_workers"]
    # A person may: the requests are sound, and only the credential decides.
    for method, target, body in tries[2:]:
        if target != "/agents":
            assert grove.pen.ask(method, target, body)[0] in (200, 201, 404, 409), target


def _refused(grove: Grove, name: str) -> str:
    try:
        grove.call(name, "spawn_workers", workers=[{"name": "w", "task": "x"}])
    except Exception as error:  # noqa: BLE001 - the words are what is asked for
        return str(error)
    return ""
