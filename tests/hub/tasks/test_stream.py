"""What a task says while it runs: complete, and gone on with where it broke off."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from bullpen.home.paths import HUB
from bullpen.hot import wire
from tests.hub.tasks.desk import Desk
from tests.processes import cpu_seconds
from tests.waiting import quiet_for, wait_until

pytestmark = pytest.mark.slow

COUNTING = """
for number in range(int(os.environ["MOST"])):
    say(f"word {number}", id=str(number))
    while number == 20 and not os.path.exists("go"):
        time.sleep(0.01)
result("all")
"""


class Follower:
    """Follows one task, and goes on where it was cut off."""

    def __init__(self, desk: Desk, task: str, after: str = "") -> None:
        self.desk, self.task, self.after = desk, task, after
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.all_ids: list[str] = []
        self.ids: list[str] = []  # of what everybody is told, whenever they ask
        self.cuts = 0
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self) -> None:
        while not any(name == "end" for name, _ in self.events) and self.cuts < 20_000:
            try:
                self._read()
            except (wire.HubError, OSError):
                self.cuts += 1
                threading.Event().wait(0.01)

    def _read(self) -> None:
        headers = {"last-event-id": self.after} if self.after else {}
        path = str(self.desk.pen.home.socket(HUB))
        rest = b""
        target = f"/task/{self.task}/events"
        with wire.stream(path, "GET", target, headers, timeout=30) as answer:
            assert answer.status == 200
            for piece in answer:
                *blocks, rest = (rest + piece).split(b"\n\n")
                for block in blocks:
                    self._take(block.decode())

    def _take(self, block: str) -> None:
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if "event" in fields:
            self.events.append((fields["event"], json.loads(fields["data"])))
        if "id" in fields:
            self.after = fields["id"]
            self.all_ids.append(fields["id"])
            if fields.get("event") != "partial":  # told only while the whole text is not there
                self.ids.append(fields["id"])

    def wait(self) -> None:
        self.thread.join(180)
        assert not self.thread.is_alive()

    def of(self, name: str) -> list[dict[str, Any]]:
        return [data for kind, data in self.events if kind == name]

    @property
    def texts(self) -> list[str]:
        return [data["text"] for data in self.of("text")]


@pytest.mark.storm
def test_t8_text_tools_and_usage_as_they_happen(any_desk: Desk) -> None:
    any_desk.agent("amy", walls=any_desk.claude.model is not None)
    script = '[[say first ; tool Bash {"command": "echo one"} ; hold one ; say last]]'
    task = any_desk.give("amy", script, keep_open=True)
    live = Follower(any_desk, task)
    any_desk.claude.wait_held("one")
    wait_until(lambda: bool(live.of("tool")))
    assert live.texts == ["first"]
    assert live.of("tool") == [{"tool": "Bash", "detail": "echo one"}]
    assert any_desk.task(task)["doing"] in ("Bash (echo one)", None)
    any_desk.claude.release("one")
    any_desk.wait(task, "idle")
    any_desk.go_on(task, "[[say another turn]]")
    any_desk.wait(task, "idle")
    any_desk.end(task)
    live.wait()
    assert live.texts == ["first", "last", "another turn"]
    assert live.of("end")[0]["output"] == "another turn"
    assert live.of("end")[0]["state"] == "completed"
    assert {"queued", "working", "idle", "completed"} >= {e["state"] for e in live.of("state")}
    assert len(live.of("begun")) == len(live.of("turn")) == 2
    if any_desk.claude.model:
        assert sum(each["input_tokens"] for each in live.of("usage")) > 0
    assert len(set(live.all_ids)) == len(live.all_ids)
    late = Follower(any_desk, task)
    late.wait()
    assert (late.texts, late.ids) == (live.texts, live.ids)
    for number, id in enumerate(live.ids):
        rest = Follower(any_desk, task, id)
        rest.wait()
        assert rest.ids == live.ids[number + 1 :]


@pytest.mark.storm
def test_t8_goes_on_over_a_kill_of_the_hub_without_gap_or_repetition(desk: Desk) -> None:
    desk.program(COUNTING)
    desk.agent("amy", walls=False)
    task = desk.give("amy", "x", env={"MOST": "40"})
    live = Follower(desk, task)
    wait_until(lambda: len(live.texts) == 21)
    for _ in range(2):
        desk.pen.kill_hub()
        desk.pen.start()
    next((desk.pen.session("amy") / "work").iterdir()).joinpath("go").touch()
    live.wait()
    assert live.cuts >= 2
    assert live.texts == [f"word {number}" for number in range(40)]
    assert len(set(live.ids)) == len(live.ids)


@pytest.mark.storm
def test_t8_many_lines_and_several_who_watch(desk: Desk) -> None:
    desk.program(COUNTING)
    desk.agent("amy", walls=False)
    task = desk.give("amy", "x", env={"MOST": "5000"})
    several = [Follower(desk, task) for _ in range(5)]
    desk.wait_begun(task)
    next((desk.pen.session("amy") / "work").iterdir()).joinpath("go").touch()
    for live in several:
        live.wait()
        assert live.texts == [f"word {number}" for number in range(5000)]


@pytest.mark.storm
def test_t8_a_hub_with_a_quiet_task_is_quiet(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    task = desk.give("amy", "[[say x ; hold one ; say y]]", keep_open=True)
    desk.claude.wait_held("one")
    watching = [Follower(desk, task) for _ in range(3)]
    wait_until(lambda: all(live.texts == ["x"] for live in watching))
    used = cpu_seconds(desk.pen.pid)
    quiet_for(3)
    assert cpu_seconds(desk.pen.pid) - used < 0.5
    desk.claude.release("one")
    desk.wait(task, "idle")
    used = cpu_seconds(desk.pen.pid)
    quiet_for(3)
    assert cpu_seconds(desk.pen.pid) - used < 0.5
    desk.end(task)
    for live in watching:
        live.wait()


def test_t8_odd_marks_and_tasks(desk: Desk) -> None:
    desk.pen.start()
    waiting = desk.offer("x", role="nobody")
    live = Follower(desk, waiting)
    wait_until(lambda: live.of("state") == [{"state": "queued"}])
    desk.cancel(waiting)
    live.wait()
    assert live.of("end")[0]["state"] == "cancelled"
    path = str(desk.pen.home.socket(HUB))
    for mark in ("x", "1", "1.2", "-1.0.0", "1.0.0.0", "9" * 30 + ".1.1"):
        headers = {"last-event-id": mark}
        answer = wire.request(path, "GET", f"/task/{waiting}/events", headers, b"", 20)
        assert answer.status == 400, mark
    far = Follower(desk, waiting, "999999.5.0")
    far.wait()
    assert far.of("end")


def test_t8_until_now_ends_with_what_was_said_so_far_and_goes_on_from_there(desk: Desk) -> None:
    desk.program(COUNTING)
    desk.agent("amy", walls=False)
    task = desk.give("amy", "x", env={"MOST": "25"})
    path = str(desk.pen.home.socket(HUB))

    def ask(after: str) -> tuple[list[str], list[str], str]:
        """Names, texts and the last id of one answer, which comes to its end."""
        headers = {"last-event-id": after} if after else {}
        target = f"/task/{task}/events?until_now=1"
        answer = wire.request(path, "GET", target, headers, b"", 20)
        assert answer.status == 200
        blocks = [
            dict(line.split(": ", 1) for line in block.splitlines())
            for block in answer.body.decode().split("\n\n")[:-1]
        ]
        texts = [json.loads(one["data"])["text"] for one in blocks if one["event"] == "text"]
        ids = [one["id"] for one in blocks if "id" in one]
        return [one["event"] for one in blocks], texts, ids[-1] if ids else after

    wait_until(lambda: len(ask("")[1]) == 21)
    names, before, mark = ask("")
    assert (names[0], "end" in names) == ("state", False)
    assert ask(mark) == (["state"], [], mark)
    next((desk.pen.session("amy") / "work").iterdir()).joinpath("go").touch()
    desk.done(task)
    names, after, _ = ask(mark)
    assert before + after == [f"word {number}" for number in range(25)]
    assert names[-1] == "end"


def test_t8_debug_has_what_was_written_raw(desk: Desk) -> None:
    desk.program("""
sys.stderr.write("a complaint\\n")
sys.stdout.write("no json\\n")
result("x")
""")
    desk.agent("amy", walls=False)
    task = desk.give("amy", "x")
    desk.done(task)
    found = desk.pen.client().get("task", task, "debug")
    (run,) = found["runs"]
    assert "no json\n" in run["stdout"]
    assert run["stderr"] == "a complaint\n"


WRITING = """
def piece(text, **fields):
    write(type="stream_event", event=fields or {
        "type": "content_block_delta", "delta": {"type": "text_delta", "text": text}})

start = {"type": "content_block_start", "content_block": {"type": "text", "text": ""}}
say("whole")
piece("", **start)
piece("begun ")
piece("", **start)  # again, after a failure of the API
piece("half a ")
piece("sente")
while not os.path.exists("go"):
    time.sleep(0.01)
say("half a sentence")
result("half a sentence")
"""


def test_t3_what_was_being_written_is_kept_on_cancel(desk: Desk) -> None:
    desk.program(WRITING)
    desk.agent("amy", walls=False)
    task = desk.give("amy", "x")
    live = Follower(desk, task)
    wait_until(lambda: [each["text"] for each in live.of("partial")][-1:] == ["sente"])
    # A stream reads for itself, and may be ahead.
    wait_until(lambda: desk.task(task)["output"] == "whole\n\nhalf a sente")
    desk.cancel(task)
    cancelled = desk.over(task)
    assert (cancelled["state"], cancelled["output"]) == ("cancelled", "whole\n\nhalf a sente")
    done = desk.give("amy", "x")
    wait_until(lambda: "sente" in (desk.task(done)["output"] or ""))
    (Path(desk.task(done)["directory"]) / "go").touch()
    assert desk.done(done)["output"] == "half a sentence"
    # Who comes later gets whole texts only.
    after = Follower(desk, done)
    after.wait()
    assert (after.of("partial"), after.texts) == ([], ["whole", "half a sentence"])


def test_t7_what_was_being_written_is_kept_when_its_time_is_over(desk: Desk) -> None:
    desk.program(WRITING)
    desk.agent("amy", walls=False)
    for seconds in (1, 4, 16, 64):  # until it comes so far, on a busy machine
        late = desk.over(desk.give("amy", "x", timeout_seconds=seconds), 300)
        assert late["error"]["type"] == "timeout"
        if "sente" in (late["output"] or ""):
            break
    assert late["output"] == "whole\n\nhalf a sente"


def test_t8_the_real_program_tells_what_it_writes(real: Desk) -> None:
    real.agent("amy")
    task = real.give("amy", "[[slow 300 ; say one two three four five]]")
    live = Follower(real, task)
    wait_until(lambda: "".join(each["text"] for each in live.of("partial")).startswith("one"), 60)
    real.cancel(task)
    over = real.over(task)
    assert over["state"] == "cancelled" and over["output"].startswith("one")
