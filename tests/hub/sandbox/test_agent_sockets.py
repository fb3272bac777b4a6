"""Agents' own sockets: made with the agent, gone with it, made anew by the next hub."""

import contextlib
import os
import stat
import time
from http.client import HTTPException, IncompleteRead
from pathlib import Path

import pytest

from bullpen.component import connection, http_server
from bullpen.home.paths import HUB, Home
from bullpen.hub.sandbox import agent_sockets
from bullpen.hub.sandbox.agent_sockets import AgentSockets
from bullpen.model.agent import Agent
from tests.hub.http.agents import agent_socket_of, start_agent, token_of
from tests.hub.http.http import Client, ask, connect
from tests.hub.http.inside import Inside
from tests.hub.pen import Pen, made_pen
from tests.processes import kill
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def pen(pen: Pen) -> Pen:
    """With a hub in a process of its own, and the agent amy."""
    pen.start()
    start_agent(pen.home.socket(HUB), pen, "amy")
    return pen


def agents_seen(agent_socket: Path) -> int:
    return ask(agent_socket, "GET", "/agents").status


def is_refused(agent_socket: Path) -> bool:
    try:
        connect(agent_socket).close()
    except ConnectionRefusedError:
        return True
    return False


def test_b6_a_door_is_private_and_in_a_directory_of_its_own(inside: Inside) -> None:
    agent_socket = agent_socket_of(inside.home, "amy")
    assert stat.S_IMODE(agent_socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(agent_socket.stat().st_mode) == 0o600
    assert [path.name for path in agent_socket.parent.iterdir()] == ["hub.sock"]


def test_b6_a_door_goes_with_its_agent(fresh: Inside) -> None:
    agent_socket = agent_socket_of(fresh.home, "amy")
    with contextlib.closing(Client(agent_socket)) as client:
        assert client.begin("GET", "/status", {}).read()
        assert ask(fresh.socket, "DELETE", "/agents/amy?grace=0").status == 200
        assert not agent_socket.exists()
        # Who was inside is out: the next run of that name is another agent.
        assert client.sock.recv(1) == b""
    assert ask(fresh.socket, "POST", "/agents/amy/restart").status == 200
    assert agents_seen(agent_socket) == 200
    assert agents_seen(agent_socket_of(fresh.home, "bob")) == 200


def test_b6_a_stream_through_a_door_ends_with_its_agent(
    fresh: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "LEAVE_SECONDS", 0.05)
    with contextlib.closing(Client(agent_socket_of(fresh.home, "amy"))) as client:
        stream = client.begin("GET", "/events/stream", {})
        assert ask(fresh.socket, "DELETE", "/agents/amy?grace=0").status == 200
        with pytest.raises((IncompleteRead, ConnectionResetError)):
            while stream.read1():
                pass


def test_x5_one_agent_cannot_take_all_of_the_hubs_descriptors(
    fresh: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_sockets, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(connection, "HEAD_SECONDS", 600.0)  # nobody is cut off for being slow
    body = {"name": "carl", "words": ["/bin/sleep", "1000000"], "cwd": "/"}
    assert ask(fresh.socket, "POST", "/agents", body=body).status == 201
    carl, bob = agent_socket_of(fresh.home, "carl"), agent_socket_of(fresh.home, "bob")
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            client = stack.enter_context(contextlib.closing(Client(carl)))
            assert client.begin("GET", "/events/stream", {}).status == 200
        more = stack.enter_context(contextlib.closing(connect(carl)))
        more.settimeout(60)
        assert more.recv(1) == b""
        assert agents_seen(bob) == 200
    wait_until(lambda: not is_full(carl))


def is_full(agent_socket: Path) -> bool:
    try:
        return agents_seen(agent_socket) != 200
    except (OSError, HTTPException):
        return True


def test_b6_the_socket_of_a_start_that_failed_goes(fresh: Inside) -> None:
    body = {"name": "carl", "words": ["/no/such/program"], "cwd": "/"}
    assert ask(fresh.socket, "POST", "/agents", body=body).status == 404
    assert not fresh.home.session("carl").exists()
    fields = {"name": "amy", "words": ["/no/such/program"], "cwd": "/"}
    assert ask(fresh.socket, "DELETE", "/agents/amy?grace=0").status == 200
    assert ask(fresh.socket, "POST", "/agents", body=fields).status == 404
    assert not agent_socket_of(fresh.home, "amy").exists()


def test_b6_the_late_end_of_a_run_leaves_the_next_ones_socket(fresh: Inside) -> None:
    agent_socket, found = agent_socket_of(fresh.home, "amy"), fresh.hub.agent_sockets
    agent = fresh.hub.registry.get("amy").agent

    async def replace() -> None:
        await found.open(agent.model_copy(update={"run": "next"}))
        found.close(agent)

    fresh.call(replace())
    assert agents_seen(agent_socket) == 200


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_b6_the_next_hub_serves_at_the_same_place(pen: Pen, how: str) -> None:
    agent_socket, token = agent_socket_of(pen.home, "amy"), token_of(pen.home, "amy")
    directory = os.open(agent_socket.parent, os.O_RDONLY)  # as a sandbox has it mounted
    try:
        before = agent_socket.stat().st_ino
        if how == "killed":
            pen.kill_hub()
        else:
            assert ask(pen.home.socket(HUB), "POST", "/shutdown").status == 202
            wait_until(lambda: not pen.hub_pids())
        wait_until(lambda: is_refused(agent_socket))  # the last thread of a killed hub still has it
        pen.start()
        assert os.fstat(directory).st_ino == agent_socket.parent.stat().st_ino
        assert agent_socket.stat().st_ino != before
        through = Path(f"/proc/self/fd/{directory}/hub.sock")
        assert agents_seen(through) == 200
        assert ask(through, "GET", "/agents", token=token).status == 200
        assert ask(through, "POST", "/shutdown").status == 403
    finally:
        os.close(directory)


def test_b6_what_ended_while_no_hub_ran_has_no_socket(pen: Pen) -> None:
    agent_socket, program = agent_socket_of(pen.home, "amy"), pen.program("amy")
    pen.kill_hub()
    kill(program)
    assert agent_socket.exists()
    pen.start()
    wait_until(lambda: not agent_socket.exists())


def test_b6_a_deep_home_has_agent_sockets(tmp_path: Path) -> None:
    root = tmp_path / ("deep" * 20) / ("home" * 20)
    with made_pen(root) as pen:
        pen.start()
        start_agent(pen.home.socket(HUB), pen, "amy")
        agent_socket = agent_socket_of(pen.home, "amy")
        assert len(os.fsencode(agent_socket)) > 108
        assert agents_seen(agent_socket) == 200
        assert ask(agent_socket, "GET", "/pods").status == 403
        pen.stop("amy")  # here: nothing else of the tests connects to such a path


@pytest.mark.parametrize("what", ["a file", "a link", "half-made"])
def test_b6_what_lies_in_the_way_is_replaced(fresh: Inside, tmp_path: Path, what: str) -> None:
    agent_socket = agent_socket_of(fresh.home, "amy")
    assert ask(fresh.socket, "DELETE", "/agents/amy?grace=0").status == 200
    match what:
        case "a file":
            agent_socket.write_text("mine")
        case "a link":
            (tmp_path / "target").write_text("precious")
            agent_socket.symlink_to(tmp_path / "target")
        case "half-made":
            (agent_socket.parent / ".hub.sock.new").write_text("left by a killed hub")
    assert ask(fresh.socket, "POST", "/agents/amy/restart").status == 200
    assert agents_seen(agent_socket) == 200
    assert [path.name for path in agent_socket.parent.iterdir()] == ["hub.sock"]
    if what == "a link":
        assert (tmp_path / "target").read_text() == "precious"


@pytest.mark.parametrize("what", ["a directory", "a link in place of the directory"])
def test_b6_a_door_that_cannot_be_made_fails_shut(fresh: Inside, what: str) -> None:
    agent_socket = agent_socket_of(fresh.home, "amy")
    assert ask(fresh.socket, "DELETE", "/agents/amy?grace=0").status == 200
    if what == "a directory":
        (agent_socket / "full").mkdir(parents=True)
    else:
        agent_socket.parent.rmdir()
        agent_socket.parent.symlink_to(fresh.home.sockets)  # where the owner's own socket is
    answer = ask(fresh.socket, "POST", "/agents/amy/restart")
    assert answer.status == 503
    assert str(agent_socket) in answer.json["message"]
    assert answer.json["details"]["retryable"] is True
    assert not ask(fresh.socket, "GET", "/agents/amy").json["running"]
    assert ask(fresh.socket, "GET", "/status").status == 200


def test_b7_500_doors_cost_little(fresh: Inside) -> None:
    found = AgentSockets(Home(fresh.home.root))
    agents = []
    for number in range(500):
        agent = Agent(name=f"n{number}", run="r", cwd="/", command=("x",), created="")
        fresh.home.session(agent.name).mkdir()
        agents.append(agent)

    async def opened() -> float:
        await found.serve(fresh.server)
        before, began = _resident(), time.process_time()
        for agent in agents:
            await found.open(agent)
        took = time.process_time() - began
        assert _resident() - before < 500 * 16 << 10  # bytes
        return took

    took = fresh.call(opened())
    assert took < 500 * 0.01
    for agent in (agents[0], agents[250], agents[499]):
        assert agents_seen(agent_socket_of(fresh.home, agent.name)) == 200

    async def closed() -> None:
        for agent in agents:
            found.close(agent)

    fresh.call(closed())
    assert not agent_socket_of(fresh.home, "n250").exists()


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
