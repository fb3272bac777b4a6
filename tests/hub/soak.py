"""A hub at work for long: forty agents, others that come and go, messages, tasks, kills.

What it holds is counted when nothing is under way; `find_growth` says what has grown by more than
chance and pools explain.
"""

import contextlib
import random
import sqlite3
from dataclasses import dataclass, fields
from pathlib import Path

from tests.hub.programs import SLEEP, counter
from tests.hub.tasks.desk import Desk
from tests.listing import list_files
from tests.processes import alive, kill
from tests.waiting import wait_until

AGENTS = 40
LISTENER = ["sh", "-c", "while read -r line; do echo heard; done"]
# Kept for a day, for 30, or for ever: what of it goes, and when, has tests of its own.
KEPT = ("events", "latest", "event_index", "messages", "tree_", "usage", "sqlite_")


@dataclass(frozen=True)
class Held:
    """What a hub and its home hold."""

    descriptors: int
    threads: int
    megabytes: float
    processes: int
    files: int  # and directories of the home
    rows: int  # of the tables that need not grow


# In so many rounds what leaks in each of them has grown by far more.
MAY_GROW = Held(descriptors=30, threads=40, megabytes=40.0, processes=4, files=40, rows=20)


def find_growth(before: Held, after: Held) -> dict[str, float]:
    """What has grown by more than it may, and by how much. Pure."""
    grown = {
        field.name: getattr(after, field.name) - getattr(before, field.name)
        for field in fields(Held)
    }
    return {name: much for name, much in grown.items() if much > getattr(MAY_GROW, name)}


class Soak:
    """One home at work. The hub is never ended: a new one would hold nothing."""

    def __init__(self, desk: Desk, seed: int) -> None:
        self.desk = desk
        self.pen = desk.pen
        self.chance = random.Random(seed)
        config = self.pen.root / "config.yaml"
        config.write_text(f"{config.read_text()}history_limit: 3\n")
        self.pen.role("listener", agent_type="command", deliver="lines", command=LISTENER)
        self.names = [f"agent-{number}" for number in range(AGENTS)]
        for name in self.names:
            self.pen.run(name=name, role="listener", words=[])
        desk.agent("worker", walls=False)
        self.hub = self.pen.pid

    def work(self, rounds: int) -> None:
        for _ in range(rounds):
            self._round()

    def _round(self) -> None:
        """One that comes and goes, one that is killed and started again, messages, a task."""
        api, chance = self.pen.client(), self.chance
        task = self.desk.give("worker", "[[say done]]")
        self.pen.run(*(counter() if chance.random() < 0.5 else SLEEP), name="guest")
        for name in chance.sample(self.names, 3):
            api.post("agents", name, "messages", body={"text": "hello"}, again=True)
        victim = chance.choice(self.names)
        for name in ("guest", victim):
            kill(chance.choice([self.pen.program, self.pen.holder])(name))
        wait_until(lambda: not self.pen.agents()[victim]["running"])
        api.post("agents", victim, "restart")
        api.post("agents", "guest", "remove", grace=0)
        self.desk.done(task)

    def settled(self, most: Held | None = None) -> Held:
        """What is held when nothing is under way; waits for what is only late."""
        assert self.pen.pid == self.hub
        assert alive(self.hub)
        found = self._count()
        if most is not None:
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not find_growth(most, self._count()), 30)
            found = self._count()
        return found

    def _count(self) -> Held:
        process = Path(f"/proc/{self.hub}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        return Held(
            descriptors=len(list((process / "fd").iterdir())),
            threads=int(status["Threads"]),
            megabytes=int(status["VmRSS"].split()[0]) / 1024,
            processes=len(self.pen.processes()),
            files=sum(not path.match("*.old") for path in list_files(self.pen.root)),
            rows=self._rows(),
        )

    def _rows(self) -> int:
        path = f"file:{self.pen.root / 'state.db'}?mode=ro"
        with contextlib.closing(sqlite3.connect(path, uri=True)) as database:
            names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables = [name for (name,) in names.fetchall() if not name.startswith(KEPT)]
            counts = (database.execute(f"SELECT COUNT(*) FROM {name}") for name in tables)
            return sum(count.fetchone()[0] for count in counts)
