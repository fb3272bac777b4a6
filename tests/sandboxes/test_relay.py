"""The way out of a sandbox without network."""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.sandboxes.base import Network, Policy
from tests.sandboxes.place import PYTHON, Place

pytestmark = pytest.mark.slow

HUB, PROXY, NEAR = 4001, 4002, 4003


def policy(place: Place, **more: Any) -> Policy:
    return place.policy(
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
def door(place: Place, name: str, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """What the hub does behind a socket."""
    path = place.session / "api" / name
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        os.chown(path, place.uid, place.uid)
        listener.listen(50)

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


def test_x2_the_hub_is_reached_by_its_usual_port(place: Place) -> None:
    with door(place, "hub.sock", echo):
        done = place.run(client(HUB, "hello"), policy(place))
    assert done.stdout == b"HELLO\n", done.stderr


def test_x2_much_data_passes_in_both_directions(place: Place) -> None:
    with door(place, "hub.sock", echo):
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
        done = place.run([PYTHON, "-c", script], policy(place))
    assert done.stdout == b"%d\n" % (200 * 65536), done.stderr


def test_x2_the_proxy_takes_connect_and_a_near_port_leads_to_itself(place: Place) -> None:
    with door(place, "tunnel.sock", tunnel):
        connect = "CONNECT far.example:443 HTTP/1.1\r\n\r\nhi"
        done = place.run(client(PROXY, connect), policy(place))
        assert done.stdout.endswith(b"far.example:443 HI\n"), done
        done = place.run(client(NEAR, "hi"), policy(place))
        assert done.stdout == b"127.0.0.1:%d HI\n" % NEAR, done
        done = place.run(client(PROXY, "CONNECT evil.example:443 HTTP/1.1\r\n\r\n"), policy(place))
        assert b"403" in done.stdout


def test_x2_variables_lead_to_the_proxy(place: Place) -> None:
    said = place.shell("env", policy(place))
    for name in ("HTTP_PROXY", "https_proxy"):
        assert f"{name}=http://127.0.0.1:{PROXY}\n" in said
    assert "NO_PROXY=127.0.0.1,localhost\n" in said


def test_x2_a_hub_that_comes_back_is_found_again(place: Place) -> None:
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
    with door(place, "hub.sock", echo):
        child = place.start(place.wrap([PYTHON, "-c", script], policy(place)))
        assert child.stdin and child.stdout
        assert child.stdout.readline() == b"b'ONE'\n"
    (place.session / "api" / "hub.sock").unlink()
    child.stdin.write(b"\n")
    child.stdin.flush()
    assert child.stdout.readline() == b"asking\n"
    with door(place, "hub.sock", echo):
        assert child.stdout.readline() == b"b'TWO'\n"
        child.communicate(timeout=60)
    assert child.returncode == 0


def test_x2_signals_exit_code_and_children_are_the_programs_own(place: Place) -> None:
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
    wrapped = place.wrap([PYTHON, "-c", script], policy(place), env={"LANG": "C"})
    child = place.start(wrapped)
    assert child.stdout is not None
    # The interpreter of this script coerces the locale by itself; the relay's must not have.
    assert child.stdout.readline().startswith(b"ready")
    os.killpg(child.pid, signal.SIGTERM)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 9, (out, err)
    shell = place.run(
        ["sh", "-c", "echo [$LC_CTYPE]; grep SigIgn /proc/self/status; exit 6"],
        policy(place),
        env={"LANG": "C"},
    )
    assert shell.returncode == 6
    assert shell.stdout.startswith(b"[]\n")
    # Whoever runs the tests may ignore some: those are passed on, and no others.
    own = Path("/proc/self/status").read_text().split("SigIgn:")[1].split()[0]
    assert int(shell.stdout.split()[-1], 16) & ~int(own, 16) == 0


def test_x2_keys_of_the_terminal_do_not_end_the_relay(place: Place) -> None:
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
    with door(place, "hub.sock", echo):
        wrapped = place.wrap([PYTHON, "-c", script], policy(place, is_terminal=True))
        child, master = place.start_in_terminal(wrapped)
        os.read(master, 100)
        os.write(master, b"\x03")
        assert child.wait(timeout=60) == 0
        os.close(master)
    assert (place.cwd / "heard").read_bytes() == b"AFTER"


def test_x3_a_port_that_cannot_be_had_ends_the_start(place: Place) -> None:
    done = place.run(["touch", "started"], place.policy(network=Network(70000, PROXY)))
    assert done.returncode != 0
    assert not (place.cwd / "started").exists()
