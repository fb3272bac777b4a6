"""What a scheduler decides (D1): overlap, catch-up, time-outs, changes of the schedule and of the
clock. All of it without a process: snapshots in, ledgers out."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

import pytest

from bullpen.directors.history import HistoryRow
from bullpen.directors.scheduler import ledger as ledgers
from bullpen.directors.scheduler.config import Entry
from bullpen.directors.scheduler.cron import occurrences
from bullpen.directors.scheduler.ledger import (
    Account,
    CancelTask,
    Close,
    GiveTask,
    Ledger,
    Pending,
    SchedulerAction,
)
from bullpen.directors.scheduler.plan import Snapshot, TaskSeen, plan

NINE = datetime(2026, 5, 4, 9, tzinfo=UTC).timestamp()
HOUR = 3600.0


class Simulation:
    """A scheduler without a process: `look` is one round. Tasks are as the test says."""

    def __init__(self, *entries: Entry, zone: str = "UTC") -> None:
        self.entries = {entry.name: entry for entry in entries}
        self.zone = zone
        self.ledger = Ledger()
        self.tasks: dict[str, TaskSeen] = {}
        self.given: list[str] = []
        self.rows: dict[str, str] = {}  # occurrence -> state and reason, of all that ever was
        self.is_finishing = False  # tasks are over as soon as they are given

    def look(self, now: float, *, is_away: bool = False) -> list[SchedulerAction]:
        zones = {name: entry.timezone or self.zone for name, entry in self.entries.items()}
        tasks = None if is_away else self.tasks
        actions = list(plan(Snapshot(now, self.entries, zones, tasks), self.ledger))
        for action in actions:
            self.ledger = self._remember(action, now)
        for row in _rows_of(actions):
            assert row.id not in self.rows, "one row for each"
            self.rows[row.id] = f"{row.state}: {row.reason}".removesuffix(": ")
        # What is on disk is all that the next process has.
        self.ledger = Ledger.model_validate_json(self.ledger.model_dump_json())
        return actions

    def _remember(self, action: SchedulerAction, now: float) -> Ledger:
        match action:
            case Account():
                return ledgers.accounted(self.ledger, action)
            case GiveTask():
                task_id = f"t-{len(self.given)}"
                self.given.append(action.id)
                self.tasks[task_id] = TaskSeen("completed" if self.is_finishing else "working")
                return ledgers.given(self.ledger, action, task_id, now)
            case CancelTask():
                self.tasks[action.task_id] = TaskSeen("cancelled")
                return ledgers.cancelled(self.ledger, action)
            case Close():
                return ledgers.closed(self.ledger, action.row)

    def finish(self, state: str = "completed") -> None:
        self.tasks = {id: TaskSeen(state, agent="amy") for id in self.tasks}

    def times(self, ids: Iterable[str]) -> list[str]:
        return [id.partition("T")[2][:5] for id in ids]


def _rows_of(actions: Iterable[SchedulerAction]) -> Iterator[HistoryRow]:
    for action in actions:
        if isinstance(action, Account):
            yield from action.skipped
        elif isinstance(action, Close):
            yield action.row


def entry(name: str = "tidy", cron: str = "0 * * * *", **fields: Any) -> Entry:
    return Entry.model_validate({"name": name, "cron": cron, "prompt": "Tidy.", **fields})


def begun(*entries: Entry) -> Simulation:
    """It has seen its schedule at half past eight."""
    simulation = Simulation(*entries)
    simulation.look(NINE - HOUR / 2)
    return simulation


def test_d1_an_occurrence_runs_once_however_often_it_is_looked_at() -> None:
    simulation = begun(entry())
    assert simulation.given == []
    for second in range(5):
        simulation.look(NINE + second)
    simulation.finish()
    simulation.look(NINE + 10)
    assert simulation.given == ["tidy@2026-05-04T09:00:00Z"]
    assert simulation.rows == {"tidy@2026-05-04T09:00:00Z": "completed"}
    assert simulation.ledger.tracked["tidy"].last == simulation.ledger.history[0]
    assert simulation.ledger.history[0].agent == "amy"


@pytest.mark.parametrize(
    ("overlap", "given", "skipped"),
    [("skip", ["09:00", "11:00"], ["10:00"]), ("allow", ["09:00", "10:00", "11:00"], [])],
)
def test_d1_a_run_that_is_not_over_is_overlapped_as_the_entry_says(
    overlap: str, given: list[str], skipped: list[str]
) -> None:
    simulation = begun(entry(overlap=overlap))
    simulation.look(NINE)
    simulation.look(NINE + HOUR)
    simulation.finish()
    simulation.look(NINE + HOUR + 5)
    simulation.look(NINE + 2 * HOUR)
    assert simulation.times(simulation.given) == given
    reasons = {id: text for id, text in simulation.rows.items() if text.startswith("skipped")}
    assert simulation.times(reasons) == skipped
    assert set(reasons.values()) <= {"skipped: the run of 2026-05-04T09:00:00Z is not over"}


def test_d1_a_queued_run_follows_the_one_before_it() -> None:
    simulation = begun(entry(overlap="queue", timeout="5h"))
    simulation.look(NINE)
    simulation.look(NINE + HOUR)
    simulation.look(NINE + 2 * HOUR)
    assert simulation.times(simulation.given) == ["09:00"]
    simulation.finish()
    simulation.look(NINE + 2 * HOUR + 5)
    simulation.look(NINE + 2 * HOUR + 10)
    assert simulation.times(simulation.given) == ["09:00", "10:00"]
    simulation.finish()
    simulation.look(NINE + 2 * HOUR + 15)
    simulation.look(NINE + 2 * HOUR + 20)
    assert simulation.times(simulation.given) == ["09:00", "10:00", "11:00"]


@pytest.mark.parametrize(
    ("catch_up", "given"),
    [("none", ["13:00"]), ("once", ["12:00"]), ("all", ["09:00", "10:00", "11:00", "12:00"])],
)
def test_d1_what_was_missed_is_made_up_for_as_the_entry_says(
    catch_up: str, given: list[str]
) -> None:
    simulation = begun(entry(catch_up=catch_up, timeout="9h"))
    simulation.is_finishing = True
    for step in range(20):  # down from half past eight to a quarter to one
        simulation.look(NINE + 3.75 * HOUR + step)
    if catch_up == "none":
        simulation.look(NINE + 4 * HOUR)
    assert simulation.times(simulation.given) == given
    missed = {id: text for id, text in simulation.rows.items() if "missed" in text}
    assert len(missed) + len([id for id in simulation.given if "13:00" not in id]) == 4


def test_d1_a_little_late_is_not_missed() -> None:
    simulation = begun(entry())
    simulation.look(NINE + 299)
    assert simulation.times(simulation.given) == ["09:00"]


@pytest.mark.parametrize(("catch_up", "count"), [("none", 0), ("once", 1), ("all", 100)])
def test_d1_very_many_that_were_missed_are_skipped_together(catch_up: str, count: int) -> None:
    simulation = begun(entry(cron="* * * * *", catch_up=catch_up))
    simulation.is_finishing = True
    later = NINE + 40 * 24 * HOUR + 1
    actions = simulation.look(later)
    first = next(text for id, text in simulation.rows.items() if "T08:31" in id)
    assert "missed, with more than 1000 others" in first
    account = next(action for action in actions if isinstance(action, Account))
    late = [one for one in account.pending if later - one.due > 300]
    assert len(late) in (count, max(0, count - 5))


def test_d1_without_a_free_agent_it_waits_until_its_time_out() -> None:
    simulation = begun(entry(timeout="20m"))
    simulation.look(NINE)
    simulation.tasks = {"t-0": TaskSeen("queued")}
    simulation.look(NINE + 1200)
    assert simulation.tasks == {"t-0": TaskSeen("queued")}
    simulation.look(NINE + 1201)
    simulation.look(NINE + 1206)
    assert simulation.rows == {"tidy@2026-05-04T09:00:00Z": "timeout: no agent was free within 20m"}


def test_d1_a_run_that_met_a_rate_limit_is_no_run_without_an_agent() -> None:
    simulation = begun(entry(timeout="20m"))
    simulation.look(NINE)
    limited = TaskSeen("queued", agent="amy", was_begun=True)
    simulation.tasks = {"t-0": limited}
    simulation.look(NINE + 1800)
    assert (simulation.tasks, simulation.rows) == ({"t-0": limited}, {})
    simulation.finish()
    simulation.look(NINE + 1900)
    assert list(simulation.rows.values()) == ["completed"]


def test_d1_while_the_hub_is_away_it_goes_on_counting() -> None:
    simulation = begun(entry(timeout="30m"))
    actions = simulation.look(NINE, is_away=True)
    assert [type(action) for action in actions] == [Account, GiveTask]
    # The giving failed: it is still to be given, until its time-out.
    account = next(action for action in actions if isinstance(action, Account))
    simulation.ledger = ledgers.accounted(begun(entry(timeout="30m")).ledger, account)
    simulation.given.clear()
    simulation.look(NINE + 600)
    assert simulation.times(simulation.given) == ["09:00"]


def test_d1_an_entry_that_is_removed_is_run_no_more() -> None:
    simulation = begun(entry(), entry("other", overlap="queue"))
    waiting = Pending(id="tidy@x", name="tidy", due=NINE, noted=NINE)
    simulation.ledger = simulation.ledger.model_copy(update={"pending": (waiting,)})
    del simulation.entries["tidy"]
    simulation.look(NINE)
    assert simulation.times(simulation.given) == ["09:00"]
    assert simulation.rows["tidy@x"] == "skipped: it is in the schedule no more"
    assert set(simulation.ledger.tracked) == {"other"}


@pytest.mark.parametrize("change", [{"cron": "30 * * * *"}, {"timezone": "Asia/Kolkata"}])
def test_d1_another_time_counts_from_now_on(change: dict[str, str]) -> None:
    simulation = begun(entry())
    simulation.entries["tidy"] = entry(**{"cron": "0 * * * *", **change})
    simulation.look(NINE + HOUR / 4)  # nine o'clock passed by the old one
    simulation.look(NINE + HOUR / 2)
    assert simulation.times(simulation.given) == ["09:30"]


def test_d1_another_prompt_is_the_same_time() -> None:
    simulation = begun(entry())
    simulation.entries["tidy"] = entry(prompt="Tidy well.")
    actions = simulation.look(NINE)
    assert [action.prompt for action in actions if isinstance(action, GiveTask)] == ["Tidy well."]


def test_d1_a_clock_set_back_repeats_nothing() -> None:
    simulation = begun(entry())
    simulation.is_finishing = True
    for step in range(240):
        simulation.look(NINE + step * 60)
    for step in range(480):  # back to half past eight, and on
        simulation.look(NINE - HOUR / 2 + step * 60)
    assert simulation.times(simulation.given) == [f"{hour:02}:00" for hour in range(9, 17)]


def test_d1_a_clock_set_back_by_years_does_not_stop_it() -> None:
    simulation = begun(entry())
    simulation.is_finishing = True
    simulation.look(NINE + 1000 * 24 * HOUR)
    simulation.given.clear()
    simulation.rows.clear()  # the wrong clock's
    for step in range(90):
        simulation.look(NINE - HOUR / 2 + step * 60)
    assert simulation.times(simulation.given) == ["09:00"]


# ── a year ──

CRONS = ("30 2 * * *", "0 * * * *", "*/30 1-3 * * *", "0 9 * * MON-FRI", "15 0 1 * *")


def replay(zone: str, seed: int, begin: datetime, end: datetime) -> None:
    """Looks at odd times, restarts, hours in which nobody looks, clocks that are set: of every
    occurrence there is one row, and it ran at most once."""
    chance = random.Random(seed)
    policies = [("skip", "none"), ("queue", "all"), ("allow", "once")]
    entries = [
        entry(f"e{number}-{overlap}", cron, overlap=overlap, catch_up=catch_up, timeout="2d")
        for number, cron in enumerate(CRONS)
        for overlap, catch_up in policies
    ]
    simulation = Simulation(*entries, zone=zone)
    simulation.is_finishing = True
    now, last = begin.timestamp(), end.timestamp()
    simulation.look(now)
    furthest = now
    while furthest < last:
        kind = chance.random()
        if kind < 0.9:
            now += chance.uniform(60, 1500)
        elif kind < 0.97:
            now += chance.uniform(0, 2 * 24 * HOUR)  # nobody looked, or the clock was set forward
        else:
            now = max(now - chance.uniform(0, 20 * HOUR), furthest - 23 * HOUR)
        furthest = max(furthest, now)
        simulation.look(now)
    for _ in range(110):  # what was queued
        simulation.look(now := max(now, furthest) + 1)
    assert max(Counter(simulation.given).values()) == 1
    for each in entries:
        dues = occurrences(each.cron, zone, begin.timestamp())
        expected = {
            ledgers.occurrence_id(each.name, due)
            for due in takewhile(lambda due: due <= furthest, dues)
        }
        of_entry = {id for id in simulation.rows if ledgers.name_of(id) == each.name}
        assert of_entry == expected, each.name
        assert all(
            text == "completed" or text.startswith(("skipped: ", "timeout: the run before it"))
            for id, text in simulation.rows.items()
            if id in expected
        )


def test_d1_in_a_week_every_occurrence_has_its_place() -> None:
    begin = datetime(2026, 10, 22, tzinfo=UTC)
    replay("Europe/Berlin", 1, begin, begin.replace(day=27))


@pytest.mark.storm
@pytest.mark.parametrize(
    "zone",
    [
        *("Europe/Berlin", "America/New_York", "Australia/Lord_Howe"),
        *("Africa/Cairo", "Asia/Kolkata", "America/Santiago"),
    ],
)
def test_d1_in_a_year_every_occurrence_has_its_place(zone: str) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    replay(zone, 2, begin, begin.replace(year=2027))


def test_l1_a_run_on_any_machine_has_a_branch_of_its_own() -> None:
    fields = {"name": "t.1", "cron": "@hourly", "prompt": "x", "overlap": "allow", "fleet": True}
    simulation = Simulation(Entry.model_validate({**fields, "workdir": "/shop"}))
    simulation.look(NINE)
    given = [
        action
        for hours in (1, 2)
        for action in simulation.look(NINE + hours * HOUR)
        if isinstance(action, GiveTask)
    ]
    given += [one for one in simulation.look(NINE + 2 * HOUR + 1) if isinstance(one, GiveTask)]
    assert [one.branch for one in given] == [
        "schedule/t-1-20260504-100000",
        "schedule/t-1-20260504-110000",
    ]
    for other in ({"agent": "amy"}, {"project": "shop"}):
        with pytest.raises(ValueError, match="fleet: true goes with role or labels"):
            Entry.model_validate({**fields, **other})
