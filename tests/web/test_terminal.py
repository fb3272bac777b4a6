"""The terminal in the page: read-only until taken over, a slow page, a hub that is killed (V7)."""

import contextlib
import json
import time
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from bullpen.web.terminal import WINDOW_BYTES
from bullpen.web.token import VARIABLE
from tests.waiting import wait_until
from tests.web.running import RunningView

pytestmark = pytest.mark.slow

FRAME_BYTES = 1 << 18  # what may be on its way when the window is full
LINES = 400_000


class Page:
    """What a page knows of its terminal. It acknowledges what it was told to."""

    def __init__(self, line: ClientConnection) -> None:
        self.line = line
        self.screen = b""
        self.total = 0
        self.told: list[dict[str, Any]] = []

    def say(self, **fields: Any) -> None:
        self.line.send(json.dumps(fields))

    def read(self, seconds: float, *, ack: bool = True) -> bool:
        """One message; False if none came."""
        try:
            message = self.line.recv(seconds)
        except TimeoutError:
            return False
        if isinstance(message, bytes):
            self.screen += message
            self.total += len(message)
            if ack:
                with contextlib.suppress(ConnectionClosed):  # there may be more to read
                    self.say(ack=len(message))
            return True
        self.told.append(json.loads(message))
        if "resync" in self.told[-1]:
            self.screen = b""
        return True

    def wait_for(self, condition: Any, *, ack: bool = True) -> None:
        deadline = time.monotonic() + 180
        while not condition():
            assert time.monotonic() < deadline, (self.told, self.screen[-300:])
            self.read(0.2, ack=ack)

    def take(self) -> None:
        told = len(self.told)
        self.say(take=True)
        self.wait_for(lambda: {"taken": True} in self.told[told:])


@pytest.mark.storm
def test_v7_a_terminal_is_read_only_until_it_is_taken_over(served: RunningView) -> None:
    served.pen.run("/bin/cat", name="amy")
    with served.terminal("amy", cols=90, rows=30) as line:
        page = Page(line)
        page.wait_for(lambda: page.told == [{"resync": True}, {"taken": False}])
        line.send(b"too early\r")
        page.take()
        line.send(b"hello\r")
        page.wait_for(lambda: b"hello\r\nhello\r\n" in page.screen)
        assert b"too early" not in served.pen.log("amy")
        page.say(take=False)
        page.wait_for(lambda: page.told[-1] == {"taken": False})
        line.send(b"too late\r")
        page.take()
        line.send(b"again\r")
        page.wait_for(lambda: b"again\r\nagain\r\n" in page.screen)
        assert b"too late" not in served.pen.log("amy")


def test_v7_the_size_of_the_page_counts_while_it_has_taken_over(served: RunningView) -> None:
    served.pen.run("/bin/sh", name="bob")
    with served.terminal("bob") as line:
        page = Page(line)
        page.take()
        page.say(resize=[101, 33])
        line.send(b"stty size\r")
        page.wait_for(lambda: b"33 101" in page.screen)


def test_v7_a_page_that_watches_is_told_the_size_of_the_terminal(served: RunningView) -> None:
    served.pen.run("/bin/sh", name="zoe")
    with served.terminal("zoe", cols=40, rows=60) as line, served.terminal("zoe") as other:
        watching, typing = Page(line), Page(other)
        watching.wait_for(lambda: {"size": [80, 24]} in watching.told)
        watching.wait_for(lambda: b"$" in watching.screen or b"#" in watching.screen)
        typing.take()
        typing.say(resize=[101, 33])
        watching.wait_for(lambda: watching.told[-1] == {"size": [101, 33]})
        other.send(b"stty size\r")
        watching.wait_for(lambda: b"33 101" in watching.screen)
        # Its own size is nobody's news to who has taken over.
        assert all("size" not in one for one in typing.told[typing.told.index({"taken": True}) :])


def test_v7_two_pages_see_the_same_terminal(served: RunningView) -> None:
    served.pen.run("/bin/cat", name="cleo")
    with served.terminal("cleo") as first, served.terminal("cleo") as second:
        one, other = Page(first), Page(second)
        one.take()
        first.send(b"seen by both\r")
        for page in (one, other):
            page.wait_for(lambda page=page: b"seen by both\r\nseen by both" in page.screen)


@pytest.mark.storm
def test_v7_a_page_that_stands_still_stops_nobody_and_catches_up(served: RunningView) -> None:
    pen = served.pen
    script = f"read go; seq 1 {LINES}; echo the-end; exec cat"
    pen.run("/bin/sh", "-c", script, name="dora")
    with served.terminal("dora") as line, served.terminal("dora") as other:
        still, quick = Page(line), Page(other)
        quick.take()
        other.send(b"go\r")
        # The program and the other page go on to the end.
        quick.wait_for(lambda: b"the-end" in quick.screen[-2000:])
        wait_until(lambda: b"the-end" in pen.log("dora")[-2000:])
        while still.read(0.3, ack=False):
            pass
        assert still.total <= WINDOW_BYTES + FRAME_BYTES
        still.say(ack=still.total)
        still.wait_for(lambda: b"the-end" in still.screen[-2000:])
        other.send(b"and on\r")
        for page in (still, quick):
            page.wait_for(lambda page=page: b"and on\r\nand on" in page.screen)
        assert served.memory_kb() < 100 * 1024


def test_v7_the_end_of_the_program_is_said(served: RunningView) -> None:
    served.pen.run("/bin/cat", name="emil")
    with served.terminal("emil") as line:
        page = Page(line)
        page.take()
        line.send(b"\x04")
        page.wait_for(lambda: any("ended" in each for each in page.told))
        with pytest.raises(ConnectionClosed) as closed:
            line.recv(60)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4410


@pytest.mark.parametrize(
    "text", ["x", "[]", '{"resize": [0, 1]}', '{"resize": [1]}', '{"ack": -1}', '{"shell": "sh"}']
)
def test_v7_what_is_no_message_of_a_page_ends_it(served: RunningView, text: str) -> None:
    if "fred" not in served.pen.agents():
        served.pen.run("/bin/cat", name="fred")
    with served.terminal("fred") as line:
        line.send(text)
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                line.recv(60)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4400


def test_v7_a_terminal_that_is_not_there_is_refused(served: RunningView) -> None:
    with pytest.raises(InvalidStatus) as refused:
        served.terminal("nobody")
    assert refused.value.response.status_code == 404
    assert json.loads(refused.value.response.body)["error"] == "not_found"


@pytest.mark.parametrize("how", ["typed", "shown"])
@pytest.mark.storm
def test_v2_a_terminal_ends_with_its_log_in(own_view: RunningView, how: str) -> None:
    """Whoever notices it first: what the page types, or what it would be shown."""
    pen = own_view.pen
    pen.run("/bin/cat", name="amy")
    with own_view.terminal("amy") as line:
        page = Page(line)
        page.take()
        (pen.root / ".env").write_text(f"{VARIABLE}=another-token-of-24-chars\n")
        if how == "typed":
            line.send(b"too late\r")
        else:
            pen.client().post("agents", "amy", "input", body={"text": "somebody else's\r"})
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                line.recv(60)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
    assert b"too late" not in pen.log("amy")


@pytest.mark.storm
def test_v7_a_terminal_goes_on_after_the_hub_was_killed(own_view: RunningView) -> None:
    pen = own_view.pen
    pen.run("/bin/cat", name="amy")
    with own_view.terminal("amy") as line:
        page = Page(line)
        page.take()
        line.send(b"before\r")
        page.wait_for(lambda: b"before\r\nbefore" in page.screen)
        pen.kill_hub()
        page.wait_for(lambda: any("away" in each for each in page.told))
        told = len(page.told)
        pen.start()
        page.wait_for(lambda: {"taken": True} in page.told[told:])
        page.wait_for(lambda: b"before\r\nbefore" in page.screen)
        line.send(b"after\r")
        page.wait_for(lambda: b"after\r\nafter" in page.screen)
