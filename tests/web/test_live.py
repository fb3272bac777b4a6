"""Events for the page, across hubs that are killed (V4)."""

import contextlib
import json
import re
import sqlite3
import threading
from dataclasses import dataclass, field

import pytest

from bullpen.web.token import VARIABLE
from tests.hub.pen import Pen
from tests.waiting import wait_until
from tests.web.running import RunningView

pytestmark = pytest.mark.slow


@dataclass
class Follower:
    """A page that follows, in a thread."""

    view: RunningView
    target: str = "/api/events/stream?after=0"
    last_id: str = ""
    ids: list[int] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    ends_at: int = 0  # blocks; 0: never

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self) -> None:
        headers = {"Last-Event-ID": self.last_id}
        with self.view.opened("GET", self.target, headers=headers) as answer:
            assert answer.status == 200, answer.read()
            block: list[str] = []
            while line := answer.readline():
                text = line.decode().rstrip("\n")
                if text:
                    block.append(text)
                    continue
                self._take(dict(each.partition(": ")[::2] for each in block))
                block = []
                if self.ends_at and len(self.ids) >= self.ends_at:
                    return

    def _take(self, fields: dict[str, str]) -> None:
        if fields.get("event") == "hub":
            self.told.append(json.loads(fields["data"])["state"])
        elif "data" in fields:
            self.names.append(fields["event"])
            self.ids.append(int(fields["id"]))


def write(pen: Pen, number: int) -> None:
    """Something that happens."""
    pen.client().post("agents", "root", "messages", body={"text": f"number {number}"}, again=True)


def ids_in(pen: Pen) -> list[int]:
    """Straight from the database."""
    path = pen.root / "state.db"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return [row[0] for row in database.execute("SELECT id FROM events ORDER BY id")]


@pytest.mark.storm
def test_v4_a_page_misses_nothing_and_sees_nothing_twice_when_hubs_are_killed(
    own_view: RunningView,
) -> None:
    pen = own_view.pen
    page = Follower(own_view)
    stop = threading.Event()

    def go_on_writing() -> None:
        number = 0
        while not stop.is_set():
            write(pen, number)
            number += 1

    for round_number in (1, 2, 3):
        stop.clear()
        writing = threading.Thread(target=go_on_writing, daemon=True)
        seen = len(page.ids)
        writing.start()
        wait_until(lambda seen=seen: len(page.ids) > seen + 5)  # in the middle of the stream
        stop.set()
        pen.kill_hub()
        wait_until(lambda number=round_number: page.told.count("away") == number)
        writing.join(60)
        pen.start()
        write(pen, -1)
        wait_until(lambda number=round_number: page.told.count("back") == number)
    last = ids_in(pen)[-1]
    wait_until(lambda: bool(page.ids) and page.ids[-1] >= last)
    assert page.ids == ids_in(pen)[: len(page.ids)]
    assert page.told == ["away", "back"] * 3


@pytest.mark.storm
def test_v4_a_page_goes_on_where_it_was(own_view: RunningView) -> None:
    pen = own_view.pen
    for number in range(5):
        write(pen, number)
    known = ids_in(pen)
    page = Follower(own_view, "/api/events/stream", last_id=str(known[2]), ends_at=len(known) - 3)
    page.thread.join(60)
    assert page.ids == known[3:]


def test_v2_a_stream_ends_with_its_log_in(own_view: RunningView) -> None:
    pen = own_view.pen
    page = Follower(own_view)
    wait_until(lambda: bool(page.ids))
    (pen.root / ".env").write_text(f"{VARIABLE}=another-token-of-24-chars\n")
    known = ids_in(pen)[-1]
    write(pen, 1)
    page.thread.join(60)
    assert not page.thread.is_alive()
    assert page.ids[-1] <= known


@pytest.mark.storm
def test_v4_a_stream_that_cannot_begin_is_refused(own_view: RunningView) -> None:
    for target, headers in (
        ("/api/events/stream?after=x", {}),
        ("/api/events/stream", {"Last-Event-ID": "1; drop"}),
    ):
        answer = own_view.ask("GET", target, headers=headers)
        assert answer.status == 400
    assert own_view.ask("GET", "/api/task/t-000000000000/events").status == 404
    own_view.pen.kill_hub()
    answer = own_view.ask("GET", "/api/events/stream")
    assert answer.status == 503
    assert answer.json["error"] == "unavailable"
    assert re.search("hub", answer.json["message"])
    assert own_view.pen.hub_pids() == set(), "a view starts no hub"
