"""A line that the next one replaces, on terminals that can do that."""

import os
import pty
import sys

import pytest

from bullpen.cli.live_line import LiveLine


@pytest.mark.parametrize(("term", "shown"), [("xterm", b"\r\x1b[Khi"), ("dumb", b""), ("", b"")])
def test_drawn_where_it_can_be_replaced(
    monkeypatch: pytest.MonkeyPatch, term: str, shown: bytes
) -> None:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    monkeypatch.setenv("TERM", term)
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        LiveLine().draw("hi")
        try:
            written = os.read(ours, 100)
        except BlockingIOError:
            written = b""
    os.close(ours)
    assert written == shown
