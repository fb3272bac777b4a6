"""A day of a scheduler with many jobs, in which everything goes wrong: each process of it is killed
after its first action, the hub is killed and away for an hour, the disk is full for a while. Each
occurrence has one task, or a reason why it has none (D1)."""

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from bullpen.directors.history import HistoryRow
from bullpen.directors.loop import Loop
from bullpen.directors.scheduler.config import Entry
from bullpen.directors.scheduler.cron import occurrences
from bullpen.directors.scheduler.ledger import occurrence_id
from tests.directors import replay
from tests.directors.hub_world import BEGIN, HubWorld
from tests.hub.pen import Pen, made_pen

HOUR = 3600.0
LOOK_SECONDS = 900.0  # besides those at the time of an occurrence
HUB_AWAY = (1.25, 2.25)  # in hours
DISK_FULL = (2.6, 2.85)
POLICIES = (("skip", "none"), ("queue", "once"), ("allow", "all"))


def entries(*crons: str) -> list[Entry]:
    """Nobody takes their tasks: each is cancelled when its time is over, or at the end."""
    made = []
    for number, cron in enumerate(crons):
        overlap, catch_up = POLICIES[number % len(POLICIES)]
        fields = {"name": f"e{number}", "cron": cron, "prompt": "x", "role": "nobody"}
        policy = {"overlap": overlap, "catch_up": catch_up, "timeout": "20m"}
        made.append(Entry.model_validate({**fields, **policy}))
    return made


class DayWorld(HubWorld):
    """So many hours with these entries. `rows` of all occurrences are gathered in a file."""

    def __init__(self, pen: Pen, jobs: Sequence[Entry], hours: float) -> None:
        super().__init__(pen)
        self.entries = {one.name: one for one in jobs}
        self.end = BEGIN + hours * HOUR
        self.expected = {
            occurrence_id(one.name, due): due
            for one in jobs
            for due in takewhile(
                lambda due: due <= self.end, occurrences(one.cron, "UTC", BEGIN - 60)
            )
        }
        moments = {due + 1 for due in self.expected.values()}
        moments |= {BEGIN + LOOK_SECONDS * count for count in range(int(hours * 4))}
        happening: list[tuple[float, Callable[[Path], None]]] = [
            *((moment, self._look_at(moment)) for moment in moments),
            (BEGIN + HUB_AWAY[0] * HOUR, lambda _: self.pen.kill_hub() and None),
            (BEGIN + HUB_AWAY[1] * HOUR, lambda _: self.pen.start() and None),
            (BEGIN + DISK_FULL[0] * HOUR, lambda directory: (directory / "full").touch()),
            (BEGIN + DISK_FULL[1] * HOUR, lambda directory: (directory / "full").unlink()),
        ]
        happened = [change for _, change in sorted(happening, key=lambda one: one[0])]
        self.changes = [*happened, *[self._cancel] * 5]  # those that are left, one after the other

    def _look_at(self, moment: float) -> Callable[[Path], None]:
        def change(directory: Path) -> None:
            self._gather(directory)  # the history keeps a hundred
            self._set(directory, moment)

        return change

    def _gather(self, directory: Path) -> dict[str, HistoryRow]:
        file = directory / "rows"
        lines = file.read_text().splitlines() if file.exists() else []
        rows = {row.id: row for row in map(HistoryRow.model_validate_json, lines)}
        for row in self.loop(directory).memory.history:
            assert rows.setdefault(row.id, row) == row
        file.write_text("\n".join(row.model_dump_json() for row in rows.values()))
        return rows

    def loop(self, directory: Path) -> Loop[Any, Any, Any, Any]:
        loop = super().loop(directory)
        save = loop._file.save

        def save_if_there_is_space(checkpoint: Any) -> None:
            if (directory / "full").exists():
                raise OSError(errno.ENOSPC, "No space left on device")
            save(checkpoint)

        loop._file.save = save_if_there_is_space  # type: ignore[method-assign]
        return loop

    def is_quiet(self, loop: Loop[Any, Any, Any, Any], tried: int) -> bool:
        return tried == 0  # what is held up is tried at a later time

    def picture(self, directory: Path) -> object:
        ledger = self.loop(directory).memory
        open_ids = [*(one.id for one in ledger.pending), *ledger.given]
        return self._gather(directory), open_ids, self._tasks(directory)


def check(world: DayWorld, directory: Path, fewest_deaths: int) -> None:
    picture, deaths = replay.killed_always(world, directory)
    rows, open_ids, tasks = picture  # type: ignore[misc]
    assert deaths >= fewest_deaths
    assert open_ids == []
    assert set(rows) == set(world.expected)
    given = Counter(row.task_id for row in rows.values() if row.task_id)
    assert set(given.values()) == {1}
    assert {task["task_id"] for task in tasks} == set(given)  # none that nobody knows
    assert all(row.task_id or row.reason for row in rows.values())
    assert {row.state for row in rows.values()} == {"timeout", "skipped", "cancelled"}
    assert len(given) > len(rows) / 3


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        with (made.root / "config.yaml").open("a") as settings:
            settings.write("history_limit: 1000\n")
        made.start()
        yield made


@pytest.mark.slow
def test_d1_in_four_hours_of_kills_each_occurrence_has_a_task_or_a_reason(
    pen: Pen, tmp_path: Path
) -> None:
    jobs = entries("30 * * * *", "5 */2 * * *", "45 8,10 * * *")
    check(DayWorld(pen, jobs, 4), tmp_path / "day", 15)


@pytest.mark.storm
def test_d1_in_a_day_with_fifty_jobs_each_occurrence_has_a_task_or_a_reason(
    pen: Pen, tmp_path: Path
) -> None:
    crons = [f"{number} {number % 24} * * *" for number in range(30)]
    crons += [f"{number} */6 * * *" for number in range(0, 60, 4)]
    crons += ["0 * * * *", "20 * * * *", "40 * * * *", "50 */2 * * *", "*/30 * * * *"]
    assert len(crons) == 50
    check(DayWorld(pen, entries(*crons), 24), tmp_path / "day", 300)
