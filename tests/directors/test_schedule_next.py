"""`bullpen schedule next`: when entries come next, in the order of time (D1)."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.commands import Ran
from tests.hub.pen import Pen, made_pen
from tests.listing import read_files

pytestmark = pytest.mark.slow

DAY = 86_400


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as made:  # the file is enough: no scheduler runs, and no hub
        yield made


def next_runs(pen: Pen, crons: dict[str, str], *words: str) -> Ran:
    fields = {"prompt": "x", "timezone": "UTC"}
    entries = [{"name": name, "cron": cron, **fields} for name, cron in crons.items()]
    file = pen.home.directors / "nightly.yaml"
    file.write_text(json.dumps({"type": "scheduler", "schedule": entries}))
    ran = pen.cli("schedule", "next", *words)
    assert ran.code == 0, ran
    return ran


def rows(ran: Ran) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = ran.json["runs"]
    return shown


def test_d1_all_runs_within_days_come_in_the_order_of_time(pen: Pen) -> None:
    half_a_year_off = f"0 0 1 {(datetime.now(UTC).month + 5) % 12 + 1} *"
    crons = {"hour": "@hourly", "half": "*/30 * * * *", "far": half_a_year_off}
    began = datetime.now(UTC).timestamp()
    ran = next_runs(pen, crons, "--days", "2", "--json")
    shown = rows(ran)
    times = [datetime.fromisoformat(run["at"]).timestamp() for run in shown]
    assert times == sorted(times)
    assert began < times[0]
    assert times[-1] <= datetime.now(UTC).timestamp() + 2 * DAY
    assert Counter(run["name"] for run in shown) == {"hour": 48, "half": 96}
    assert {frozenset(run) for run in shown} == {frozenset(("name", "at", "timezone"))}
    assert ran.err == ""
    only = rows(next_runs(pen, crons, "hour", "--days", "2", "--json"))
    assert [run["name"] for run in only] == ["hour"] * 48
    assert next_runs(pen, crons, "far", "--days", "2").out == "none within 2 days\n"
    # As it was without days.
    assert len(rows(next_runs(pen, crons, "--json"))) == 5
    assert len(next_runs(pen, crons, "-n", "7").out.splitlines()) == 7


def test_d1_runs_within_days_are_bounded_and_a_note_says_so(pen: Pen) -> None:
    crons = {f"every{number}": "* * * * *" for number in range(100)}
    ran = next_runs(pen, crons, "--days", "366", "--json")  # 52 million of them
    shown = rows(ran)
    assert len(shown) == 1000
    assert set(Counter(run["name"] for run in shown).values()) == {10}
    last = datetime.fromisoformat(shown[-1]["at"]).timestamp()
    when = datetime.fromtimestamp(last, UTC).strftime("%a %Y-%m-%d %H:%M UTC")
    assert ran.err == (
        f"note: there are more: the first 1,000, up to {when}"
        " · fewer --days, or the NAME of an entry\n"
    )
    few = next_runs(pen, {"one": "* * * * *"}, "--days", "1", "-n", "3")
    assert len(few.out.splitlines()) == 3
    assert few.err.startswith("note: there are more: the first 3, ")
    whole = next_runs(pen, {"one": "*/2 * * * *"}, "--days", "1")
    assert (len(whole.out.splitlines()), whole.err) == (720, "")


def test_d1_a_dry_run_of_a_scheduler_says_what_it_would_do_and_writes_nothing(pen: Pen) -> None:
    next_runs(pen, {"tidy": "@daily"})
    before = read_files(pen.root)
    ran = pen.cli("director", "start", "nightly", "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    assert "accounts for what has become due" in ran.out
    assert ran.out.endswith("nothing was done\n")
    assert read_files(pen.root) == before
