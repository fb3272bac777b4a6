"""Rate limits that tasks meet: who waits, for how long, and what happens then."""

import contextlib
import json
import re
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bullpen.hub.tasks.limits import account_of, believed_until
from bullpen.hub.usage import rate_limits
from bullpen.model.agent import Agent
from bullpen.model.state import Idle
from bullpen.model.task import Queued, QueuedTaskRequest, Run, Task, TaskRequest, TaskWorking, Wish
from bullpen.model.task_moves import MOST_LIMITS, after_run, begin
from tests.hub.parts import Parts, in_parts, until
from tests.hub.tasks.desk import Desk, write_program
from tests.waiting import wait_until

LIMITED = """
with open("count", "a") as file:
    file.write("x")
if os.path.getsize("count") <= int(os.environ.get("FAILS", 0)):
    words = os.environ["WORDS"]
    if "stderr" in words:
        print("Error: 429 rate limit reached", file=sys.stderr)
        sys.exit(1)
    result(words, is_error=True, terminal_reason="api_error", api_error_status=429)
    sys.exit(1)
result("all is well")
"""


def words_of(reset: float) -> str:
    moment = datetime.fromtimestamp(reset, UTC)
    return f"You've hit your limit · resets {moment:%I:%M}{moment:%p} (UTC)".replace(
        f"{moment:%p}", f"{moment:%p}".lower()
    )


def limited_until(desk: Desk, name: str) -> float | None:
    state = desk.pen.agents()[name]["state"]
    found: float | None = state.get("limited_until")
    return found


def move_limits(desk: Desk, until: float) -> None:
    """As if every limit had been for then: in the database, while there is no hub."""
    with contextlib.closing(sqlite3.connect(desk.pen.root / "state.db")) as database:
        select = "SELECT id, data FROM events WHERE kind = 'agent.parked'"
        for number, data in database.execute(select).fetchall():
            changed = json.dumps({**json.loads(data), "until": until})
            database.execute("UPDATE events SET data = ? WHERE id = ?", (changed, number))
        database.commit()


@pytest.mark.slow
@pytest.mark.storm
def test_o3_a_task_at_a_limit_waits_in_its_place_and_so_do_all_of_the_account(desk: Desk) -> None:
    desk.program(LIMITED)
    for name in ("amy", "bob"):
        desk.agent(name, walls=False)
    desk.agent("carol", walls=False, role={"env": {"ANTHROPIC_API_KEY": "another"}})
    reset = time.time() + 7200
    first = desk.give("amy", "one", env={"FAILS": "1", "WORDS": words_of(reset)})
    wait_until(lambda: limited_until(desk, "bob") is not None)
    found = desk.wait(first, "queued")
    assert reset - 60 <= found["limited_until"] <= reset + 60
    assert [run["fault"] for run in found["runs"]] == ["rate_limit"]
    second = desk.offer("two", role="bob")
    assert limited_until(desk, "amy") == limited_until(desk, "bob") == found["limited_until"]
    assert limited_until(desk, "carol") is None
    assert desk.done(desk.give("carol", "three"))["output"] == "all is well"
    events = {event["first"] for event in desk.pen.events("", "agent.parked")}
    assert events == {"", "amy"}
    log = [entry["message"] for entry in desk.status("amy")["log"]]
    assert log[-1] == "a task met a rate limit"
    clock = datetime.fromtimestamp(found["limited_until"]).strftime("%H:%M")
    day = r"(\d{4}-\d\d-\d\d )?"  # if it is not today
    assert re.search(rf"queued \(rate limit until {day}{clock}", desk.cli("tasks").out)
    assert f"rate-limited until {clock}" in desk.cli("list").out
    status, refused = desk.ask("POST", "/agents/bob/task", {"prompt": "now"})
    assert (status, refused["error"], refused["details"]["retryable"]) == (
        429,
        "rate_limited",
        True,
    )
    assert 7000 <= refused["details"]["retry_after"] <= 7300
    # The next hub waits on, and gives nothing to anybody who waits.
    desk.pen.kill_hub()
    desk.pen.start()
    for name in ("amy", "bob"):
        desk.wait_ready(name)
    assert limited_until(desk, "amy") == limited_until(desk, "bob") == found["limited_until"]
    assert {desk.task(id)["state"] for id in (first, second)} == {"queued"}
    desk.pen.kill_hub()
    move_limits(desk, time.time() + 1)
    desk.pen.start()
    ended = desk.done(first)
    assert ended["output"] == "all is well" and desk.done(second)["agent"] == "bob"
    assert [run["fault"] for run in ended["runs"]] == ["rate_limit", ""]
    assert desk.moves(first) == ["queued", "working", "queued", "working", "completed"]
    wait_until(lambda: limited_until(desk, "amy") is None)


@pytest.mark.slow
def test_o3_a_parked_task_can_be_cancelled_and_a_new_start_is_a_new_try(desk: Desk) -> None:
    desk.program(LIMITED)
    desk.agent("amy", walls=False)
    env = {"FAILS": "1", "WORDS": "stderr"}
    # Whoever waits for the answer is told at once.
    body = {"prompt": "one", "env": env}
    status, limited = desk.ask("POST", "/agents/amy/task?wait_seconds=55", body)
    assert (status, limited["error"]) == (429, "rate_limited")
    assert 1 <= limited["details"]["retry_after"] <= 60
    task = limited["task_id"]
    assert desk.wait(task, "queued")["runs"][0]["why"].startswith("Error: 429 rate limit")
    gone = desk.wait(desk.offer("two", env=env), "queued")["task_id"]
    assert desk.cancel(gone)["state"] == "cancelled"
    desk.pen.stop("amy")
    assert desk.task(task)["state"] == "queued"
    desk.start("amy")
    assert desk.done(task)["output"] == "all is well"


@pytest.mark.slow
def test_o3_a_limit_parks_all_of_an_account_and_its_task_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "JITTER_SECONDS", 0.0)
    engine = tmp_path / "engine"
    write_program(engine, LIMITED)
    reset = time.time() + 7200

    async def story(parts: Parts) -> None:
        logins = {"amy": "one", "bob": "one", "carol": "another"}
        agents = {
            name: await parts.claude_agent(name, engine, env={"ANTHROPIC_API_KEY": login})
            for name, login in logins.items()
        }

        async def offered(agent: str) -> Task:
            return await parts.tasks.offer(QueuedTaskRequest(prompt="x", agent=agent))

        limits = {"FAILS": "1", "WORDS": words_of(reset)}
        first = await parts.tasks.submit("amy", TaskRequest(prompt="x", env=limits))
        await until(lambda: agents["bob"].view.state != Idle())
        waiting = Idle(limited_until=agents["bob"].view.state.limited_until)
        assert reset - 60 <= waiting.limited_until <= reset + 60
        assert agents["amy"].view.state == waiting
        board = parts.tasks.board
        await until(lambda: parts.tasks.open_tasks("amy")[0].state == "queued")
        status = (await board.get(first.id)).status
        assert status == Queued(limits=1, due=waiting.limited_until)
        later = await offered("amy")
        others = await offered("bob"), await offered("carol")
        assert (await board.wait(others[1].id, lambda _task: False)).state == "completed"
        states = [(await board.get(each.id)).state for each in (first, later, others[0])]
        assert states == ["queued"] * 3
        # The wait is over: what met the limit comes before what was offered since.
        for live in (agents["amy"], agents["bob"]):
            parts.hub.rate_limits._free(live, waiting.limited_until)
        ended = [await board.wait(id, lambda _task: False) for id in (later.id, first.id)]
        assert [task.state for task in ended] == ["completed"] * 2
        runs = [task.runs[-1] for task in ended]
        assert runs[1].began < runs[0].began

    in_parts(story, factory=True)


# ── rules ──


def working(limits: int = 0) -> Task:
    status = TaskWorking(run=1, turn_started=1.0, limits=limits)
    return Task(id="t-0", session_id="s", wish=Wish(prompt="x"), created=0.0, status=status)


def ended(number: int = 1, **fields: Any) -> Run:
    return Run(number=number, began=1.0, ended=2.0, fault="rate_limit", why="429", **fields)


def met(task: Task, until: float | None = 60.0) -> Task:
    run = ended(task.status.run if isinstance(task.status, TaskWorking) else 0)
    return after_run(task, run, "", stays_open=False, retries=3, chance=0.0, limited_until=until)


def test_o3_a_run_that_met_a_limit_leads_back_to_the_queue_a_number_of_times() -> None:
    task = working()
    for count in range(1, MOST_LIMITS + 1):
        task = met(task)
        assert task.status == Queued(limits=count, due=60.0)
        task = begin(task, 60.0)
        assert task.status == TaskWorking(run=count + 1, turn_started=60.0, limits=count)
    assert met(task).state == "failed"
    assert met(working(), None).state == "failed"


@pytest.mark.parametrize(
    ("env", "other", "is_same"),
    [
        ({}, {}, True),
        ({"ANTHROPIC_API_KEY": "a"}, {"ANTHROPIC_API_KEY": "a"}, True),
        ({"ANTHROPIC_API_KEY": "a"}, {"ANTHROPIC_API_KEY": "b"}, False),
        ({"ANTHROPIC_API_KEY": "a"}, {}, False),
        ({"CLAUDE_CODE_OAUTH_TOKEN": "a"}, {"ANTHROPIC_API_KEY": "a"}, False),
        ({"CLAUDE_CONFIG_DIR": "/a"}, {"CLAUDE_CONFIG_DIR": "/b"}, False),
        ({"ANTHROPIC_API_KEY": "a", "CLAUDE_CONFIG_DIR": "/a"}, {"ANTHROPIC_API_KEY": "a"}, True),
    ],
)
def test_o3_an_account_is_what_the_engine_logs_in_with(
    env: dict[str, str], other: dict[str, str], is_same: bool
) -> None:
    def agent(name: str, engine: str = "claude") -> Agent:
        return Agent(name=name, engine=engine, kind="headless", run="1", cwd="/", created="")

    amy, bob = account_of(agent("amy"), env), account_of(agent("bob"), other)
    assert (amy == bob) is is_same
    assert "a" not in amy.replace("claude ", "").strip("0123456789abcdef")
    assert account_of(agent("amy", "command"), {}) != account_of(agent("bob", "command"), {})


@pytest.mark.parametrize(
    ("until", "now", "last", "believed"),
    [
        (1_000_100.0, 1_000_000.0, 0.0, 1_000_100.0),
        (9_000_000.0, 1_000_000.0, 0.0, 1_001_800.0),  # made up, perhaps
        (9_000_000.0, 1_000_000.0, 999_000.0, None),  # and said again
        (9_000_000.0, 1_000_000.0, 996_000.0, 1_001_800.0),
    ],
)
def test_o3_the_word_of_an_agent_in_a_terminal_keeps_others_waiting_for_a_while_only(
    until: float, now: float, last: float, believed: float | None
) -> None:
    assert believed_until(until, now, last) == believed
