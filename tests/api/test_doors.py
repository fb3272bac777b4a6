"""Agents' own sockets: made with the agent, gone with it, made anew by the next hub."""

import contextlib
import os
import stat
import time
from http.client import HTTPException, IncompleteRead
from pathlib import Path

import pytest

from bullpen.hub import doors
from bullpen.hub.doors import Doors
from bullpen.model.agent import Agent
from bullpen.paths import HUB, Home
from tests.api.agents import door_of, start_agent, token_of
from tests.api.http import Client, ask, connect
from tests.api.inside import Inside
from tests.hub.pen import Pen, made_pen
from tests.processes import kill
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def agents_seen(door: Path) -> int:
    return ask(door, "GET", "/agents").status


def is_refused(door: Path) -> bool:
    try:
        connect(door).close()
    except ConnectionRefusedError:
        return True
    return False


def test_b6_a_door_is_private_and_in_a_directory_of_its_own(inside: Inside) -> None:
    door = door_of(inside.home, "amy")
    assert stat.S_IMODE(door.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(door.stat().st_mode) == 0o600
    assert [path.name for path in door.parent.iterdir()] == ["hub.sock"]


def test_b6_a_door_goes_with_its_agent(fresh: Inside) -> None:
    door = door_of(fresh.home, "amy")
    with contextlib.closing(Client(door)) as client:
        assert client.begin("GET", "/status", {}).read()
        assert ask(fresh.socket, "DELETE", "/agents/amy?grace=0").status == 200
        assert not door.exists()
        # Who was inside is out: the next run of that name is another agent.
        assert client.sock.recv(1) == b""
    assert ask(fresh.socket, "POST", "/agents/amy/restart").status == 200
    assert agents_seen(door) == 200
    assert agents_seen(door_of(fresh.home, "bob")) == 200


def test_b6_a_stream_through_a_door_ends_with_its_agent(
    fresh: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "LEAVE_SECONDS", 0.05)
    with contextlib.closing(Client(door_of(fresh.home, "amy"))) as client:
        stream = client.begin("GET", "/events/stream", {})
        assert ask(fresh.socket, "DELETE", "/agents/amy?grace=0").status == 200
        with pytest.raises((IncompleteRead, ConnectionResetError)):
            while stream.read1():
                pass


def test_x5_one_agent_cannot_take_all_of_the_hubs_descriptors(
    fresh: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "MOST_CONNECTIONS", 4)
    amy, bob = door_of(fresh.home, "amy"), door_of(fresh.home, "bob")
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            client = stack.enter_context(contextlib.closing(Client(amy)))
            assert client.begin("GET", "/status", {}).read()
        more = stack.enter_context(contextlib.closing(connect(amy)))
        more.settimeout(60)
        assert more.recv(1) == b""
        assert agents_seen(bob) == 200
    wait_until(lambda: not is_full(amy))


def is_full(door: Path) -> bool:
    try:
        return agents_seen(door) != 200
    except (OSError, HTTPException):
        return True


def test_b6_a_door_of_a_start_that_failed_goes(fresh: Inside) -> None:
    body = {"name": "carl", "words": ["/no/such/program"], "cwd": "/"}
    assert ask(fresh.socket, "POST", "/agents", body=body).status == 404
    assert not fresh.home.session("carl").exists()
    fields = {"name": "amy", "words": ["/no/such/program"], "cwd": "/"}
    assert ask(fresh.socket, "DELETE", "/agents/amy?grace=0").status == 200
    assert ask(fresh.socket, "POST", "/agents", body=fields).status == 404
    assert not door_of(fresh.home, "amy").exists()


def test_b6_the_late_end_of_a_run_leaves_the_next_ones_door(fresh: Inside) -> None:
    door, found = door_of(fresh.home, "amy"), fresh.hub.supervisor.doors
    agent = fresh.hub.registry.get("amy").agent

    async def replace() -> None:
        await found.open(agent.model_copy(update={"run": "next"}))
        found.close(agent)

    fresh.call(replace())
    assert agents_seen(door) == 200


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_b6_the_next_hub_serves_at_the_same_place(pen: Pen, how: str) -> None:
    door, token = door_of(pen.home, "amy"), token_of(pen.home, "amy")
    directory = os.open(door.parent, os.O_RDONLY)  # as a sandbox has it mounted
    try:
        before = door.stat().st_ino
        if how == "killed":
            pen.kill_hub()
        else:
            assert ask(pen.home.socket(HUB), "POST", "/shutdown").status == 202
            wait_until(lambda: not pen.hub_pids())
        wait_until(lambda: is_refused(door))  # the last thread of a killed hub still has it
        pen.start()
        assert os.fstat(directory).st_ino == door.parent.stat().st_ino
        assert door.stat().st_ino != before
        through = Path(f"/proc/self/fd/{directory}/hub.sock")
        assert agents_seen(through) == 200
        assert ask(through, "GET", "/agents", token=token).status == 200
        assert ask(through, "POST", "/shutdown").status == 403
    finally:
        os.close(directory)


def test_b6_what_ended_while_no_hub_ran_has_no_door(pen: Pen) -> None:
    door, program = door_of(pen.home, "amy"), pen.program("amy")
    pen.kill_hub()
    kill(program)
    assert door.exists()
    pen.start()
    wait_until(lambda: not door.exists())


def test_b6_a_deep_home_has_doors(tmp_path: Path) -> None:
    root = tmp_path / ("deep" * 20) / ("home" * 20)
    with made_pen(root) as pen:
        pen.start()
        start_agent(pen.home.socket(HUB), pen, "amy")
        door = door_of(pen.home, "amy")
        assert len(os.fsencode(door)) > 108
        assert agents_seen(door) == 200
        assert ask(door, "GET", "/pods").status == 403
        pen.stop("amy")  # here: nothing else of the tests connects to such a path


@pytest.mark.parametrize("what", ["a file", "a link", "half-made"])
def test_b6_what_lies_in_the_way_is_replaced(fresh: Inside, tmp_path: Path, what: str) -> None:
    door = door_of(fresh.home, "amy")
    assert ask(fresh.socket, "DELETE", "/agents/amy?grace=0").status == 200
    match what:
        case "a file":
            door.write_text("mine")
        case "a link":
            (tmp_path / "target").write_text("precious")
            door.symlink_to(tmp_path / "target")
        case "half-made":
            (door.parent / ".hub.sock.new").write_text("left by a killed hub")
    assert ask(fresh.socket, "POST", "/agents/amy/restart").status == 200
    assert agents_seen(door) == 200
    assert [path.name for path in door.parent.iterdir()] == ["hub.sock"]
    if what == "a link":
        assert (tmp_path / "target").read_text() == "precious"


@pytest.mark.parametrize("what", ["a directory", "a link in place of the directory"])
def test_b6_a_door_that_cannot_be_made_fails_shut(fresh: Inside, what: str) -> None:
    door = door_of(fresh.home, "amy")
    assert ask(fresh.socket, "DELETE", "/agents/amy?grace=0").status == 200
    if what == "a directory":
        (door / "full").mkdir(parents=True)
    else:
        door.parent.rmdir()
        door.parent.symlink_to(fresh.home.sockets)  # where the owner's own socket is
    answer = ask(fresh.socket, "POST", "/agents/amy/restart")
    assert answer.status == 503
    assert str(door) in answer.json["message"]
    assert answer.json["details"]["retryable"] is True
    assert not ask(fresh.socket, "GET", "/agents/amy").json["running"]
    assert ask(fresh.socket, "GET", "/status").status == 200


def test_b7_500_doors_cost_little(fresh: Inside) -> None:
    found = Doors(Home(fresh.home.root))
    agents = []
    for number in range(500):
        agent = Agent(name=f"n{number}", run="r", cwd="/", command=("x",), created="")
        fresh.home.session(agent.name).mkdir()
        agents.append(agent)

    async def opened() -> float:
        await found.serve(fresh.server.config, fresh.server.server_state)
        before, began = _resident(), time.process_time()
        for agent in agents:
            await found.open(agent)
        took = time.process_time() - began
        assert _resident() - before < 500 * 16 << 10  # bytes
        return took

    took = fresh.call(opened())
    assert took < 500 * 0.01
    for agent in (agents[0], agents[250], agents[499]):
        assert agents_seen(door_of(fresh.home, agent.name)) == 200

    async def closed() -> None:
        for agent in agents:
            found.close(agent)

    fresh.call(closed())
    assert not door_of(fresh.home, "n250").exists()


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
