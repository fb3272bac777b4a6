"""A child in a sandbox that does what a prompt in its files told it: each try is made from inside,
by the only ways to the hub that there are; each is refused and logged. A person may do the same,
and each attack works against a hub whose one check is taken away."""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.hub.http.agents import token_of
from tests.hub.pen import change_hub
from tests.hub.tree.support import PROGRAM, Grove, made_grove
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

# Asks the hub over a socket, and prints what it is answered; the next line is the next request.
# Other lines, as its task and messages, are none.
ASKS = """
import http.client, json, socket, sys
def ask(path, method, target, body, more):
    link = http.client.HTTPConnection("localhost", timeout=60)
    link.sock = socket.socket(socket.AF_UNIX)
    link.sock.connect(path)
    head = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    link.request(method, target, json.dumps(body) if body is not None else None, {**head, **more})
    answer = link.getresponse()
    return [answer.status, answer.read().decode()]
print("READY", flush=True)
for line in sys.stdin:
    try:
        number, *request = json.loads(line)
    except ValueError:
        continue
    try:
        said = ask(*request)
    except OSError as error:
        said = [0, type(error).__name__]
    print(f"ANSWER {number}", json.dumps(said), flush=True)
"""


class Child:
    """A child. Its program asks what the test types."""

    def __init__(self, grove: Grove, name: str) -> None:
        self.grove, self.name, self.asked = grove, name, 0
        self.own = str(grove.pen.session(name) / "api" / "hub.sock")
        wait_until(lambda: b"READY" in grove.pen.log(name))

    def ask(
        self, method: str, target: str, body: Any = None, socket: str = "", token: str = ""
    ) -> list[Any]:
        self.asked += 1
        more = {"authorization": f"Bearer {token}"} if token else {}
        line = json.dumps([self.asked, socket or self.own, method, target, body, more])
        typed = {"text": f"{line}\r"}
        self.grove.pen.client().post("agents", self.name, "input", body=typed)
        wait_until(lambda: self.asked in self._answers())
        found: list[Any] = self._answers()[self.asked]
        return found

    def _answers(self) -> dict[int, Any]:
        *lines, _ = self.grove.pen.log(self.name).decode().split("\n")  # whole ones
        answers = [line.split(" ", 2)[1:] for line in lines if line.startswith("ANSWER ")]
        return {int(number): json.loads(answer) for number, answer in answers}

    def call(self, tool: str, owner: str = "", token: str = "", **arguments: Any) -> list[Any]:
        params = {"name": tool, "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return self.ask("POST", f"/agents/{owner or self.name}/mcp", body, token=token)


class Nest:
    """A lead and its children amy and bob, who are in sandboxes."""

    def __init__(self, grove: Grove) -> None:
        self.grove = grove
        (grove.repo / "main.py").write_text("x\n")
        # No echo and no line limit of a terminal between what is typed and what it reads.
        program = ["sh", "-c", f"stty -echo -icanon; exec python3 -c '{ASKS}'"]
        alone = {"enabled": True, "allow_network": False}
        boxed = {**PROGRAM, "command": program, "sandbox": alone}
        tree = {"enabled": True}
        grove.pen.role("boxed", **boxed, worktree=tree, budget={"tokens": 1000})
        wide = {"allow_network": True, "read_only_paths": ["~"], "enabled": False}
        grove.pen.role("wide", **{**PROGRAM, "sandbox": wide}, env={"TOKEN": "s"}, worktree=tree)
        grove.pen.role("lead", **PROGRAM, may_grant="boxed")
        grove.run("lead", role="lead")
        names = [
            grove.call("lead", "spawn_subtree", task="wait", branch_name=each, role="boxed")["name"]
            for each in ("amy", "bob")
        ]
        self.amy, self.bob = Child(grove, names[0]), str(names[1])

    def below(self) -> Child:
        """A child of amy's."""
        self.amy.call("spawn_subtree", task="wait", branch_name="deep")
        return Child(self.grove, f"{self.amy.name}.deep")

    def stolen(self, name: str) -> str:
        """However she came to it."""
        return token_of(self.grove.pen.home, name)


@contextlib.contextmanager
def made_nest(code: str = "") -> Iterator[Nest]:
    with made_grove() as grove:
        if code:
            indented = code.strip().replace("\n", "\n    ")
            change_hub(grove.pen, f"import sys\nif sys.argv[:1] != ['-c']:\n    {indented}")
        yield Nest(grove)


@pytest.mark.storm
def test_m8_what_an_injected_child_tries_is_refused_and_logged() -> None:
    with made_nest() as nest:
        try_everything(nest)


def try_everything(nest: Nest) -> None:
    grove, amy, bob = nest.grove, nest.amy, nest.bob
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
    lines = grove.pen.logged("a request was refused")
    noted = {(line["method"], line["path"]) for line in lines}
    assert noted >= {(method, target) for method, target, _ in tries}
    # By its tools: another's child, a branch that is not its own, too deep, too many, too dear.
    status, text = amy.call("merge_child", name=bob)
    assert (status, "no child of" in text) == (200, True)
    status, text = amy.call("agent_diff", name=bob)
    assert "no agent of yours" in text
    many = [{"name": f"w{number}", "task": "wait"} for number in range(9)]
    assert "max_children" in amy.call("spawn_workers", workers=many)[1]
    status, text = amy.call("spawn_subtree", task="wait", branch_name="deep", role="wide")
    below = f"{amy.name}.deep"
    assert "env TOKEN" in text  # not granted
    agent = grove.pen.agents()[below]
    assert agent["is_sandboxed"]
    assert agent["ceiling"]["network"] is False
    assert "2 deep" in _refused(grove, below)
    grove.pen.cli("stop", below)
    grove.spend(amy.name, 1000)
    assert (
        "nothing of your budget is left"
        in amy.call("spawn_subtree", task="wait", branch_name="d")[1]
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


def _new_below(nest: Nest, role: str) -> str:
    """What amy is answered when she starts one more."""
    return str(nest.amy.call("spawn_subtree", task="wait", branch_name="new", role=role)[1])


@dataclass(frozen=True)
class Attack:
    """`without` takes its check away. What is answered has these words while the check is there."""

    without: str
    do: Callable[[Nest], str]
    words: str
    worked: Callable[[Nest, str], bool]
    noted: str  # a tool or a path


IDENTITY = """
from bullpen.hub.http.guard import Guard
def identify(self, scope, headers, is_open):
    given = headers.get(b"authorization")
    return self._find(given) if given else real(self, scope, headers, is_open)
real, Guard._identify = Guard._identify, identify
"""
ROUTE = """
from bullpen.hub.http import guard
async def nothing(request): pass
guard.{}.__code__ = nothing.__code__
"""
NUMBER = """
from bullpen.model import tree
def nothing(family, running, parent, count, limits, elsewhere): pass
tree.refuse_children.__code__ = nothing.__code__
"""
BUDGET = """
from bullpen.model import rights
def all_of_it(budget, used, count): return budget
rights.share.__code__ = all_of_it.__code__
"""
CEILING = """
from bullpen.model import rights
def as_it_is(role, ceiling): return role
rights.limited.__code__ = as_it_is.__code__
"""


def act_as_parent(nest: Nest) -> str:
    report = {"status": "success", "message": "all done"}
    token = nest.stolen("lead")
    return str(nest.amy.call("notify_parent", owner="lead", token=token, **report)[1])


def write_as_sibling(nest: Nest) -> str:
    target, token = "/agents/lead/messages", nest.stolen(nest.bob)
    return str(nest.amy.ask("POST", target, {"text": "from bob"}, token=token)[1])


def spend_too_much(nest: Nest) -> str:
    nest.grove.spend(nest.amy.name, 999)
    return _new_below(nest, "boxed")


def read_inbox(nest: Nest) -> str:
    nest.grove.call("lead", "send_message", to=nest.bob, text="for bob alone")
    return str(nest.amy.ask("GET", f"/agents/{nest.bob}/messages")[1])


def read_queue(nest: Nest) -> str:
    nest.grove.call(nest.bob, "notify_parent", status="success", message="for lead alone")
    return str(nest.amy.ask("GET", "/agents/lead/queue")[1])


def start_many(child: Child, count: int) -> str:
    workers = [{"name": f"w{number}", "task": "x"} for number in range(count)]
    return str(child.call("spawn_workers", workers=workers)[1])


def messages_from(nest: Nest, sender: str) -> list[str]:
    found = nest.grove.pen.client().get("agents", "lead", "messages")["messages"]
    return [message["text"] for message in found if message["sender"] == sender]


ATTACKS = {
    "acts as its parent": Attack(
        IDENTITY,
        act_as_parent,
        "this socket is for",
        lambda nest, _: nest.grove.kinds("root") == [("lead", "child_finished")],
        "/agents/lead/mcp",
    ),
    "stops a sibling": Attack(
        ROUTE.format("owner_only"),
        lambda nest: str(nest.amy.ask("DELETE", f"/agents/{nest.bob}")[1]),
        "only the owner may do that",
        lambda nest, _: not nest.grove.pen.agents()[nest.bob]["running"],
        "/agents/main.bob",
    ),
    "writes as a sibling": Attack(
        IDENTITY,
        write_as_sibling,
        "this socket is for",
        lambda nest, _: messages_from(nest, nest.bob) == ["from bob"],
        "/agents/lead/messages",
    ),
    "reads another's inbox": Attack(
        ROUTE.format("owner_or_self"),
        read_inbox,
        "may not do that to another agent",
        lambda _, text: "for bob alone" in text,
        "/agents/main.bob/messages",
    ),
    "reads another's queue": Attack(
        ROUTE.format("owner_or_self"),
        read_queue,
        "may not do that to another agent",
        lambda _, text: "for lead alone" in text,
        "/agents/lead/queue",
    ),
    "goes too deep": Attack(
        NUMBER,
        lambda nest: start_many(nest.below(), 1),
        "2 deep",
        lambda nest, _: "main.amy.deep.w.w0" in nest.grove.names(),
        "spawn_workers",
    ),
    "starts too many": Attack(
        NUMBER,
        lambda nest: start_many(nest.amy, 9),
        "max_children",
        lambda nest, _: len(nest.grove.names()) == 3 + 9,
        "spawn_workers",
    ),
    "spends too much": Attack(
        BUDGET,
        spend_too_much,
        "nothing of your budget is left",
        lambda nest, _: "main.amy.new" in nest.grove.names(),
        "spawn_subtree",
    ),
    "gives more rights": Attack(
        CEILING,
        lambda nest: _new_below(nest, "wide"),
        "env TOKEN",
        lambda nest, _: not nest.grove.pen.agents()["main.amy.new"]["is_sandboxed"],
        "",  # it is started, with what amy may grant
    ),
}
CHEAP = "stops a sibling"


@pytest.mark.parametrize(
    "name",
    [CHEAP, *(pytest.param(each, marks=pytest.mark.storm) for each in ATTACKS if each != CHEAP)],
)
def test_m8_an_attack_of_an_injected_child_is_stopped_by_its_one_check(name: str) -> None:
    attack = ATTACKS[name]
    with made_nest() as nest:
        text = attack.do(nest)
        assert attack.words in text
        assert not attack.worked(nest, text)
        if attack.noted:
            wait_until(lambda: attack.noted in noted(nest))
    with made_nest(attack.without) as nest:
        text = attack.do(nest)
        assert attack.worked(nest, text), text


def noted(nest: Nest) -> set[str]:
    """Paths and tools of what was refused."""
    pen = nest.grove.pen
    paths = {line["path"] for line in pen.logged("a request was refused")}
    names = [name for name in nest.grove.names() if name.startswith(nest.amy.name)]
    return paths | {event["what"] for name in names for event in pen.events(name, "child.refused")}
