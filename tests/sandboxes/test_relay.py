"""The way out of a sandbox without network."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.sandboxes import relay
from bullpen.sandboxes.base import Network, Policy
from tests.sandboxes.machine import PYTHON, Machine

pytestmark = pytest.mark.slow

HUB, PROXY, NEAR = 4001, 4002, 4003


def policy(machine: Machine, **more: Any) -> Policy:
    return machine.policy(
        network=Network(HUB, PROXY, (f"127.0.0.1:{NEAR}", "far.example:443")), **more
    )


def client(port: int, words: str, then: str = "") -> list[str]:
    """Connects, says the words, closes its half, prints what comes back."""
    script = f"""
import socket
with socket.create_connection(("127.0.0.1", {port}), timeout=60) as s:
    s.sendall({words!r}.encode())
    s.shutdown(socket.SHUT_WR)
    data = b""
    while block := s.recv(65536):
        data += block
{then or "print(data.decode())"}
"""
    return [PYTHON, "-c", script]


@contextlib.contextmanager
def listening(
    machine: Machine, name: str, answer: Callable[[socket.socket], None]
) -> Iterator[None]:
    """What the hub does behind a socket."""
    path = machine.session / "api" / name
    made = path.with_suffix(".new")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(made))
        os.chown(made, machine.uid, machine.uid)
        listener.listen(50)
        made.rename(path)  # a relay that waits for it must not find it while it is still root's

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=60)


def echo(connection: socket.socket) -> None:
    while block := connection.recv(65536):
        connection.sendall(block.upper())


def tunnel(connection: socket.socket) -> None:
    """Takes CONNECT, tells where it leads, then echoes."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(1)
    target = head.split()[1]
    if target.startswith(b"127.0.0.1") or target == b"far.example:443":
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + target + b" ")
        echo(connection)
    else:
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")


def test_x2_the_hub_is_reached_by_its_usual_port(machine: Machine) -> None:
    with listening(machine, "hub.sock", echo):
        done = machine.run(client(HUB, "hello"), policy(machine))
    assert done.stdout == b"HELLO\n", done.stderr


def test_x2_much_data_passes_in_both_directions(machine: Machine) -> None:
    with listening(machine, "hub.sock", echo):
        script = f"""
import socket, threading
s = socket.create_connection(("127.0.0.1", {HUB}), timeout=60)
def send():
    for _ in range(200):
        s.sendall(b"x" * 65536)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
size = 0
while block := s.recv(65536):
    size += len(block)
print(size)
"""
        done = machine.run([PYTHON, "-c", script], policy(machine))
    assert done.stdout == b"%d\n" % (200 * 65536), done.stderr


@pytest.mark.few(1)
def test_x2_the_proxy_takes_connect_and_a_near_port_leads_to_itself(machine: Machine) -> None:
    with listening(machine, "tunnel.sock", tunnel):
        connect = "CONNECT far.example:443 HTTP/1.1\r\n\r\nhi"
        done = machine.run(client(PROXY, connect), policy(machine))
        assert done.stdout.endswith(b"far.example:443 HI\n"), done
        done = machine.run(client(NEAR, "hi"), policy(machine))
        assert done.stdout == b"127.0.0.1:%d HI\n" % NEAR, done
        done = machine.run(
            client(PROXY, "CONNECT evil.example:443 HTTP/1.1\r\n\r\n"), policy(machine)
        )
        assert b"403" in done.stdout


def test_x2_variables_lead_to_the_proxy(machine: Machine) -> None:
    said = machine.shell("env", policy(machine))
    for name in ("HTTP_PROXY", "https_proxy"):
        assert f"{name}=http://127.0.0.1:{PROXY}\n" in said
    assert "NO_PROXY=127.0.0.1,localhost\n" in said


def test_x2_a_hub_that_comes_back_is_found_again(machine: Machine) -> None:
    """One connection before, one that waits while nobody is there, one after."""
    script = f"""
import socket, sys
def ask(words):
    with socket.create_connection(("127.0.0.1", {HUB}), timeout=60) as s:
        s.sendall(words)
        s.shutdown(socket.SHUT_WR)
        return s.recv(100)
print(ask(b"one"), flush=True)
sys.stdin.readline()
print("asking", flush=True)
print(ask(b"two"), flush=True)
"""
    with listening(machine, "hub.sock", echo):
        child = machine.start(machine.wrap([PYTHON, "-c", script], policy(machine)))
        assert child.stdin and child.stdout
        assert child.stdout.readline() == b"b'ONE'\n"
    (machine.session / "api" / "hub.sock").unlink()
    child.stdin.write(b"\n")
    child.stdin.flush()
    assert child.stdout.readline() == b"asking\n"
    with listening(machine, "hub.sock", echo):
        assert child.stdout.readline() == b"b'TWO'\n"
        child.communicate(timeout=60)
    assert child.returncode == 0


def test_x2_signals_exit_code_and_children_are_the_programs_own(machine: Machine) -> None:
    script = """
import os, signal, sys
assert signal.getsignal(signal.SIGPIPE) in (signal.SIG_IGN, signal.SIG_DFL)
status = open("/proc/self/status").read()
ignored = int(status.split("SigIgn:")[1].split()[0], 16)
try:
    os.waitpid(-1, os.WNOHANG)
    print("has a child")
except ChildProcessError:
    pass
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
print("ready", os.environ.get("LC_CTYPE"), flush=True)
while True:
    signal.pause()
"""
    wrapped = machine.wrap([PYTHON, "-c", script], policy(machine), env={"LANG": "C"})
    child = machine.start(wrapped)
    assert child.stdout is not None
    # The interpreter of this script coerces the locale by itself; the relay's must not have.
    assert child.stdout.readline().startswith(b"ready")
    os.killpg(child.pid, signal.SIGTERM)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 9, (out, err)
    shell = machine.run(
        ["sh", "-c", "echo [$LC_CTYPE]; grep SigIgn /proc/self/status; exit 6"],
        policy(machine),
        env={"LANG": "C"},
    )
    assert shell.returncode == 6
    assert shell.stdout.startswith(b"[]\n")
    # Whoever runs the tests may ignore some: those are passed on, and no others.
    own = Path("/proc/self/status").read_text().split("SigIgn:")[1].split()[0]
    assert int(shell.stdout.split()[-1], 16) & ~int(own, 16) == 0


def test_x2_keys_of_the_terminal_do_not_end_the_relay(machine: Machine) -> None:
    script = f"""
import signal, socket, sys, termios, time
pressed = []
signal.signal(signal.SIGINT, lambda *_: pressed.append(1))
print("ready", flush=True)
while not pressed:
    time.sleep(0.01)
with socket.create_connection(("127.0.0.1", {HUB}), timeout=60) as s:
    s.sendall(b"after")
    s.shutdown(socket.SHUT_WR)
    open("heard", "wb").write(s.recv(100))
"""
    with listening(machine, "hub.sock", echo):
        wrapped = machine.wrap([PYTHON, "-c", script], policy(machine, is_terminal=True))
        child, master = machine.start_in_terminal(wrapped)
        os.read(master, 100)
        os.write(master, b"\x03")
        assert child.wait(timeout=60) == 0
        os.close(master)
    assert (machine.cwd / "heard").read_bytes() == b"AFTER"


def test_x3_a_port_that_cannot_be_had_ends_the_start(machine: Machine) -> None:
    done = machine.run(["touch", "started"], machine.policy(network=Network(70000, PROXY)))
    assert done.returncode != 0
    assert not (machine.cwd / "started").exists()


def test_s2_a_hub_that_stays_away_costs_a_sandboxed_agent_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "hub.sock")
    monkeypatch.setattr(relay, "WAIT_SECONDS", 0.05)

    async def is_there(retry_seconds: float) -> bool:
        monkeypatch.setattr(relay, "RETRY_SECONDS", retry_seconds)
        try:
            _, writer = await asyncio.wait_for(relay._connect(path), 60)
        except FileNotFoundError:
            return False
        writer.close()
        return True

    async def story() -> None:
        assert not await is_there(0.01)  # it is waited for, for a while
        assert not await is_there(600.0)  # and no longer: who comes now is sent away at once
        async with await asyncio.start_unix_server(lambda _reader, writer: writer.close(), path):
            assert await is_there(600.0)
        Path(path).unlink(missing_ok=True)
        assert not await is_there(0.01)  # the next time it is waited for again
        assert relay._away_since.keys() == {path}

    monkeypatch.setattr(relay, "_away_since", {})
    asyncio.run(story())
