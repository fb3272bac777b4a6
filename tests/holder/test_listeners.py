"""The hub's listeners in the factory and its holders: kept, given out, and never answered."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bullpen import holder as held
from bullpen.component.ports import listen
from bullpen.holder.frames import HEADER
from bullpen.holder.listeners import MOST, TURN_AWAY
from bullpen.hub.holders.inherit import ANSWER_SECONDS, find_listeners
from bullpen.hub.kept_ports import KeptPorts
from tests.holder.client import SECONDS
from tests.holder.factory import MARK, Factory
from tests.ports import reserved_port
from tests.processes import alive
from tests.waiting import wait_until

SLEEP = ["/bin/sleep", "1000000"]
NEVER = 1e6
BEGIN = "from bullpen.holder.factory import main"


class Hub:
    """The hub's end of the line to a factory, and the ports that it has opened."""

    def __init__(self, factory: Factory, wait: float, look: float) -> None:
        self.factory = factory
        self.kept = KeptPorts()
        self.ports = contextlib.ExitStack()
        self.line, theirs = socket.socketpair()
        change = f"from bullpen.holder import listeners; listeners.WAIT_SECONDS = {wait}"
        words = [
            word.replace(BEGIN, f"{change}; listeners.LOOK_SECONDS = {look}; {BEGIN}")
            for word in held.command(str(factory.socket), theirs.fileno())
        ]
        self.kept.hand_to(self.line)
        with theirs:
            factory.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={"PATH": os.environ["PATH"], MARK: str(factory.root)},
            )
        wait_until(factory.answers)

    def open(self) -> int:
        """A new port of the hub; its number."""
        port = self.ports.enter_context(reserved_port())
        self.kept.listen(port).close()
        return port

    def die(self) -> None:
        """The kernel closes what a process had."""
        self.line.close()
        for listener in self.kept._listeners.values():
            listener.close()
        self.kept = KeptPorts()


Start = Callable[..., Hub]


@pytest.fixture
def start(bare_factory: Factory) -> Iterator[Start]:
    made: list[Hub] = []

    def begin(wait: float = NEVER, look: float = NEVER) -> Hub:
        made.append(Hub(bare_factory, wait, look))
        return made[-1]

    yield begin
    for hub in made:
        hub.die()
        hub.ports.close()


def found_at(path: Path) -> set[int]:
    """The ports of the listeners that a new hub would get."""
    listeners = find_listeners(path)
    for listener in listeners.values():
        listener.close()
    return set(listeners)


def agent(factory: Factory, name: str = "amy") -> Path:
    """An agent of a home: its socket lies beside the factory's."""
    path = factory.root / f"agent.{name}.sock"
    factory.hold(SLEEP, socket=str(path))
    return path


def waits(port: int) -> bool:
    """Whether a connection is neither answered nor closed so far."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as talk:
        talk.setblocking(False)
        try:
            talk.recv(1)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            pass
    return False


def closed(port: int) -> bool:
    """Whether somebody takes a connection, and closes it."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as talk:
        with contextlib.suppress(ConnectionResetError):
            return talk.recv(1) == b""
        return True


def test_b11_the_next_hub_gets_the_listeners_from_the_factory(start: Start) -> None:
    hub = start()
    ports = {hub.open(), hub.open()}
    hub.die()
    assert found_at(hub.factory.socket) == ports
    assert all(map(waits, ports))


@pytest.mark.slow
def test_b11_the_next_hub_gets_the_listeners_from_a_factory_that_is_slow_to_answer(
    start: Start,
) -> None:
    hub = start()
    port = hub.open()
    hub.die()
    os.kill(hub.factory.pid, signal.SIGSTOP)
    threading.Timer(ANSWER_SECONDS + 0.5, os.kill, (hub.factory.pid, signal.SIGCONT)).start()
    assert found_at(hub.factory.socket) == {port}


def test_b11_more_listeners_than_one_message_holds_are_all_kept(start: Start) -> None:
    """By the factory that was told of each, by the next one, which is told of all, and by a
    holder."""
    hub = start()
    for _ in range(MOST + 10):
        listener = listen(0)
        hub.kept.add({listener.getsockname()[1]: listener})
    ports = set(hub.kept._listeners)
    hub.kept.hand_to(hub.line.dup())
    agent(hub.factory)
    hub.die()
    assert found_at(hub.factory.socket) == ports
    hub.factory.end()
    assert found_at(hub.factory.socket) == ports


def test_b11_the_next_hub_gets_the_listeners_from_holders_if_the_factory_is_gone(
    start: Start,
) -> None:
    hub = start()
    one = hub.open()
    agent(hub.factory, "amy")
    two = hub.open()
    agent(hub.factory, "bob")
    three = hub.open()  # only the factory has it
    hub.die()
    hub.factory.end()
    assert found_at(hub.factory.socket) == {one, two}
    assert waits(one) and waits(two)
    with pytest.raises(ConnectionRefusedError):
        waits(three)


def test_b11_a_port_that_the_hub_gives_up_is_free_whoever_has_its_listener(start: Start) -> None:
    hub = start()
    kept, given_up = hub.open(), hub.open()
    path = agent(hub.factory)
    hub.kept.release(given_up)
    listen(given_up).close()
    assert found_at(hub.factory.socket) == {kept}
    hub.factory.end()
    assert path.exists()
    assert found_at(hub.factory.socket) == {kept}


def test_b11_connections_wait_for_a_while_and_are_closed_then(start: Start) -> None:
    hub = start(wait=0.2)
    port = hub.open()
    agent(hub.factory)
    assert waits(port)
    hub.die()
    assert closed(port)
    assert closed(port)
    assert found_at(hub.factory.socket) == {port}


def test_b11_nobody_waits_after_the_hub_was_stopped(start: Start) -> None:
    hub = start(wait=NEVER)
    port = hub.open()
    hub.line.send(HEADER.pack(TURN_AWAY, 0))
    assert closed(port)


def test_b11_the_factory_stays_while_an_agent_lives_and_no_longer(start: Start) -> None:
    hub = start(wait=0.01, look=0.01)
    port = hub.open()
    holder = hub.factory.hold(SLEEP, socket=str(hub.factory.root / "agent.amy.sock"))
    hub.die()
    assert all(closed(port) for _ in range(20))
    assert alive(hub.factory.pid)
    holder.connect().send("X", {"grace": 0})
    wait_until(lambda: not alive(hub.factory.pid))
    holder.wait_gone()  # it has the listener until then, and its socket is gone before
    listen(port).close()


def test_b11_a_factory_of_an_older_hub_has_no_line_and_stays(factory: Factory) -> None:
    assert found_at(factory.socket) == set()
    assert factory.hold(SLEEP).connect()


# ── older ones ──


class OldServer:
    """Answers what an older factory or holder would say, on every connection."""

    def __init__(self, path: Path, answer: bytes) -> None:
        self.code = f"""
import os, socket
server = socket.socket(socket.AF_UNIX)
server.bind({str(path) + ".new"!r})
server.listen()
os.rename({str(path) + ".new"!r}, {str(path)!r})
while True:
    talk, _ = server.accept()
    talk.recv(65536)
    talk.sendall({answer!r})
    talk.close()
"""
        self.path = path

    def __enter__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-I", "-S", "-c", self.code])
        wait_until(self.path.exists)

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(SECONDS)


def test_b11_an_older_factory_and_older_holders_have_none(tmp_path: Path) -> None:
    refusal = {"ok": False, "error": "invalid", "message": "no such request: 'listeners'"}
    greeting, status = (b"H" + b"\0\0\0\x02{}"), (b"S" + b"\0\0\0\x02{}")
    with (
        OldServer(tmp_path / "factory.sock", json.dumps(refusal).encode() + b"\n"),
        OldServer(tmp_path / "agent.amy.sock", greeting + status),
    ):
        assert found_at(tmp_path / "factory.sock") == set()


def test_b11_what_is_no_listener_of_the_loopback_is_not_served(start: Start) -> None:
    hub = start()
    port = hub.open()
    with socket.socket() as other, socket.socket() as everywhere:
        other.bind(("127.0.0.1", 0))
        everywhere.bind(("0.0.0.0", 0))
        everywhere.listen()
        for odd in (other, everywhere):
            socket.send_fds(hub.line, [HEADER.pack(b"K", 0)], [odd.fileno()])
        assert found_at(hub.factory.socket) == {port}
