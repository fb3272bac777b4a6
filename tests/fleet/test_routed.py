"""Requests that are carried to another machine: every verb, with the caller's rights alone."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.machines import Machines, made_machines
from tests.hub.http.agents import token_of
from tests.hub.pen import Pen
from tests.hub.tasks.desk import Desk, made_desk
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with made_desk(tmp_path_factory.mktemp("desk")) as made:
        yield made


@pytest.fixture(scope="module")
def machines(desk: Desk) -> Iterator[Machines]:
    """h1, and h2 whose agents take tasks."""
    with made_machines("h1", h2=desk.pen) as made:
        yield made


@pytest.fixture
def h1(machines: Machines) -> Pen:
    return machines.hosts["h1"]


@pytest.fixture
def h2(machines: Machines) -> Pen:
    return machines.hosts["h2"]


def test_l2_verbs_work_on_an_agent_of_another_machine_as_at_home(h1: Pen, h2: Pen) -> None:
    ran = h1.cli("run", "--host", "h2", "--name", "amy", "--dir", str(h2.root), "--", "/bin/cat")
    assert ran.code == 0 and "bullpen attach h2/amy" in ran.out, ran
    assert h2.agents()["amy"]["cwd"] == str(h2.root) and "amy" not in h1.agents()
    assert "agent      amy" in h1.cli("status", "h2/amy").out
    assert h1.cli("send-keys", "h2/amy", "hello", "Enter").code == 0
    wait_until(lambda: "hello" in h1.cli("peek", "h2/amy").out)
    ran = h1.cli("send", "h2/amy", "from h1")
    assert ran.code == 0, ran
    wait_until(lambda: "from h1" in h2.cli("inbox", "amy").out)
    assert h1.cli("stop", "h2/amy").code == 0
    assert not h2.agents()["amy"]["running"]
    missing = h1.cli("status", "h2/nobody")
    assert missing.code == 4 and "no agent called nobody" in missing.err
    # A host may name itself, too.
    assert h2.cli("status", "h2/amy").code == 0


def test_l2_an_agent_starts_where_the_labels_fit(machines: Machines, h1: Pen, h2: Pen) -> None:
    machines.join("h2", "--label", "gpu=yes")
    wait_until(lambda: "gpu=yes" in h1.cli("fleet", "status").out)
    words = ("--name", "gus", "--dir", "/", "--", "/bin/cat")
    assert h1.cli("run", "--where", "gpu=yes", *words).code == 0
    assert h2.agents()["gus"]["running"]
    assert h1.cli("stop", "h2/gus").code == 0
    ran = h1.cli("run", "--where", "gpu=no", *words)
    assert ran.code == 4 and "no machine of the fleet" in ran.err


@pytest.mark.storm
def test_l2_a_task_for_another_machine_is_waited_for_and_streamed(
    machines: Machines, desk: Desk, h1: Pen
) -> None:
    desk.agent("tim", walls=False)
    ran = h1.cli("task", "h2/tim", "[[say done there]]")
    assert ran.code == 0 and ran.out == "done there\n", ran
    assert h1.cli("task", "h2/tim", "--stream", "[[say streamed]]").out == "streamed\n"
    given = h1.cli("task", "h2/tim", "--no-wait", "[[say later]]")
    id = given.out.strip()
    assert id.startswith("h2/t-"), given
    assert h1.cli("task", "wait", id).out == "later\n"
    assert "later" in h1.cli("task", "show", id).out
    assert h1.cli("task", "show", id.removeprefix("h2/")).code == 4


def test_l4_that_a_message_was_delivered_comes_back(h1: Pen, h2: Pen, desk: Desk) -> None:
    name = f"ted-{secrets.token_hex(4)}"
    desk.agent(name, walls=False)
    target = f"/agents/h2%2F{name}/messages"
    assert h1.ask("POST", target, {"text": "look at the tests"})[0] == 201

    def status() -> str:
        (message,) = h1.ask("GET", target)[1]["messages"]
        return str(message["status"])

    wait_until(lambda: status() == "sent")
    assert h1.cli("task", f"h2/{name}", "[[say done]]").code == 0
    wait_until(lambda: status() == "delivered")


def test_l2_an_answer_larger_than_a_message_of_the_server_arrives_whole(h1: Pen, h2: Pen) -> None:
    h2.run("/bin/cat", name="large")
    text = "x" * (200 << 10)
    for number in range(12):
        body = {"text": f"{number}{text}"}
        assert h1.ask("POST", "/hosts/h2/agents/large/messages", body)[0] == 201
    status, body = h1.ask("GET", "/hosts/h2/agents/large/messages?limit=50")
    assert status == 200
    assert [len(each["text"]) for each in body["messages"]] == [
        len(f"{number}{text}") for number in range(12)
    ]
    assert len(json.dumps(body)) > 2 << 20
    h2.stop("large")


def test_l2_an_agent_has_an_agents_rights_on_other_machines(h1: Pen, h2: Pen) -> None:
    h1.run("/bin/cat", name="bob")
    h2.run("/bin/cat", name="bob")
    token, there = token_of(h1.home, "bob"), token_of(h2.home, "bob")
    status, sent = h1.ask("POST", "/hosts/h2/agents/bob/messages", {"text": "hi"}, token)
    assert (status, sent["sender"]) == (201, "h1/bob")
    forbidden = [
        ("POST", "/agents/h2%2Fbob/messages", {"text": "hi", "sender": "root"}),
        ("GET", "/agents/h2%2Fbob/messages", None),  # of the agent of the same name
        ("GET", "/hosts/h2/agents/bob/messages", None),
        ("DELETE", "/agents/h2%2Fbob", None),
        ("POST", "/agents/h2%2Fbob/input", {"text": "rm -rf /\r"}),
        ("POST", "/hosts/h2/agents", h2.launch(name="eve")),
        ("POST", "/hosts/h2/shutdown", {}),
    ]
    for method, target, body in forbidden:
        assert h1.ask(method, target, body, token)[0] == 403, target
    # The same with the right that is missing: of that agent itself, and of the owner.
    assert h2.ask("GET", "/agents/bob/messages", token=there)[0] == 200
    assert h1.ask("GET", "/hosts/h2/agents/bob/messages")[0] == 200
    # And nobody is let in by a token of the other machine.
    assert h1.ask("GET", "/agents/h2%2Fbob", token=there)[0] == 401
    for pen in (h1, h2):
        pen.stop("bob")


def test_l2_nothing_is_carried_on_under_the_name_of_the_host_between(h1: Pen) -> None:
    assert h1.ask("GET", "/hosts/h2/agents")[0] == 200
    status, answer = h1.ask("GET", "/hosts/h2/hosts/h1/agents")
    assert status == 403 and "h2 carries nothing on for h1" in answer["message"]
    status, answer = h1.ask("GET", "/hosts/h2/agents/h1%2Fbob")
    assert status == 404 and "h2/h1/bob is no name of an agent" in answer["message"]


@pytest.mark.parametrize("host", ["h3", "nobody"])
def test_l2_a_host_that_is_not_there_is_said_at_once(h1: Pen, host: str) -> None:
    ran = h1.cli("status", f"{host}/amy")
    assert ran.code == 3 and "no hub of that name is connected" in ran.err


@pytest.mark.parametrize("name", ["H1/amy", "a.b/amy", "*/amy", ">/amy", "h2//amy", "../amy"])
@pytest.mark.few(2)
def test_l2_names_that_mean_more_to_the_server_are_refused(h1: Pen, name: str) -> None:
    assert h1.cli("status", name).code in (2, 4)


CREDENTIAL_AND_SERVER = """
import socket, ssl, sys
try:
    open({creds!r}).read(); print("read", "the", "key")
except OSError as error:
    print("no key:", error.strerror)
plain = socket.create_connection(("127.0.0.1", {port}))
line = ssl._create_unverified_context().wrap_socket(plain)
line.sendall(b'CONNECT {{"verbose":true}}\\r\\nPUB bullpen.h1.h2.x 1\\r\\nx\\r\\n')
said = b""
while True:
    piece = line.recv(4096)
    said += piece
    if not piece or b"-ERR" in said:
        break
print("server:", said.decode().splitlines()[-1])
"""


@pytest.mark.parametrize("walls", [True, False])
@pytest.mark.few(1)
def test_l2_an_agent_in_a_sandbox_that_speaks_nats_itself_gets_nowhere(
    machines: Machines, desk: Desk, tmp_path: Path, walls: bool
) -> None:
    name = f"sid{walls:d}"
    desk.agent(name, walls=walls, role={"permissions": {"allow": ["Bash"]}})
    code = CREDENTIAL_AND_SERVER.format(
        creds=str(desk.pen.root / "credentials" / "fleet.json"), port=machines.port
    )
    script = f"python3 - <<'E' >result 2>&1\n{code}\nE\n"
    prompt = f"[[tool Bash {json.dumps({'command': script})} ; tool Bash "
    prompt += f"{json.dumps({'command': 'cat result'})} ; say done]]"
    id = desk.give(name, prompt)
    desk.done(id)
    said = desk.run_directory(id).joinpath("output.log").read_text()
    assert "Authorization Violation" in said  # it is reached, and lets nobody in without a key
    assert ("read the key" in said) == (not walls)
