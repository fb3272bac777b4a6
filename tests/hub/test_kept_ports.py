"""The hub's ports outlive it: nobody else can listen there while an agent lives."""

import contextlib
import json
import os
import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bullpen.cli.doctor.ports import check_ports
from bullpen.component.ports import listen
from bullpen.hub.agents import tokens
from bullpen.hub.holders.inherit import find_listeners
from bullpen.hub.kept_ports import KeptPorts
from tests.hub.http.http import ask, connect, raw
from tests.hub.pen import Pen, change_hub, factory_pid, living_factory
from tests.hub.tasks.desk import made_desk
from tests.hub.tasks.office import task_agent
from tests.port_thief import ways_in
from tests.ports import reserved_port
from tests.processes import alive, kill
from tests.waiting import quiet_for, wait_until

ASK = b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
NO_HUB_SECONDS = 60.0


def port_of(pen: Pen) -> int:
    return int(json.loads((pen.root / "hub.json").read_text())["port"])


def hub(pen: Pen) -> None:
    pen.kill_hub()


def factory(pen: Pen) -> None:
    kill(living_factory(pen))


def stop(pen: Pen) -> None:
    assert pen.cli("hub", "stop").code == 0


ENDINGS = {
    "hub killed": [hub],
    "hub stopped": [stop],
    "hub killed, then its factory": [hub, factory],
    "stopped, then the factory killed": [stop, factory],
    "factory killed, then the hub": [factory, hub],
}


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("ending", ENDINGS)
def test_b11_the_port_is_nobody_elses_while_an_agent_lives(pen: Pen, ending: str) -> None:
    pen.run(name="amy")
    port = port_of(pen)
    for step in ENDINGS[ending]:
        step(pen)
        assert ways_in(port) == []
    pen.start()
    assert ways_in(port) == []
    assert port_of(pen) == port
    assert ask(port, "GET", "/status").json["type"] == "hub"
    assert pen.agents()["amy"]["running"]
    # The control: when no agent lives, nothing keeps it.
    pen.stop("amy")
    stop(pen)
    wait_until(lambda: pen.processes() == {})
    assert ways_in(port) != []


def kill_in_a_start(pen: Pen, delay_seconds: float) -> None:
    """Kill every hub that is there some time after a start has begun."""
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(pen.cli, "hub", "start")
        quiet_for(delay_seconds)
        for pid in pen.hub_pids():
            kill(pid)
        starting.result(120)


@pytest.mark.storm
@pytest.mark.parametrize("seed", range(4))
def test_b11_kills_in_any_order_leave_the_port_to_the_next_hub(pen: Pen, seed: int) -> None:
    chosen = random.Random(seed)
    pen.run(name="amy")
    port = port_of(pen)
    for _ in range(12):
        match chosen.randrange(4):
            case 0:
                for pid in pen.hub_pids():
                    kill(pid)
            case 1:
                if (pid := factory_pid(pen)) is not None:
                    kill(pid)
            case 2:
                kill_in_a_start(pen, chosen.random())
            case _:
                assert pen.cli("hub", "restart").code == 0
        assert ways_in(port) == []
    pen.start()
    assert port_of(pen) == port
    assert ask(port, "GET", "/status").status == 200
    assert pen.agents()["amy"]["running"]


@pytest.mark.slow
@pytest.mark.storm
def test_b11_the_port_of_an_agent_is_kept_and_given_up(tmp_path: Path) -> None:
    with made_desk(tmp_path) as desk:
        amy = task_agent(desk, "amy").at_port
        desk.pen.run(name="bob")
        for end_hub in (hub, stop):
            end_hub(desk.pen)
            assert ways_in(amy.port) == []
            desk.pen.start()
            assert amy.ask("GET", "/status").json["name"] == "amy"
        # Bob's holder still has the listener: a port that is given up is free all the same.
        desk.pen.client().delete("agents", "amy", grace=0)
        with pytest.raises(ConnectionRefusedError):
            connect(amy.port)
        assert ways_in(amy.port) != []
        desk.start("amy")
        assert amy.ask("GET", "/status").json["name"] == "amy"


@pytest.mark.slow
@pytest.mark.storm
def test_b11_a_port_that_was_changed_is_served_for_agents_that_know_it(pen: Pen) -> None:
    pen.run(name="amy")
    before, after = port_of(pen), pen.free_port()
    (pen.root / "config.yaml").write_text(f"port: {after}\n")
    assert pen.cli("hub", "restart").code == 0
    assert port_of(pen) == after
    assert [ask(port, "GET", "/status").status for port in (before, after)] == [200, 200]


# ── connections that come while there is no hub ──


def change_holders(pen: Pen, code: str, more: str = "") -> None:
    """Start a hub whose factories run that first; `more` is for the hub itself."""
    begin = "from bullpen.holder.factory import main"
    changed = f"exec({code!r}); {begin}"
    replace = f"import bullpen.holder as h; h._CODE = h._CODE.replace({begin!r}, {changed!r})"
    change_hub(pen, f"{replace}\n{more}")


def wait_long(pen: Pen, code: str = "") -> None:
    """Start the hub. Its factories wait for the next one, however long that takes to start."""
    wait = "from bullpen.holder import listeners; listeners.WAIT_SECONDS = 3600.0"
    change_holders(pen, wait, code)


LISTENS_LATE = """
import time
from bullpen.holder import main

class Late(main.socket):
    def listen(self, backlog):
        time.sleep(0.5)  # the file is there, and refuses
        super().listen(backlog)

main.socket = Late
"""


@pytest.mark.slow
def test_b11_the_port_is_found_with_a_holder_whose_socket_is_there_before_it_listens(
    pen: Pen,
) -> None:
    change_holders(pen, LISTENS_LATE)
    pen.run(name="amy")
    port = port_of(pen)
    pen.kill_hub()
    factory(pen)
    pen.home.socket("amy").unlink()
    pen.start()
    assert port_of(pen) == port
    assert pen.agents()["amy"]["running"]


@contextlib.contextmanager
def waiting(port: int, data: bytes = ASK) -> Iterator[socket.socket]:
    """A connection that has asked, while nobody is there to answer."""
    with connect(port, NO_HUB_SECONDS) as talk:
        talk.sendall(data)
        yield talk


def read_all(talk: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := talk.recv(1 << 16):
            found += piece
    return found


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["hub killed", "hub killed, then its factory"])
def test_b11_who_connects_after_a_kill_is_answered_by_the_next_hub(pen: Pen, ending: str) -> None:
    wait_long(pen)
    pen.run(name="amy")
    for step in ENDINGS[ending]:
        step(pen)
    with waiting(port_of(pen)) as talk:
        pen.start()
        assert read_all(talk).startswith(b"HTTP/1.1 200 ")


PATIENT = """
from bullpen.component import connection, http_server
connection.NEW_SECONDS, http_server.LEAVE_SECONDS = 20.0, 20
"""


@pytest.mark.slow
def test_b11_nobody_who_connects_during_a_restart_is_turned_away(pen: Pen) -> None:
    """Whoever has connected has a little time to ask, and more on a busy machine."""
    wait_long(pen, PATIENT)
    pen.run(name="amy")
    port, first = port_of(pen), pen.pid
    is_over = threading.Event()

    def connect_again_and_again() -> list[bytes]:
        answers = []
        while not is_over.is_set():
            answers.append(raw(port, ASK, NO_HUB_SECONDS)[:13])
        return answers

    with ThreadPoolExecutor(4) as pool:
        callers = [pool.submit(connect_again_and_again) for _ in range(4)]
        try:
            assert pen.cli("hub", "restart").code == 0
        finally:
            is_over.set()
        answers = [answer for caller in callers for answer in caller.result(NO_HUB_SECONDS)]
    assert pen.pid != first
    assert set(answers) == {b"HTTP/1.1 200 "}


@pytest.mark.slow
@pytest.mark.storm
def test_b11_a_hub_that_was_stopped_costs_a_caller_nothing(pen: Pen) -> None:
    wait_long(pen)
    pen.run(name="amy")
    port = port_of(pen)
    stop(pen)
    # Nobody answers, and nobody is kept waiting: the factory is there, and closes it.
    for _ in range(3):
        assert raw(port, ASK, NO_HUB_SECONDS) == b""
    assert pen.hub_pids() == set()
    assert pen.cli("status").code == 3
    # As soon as a hub is there, it answers.
    pen.start()
    assert raw(port, ASK).startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
def test_b11_the_request_of_a_client_that_has_hung_up_does_not_count(pen: Pen) -> None:
    wait_long(pen)
    pen.run(name="amy")
    port, token = port_of(pen), tokens.owner_token(pen.home)

    def message(text: str) -> bytes:
        body = json.dumps({"text": text}).encode()
        head = (
            f"POST /agents/amy/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
        )
        fields = f"Authorization: Bearer {token}\r\nContent-Type: application/json"
        return f"{head}\r\n{fields}\r\nConnection: close\r\n\r\n".encode() + body

    pen.kill_hub()
    with waiting(port, message("gave up")):
        pass
    with waiting(port, message("waits")) as talk:
        pen.start()
        assert re.match(rb"HTTP/1.1 20\d ", read_all(talk))
    messages = pen.client().get("agents", "amy", "messages")["messages"]
    assert [message["text"] for message in messages] == ["waits"]


# ── who has the listeners ──


def descriptors(pid: int) -> set[str]:
    links = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.add(os.readlink(descriptor))  # noqa: PTH115
    return links


@pytest.mark.slow
def test_b11_the_holder_has_the_listener_and_the_program_has_not(pen: Pen) -> None:
    pen.run(name="amy")
    listeners = find_listeners(pen.home.factory_socket)
    try:
        assert set(listeners) == {port_of(pen)}
        name = os.readlink(f"/proc/self/fd/{listeners[port_of(pen)].fileno()}")  # noqa: PTH115
    finally:
        for listener in listeners.values():
            listener.close()
    assert name in descriptors(pen.holder("amy"))
    assert name not in descriptors(pen.program("amy"))


@pytest.mark.slow
def test_b11_a_hub_replaces_a_factory_that_was_killed(pen: Pen) -> None:
    pen.start()
    first = factory_pid(pen)
    kill(first)
    wait_until(lambda: factory_pid(pen) not in (first, None))
    pen.run(name="amy")
    assert alive(pen.program("amy"))
    kill(pen.kill_hub())
    assert ways_in(port_of(pen)) == []


@pytest.mark.slow
@pytest.mark.parametrize("end_hub", [stop, hub])
def test_x6_doctor_knows_who_keeps_the_port(pen: Pen, end_hub: Callable[[Pen], None]) -> None:
    pen.run(name="amy")
    end_hub(pen)
    assert check_ports(pen.home).status == "ok", check_ports(pen.home)
    with contextlib.closing(listen(pen.free_port())) as other:  # the control: not one of ours
        (pen.root / "config.yaml").write_text(f"port: {other.getsockname()[1]}\n")
        assert check_ports(pen.home).status == "fail"


def test_b11_a_hub_that_has_left_keeps_no_port_from_the_next() -> None:
    """Though its process is still there: it may take a while to end."""
    with reserved_port() as port:
        kept = KeptPorts()
        kept.listen(port).close()  # as its server does
        with pytest.raises(OSError, match="in use"):
            KeptPorts().listen(port)
        kept.close()
        KeptPorts().listen(port).close()
