"""What asks for a permission ends with its engine, and only while it waits."""

import signal
import socket
from pathlib import Path

import pytest

from bullpen.hot import hook, permission
from tests.standin import SeenRequest, StandIn, answer


def test_q2_nothing_ends_it_once_it_has_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alarm while the interpreter is taken down would kill it: the engine would see a failure
    beside the decision."""
    waiting = []

    def decide(connection: socket.socket, _: SeenRequest) -> None:
        waiting.append(signal.getitimer(signal.ITIMER_REAL))
        connection.sendall(answer(b"allowed"))

    path = tmp_path / "hub.sock"
    hub, before = StandIn(path), signal.getsignal(signal.SIGALRM)
    hub.script = decide
    monkeypatch.setattr(hook, "read_input", lambda: b"{}")
    try:
        assert permission.ask([bytes(path)], "amy", {}) == b"allowed"
        assert waiting != [(0.0, 0.0)]
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        signal.signal(signal.SIGALRM, before)
        hub.close()
