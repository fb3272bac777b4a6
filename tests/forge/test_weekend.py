"""A director that nobody looks after for half a day: D2. What goes wrong around it (forge away, hub
killed, disk full, token expired) costs time, and leaves the world as if nothing had."""

import asyncio
import contextlib
import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.directors.forge.remember import Given
from bullpen.directors.loop import Loop, checkpoint_type
from bullpen.directors.memory import MemoryFile
from bullpen.errors import BullpenError, Kind
from tests.forge.office import LGTM, Answer, Office, ScriptedTasks
from tests.forge.server import Forge, served_github
from tests.forge.world import World

MINUTES_PER_LOOK = 3
HOURS = 12


class Disk(MemoryFile[Any, Any]):
    """A memory on a disk that can be full."""

    is_full = False

    def save(self, checkpoint: Any) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().save(checkpoint)


class AwayTasks(ScriptedTasks):
    """A hub that can be gone."""

    is_away = False

    async def give(self, *args: Any, **options: Any) -> Given:
        if self.is_away:
            raise BullpenError("the hub does not answer", kind=Kind.UNAVAILABLE)
        return await super().give(*args, **options)


class Weekend:
    """The hours of one director. `at` names what happens when."""

    def __init__(self, root: Path, forge: Forge) -> None:
        self.forge = forge
        self.office = Office(root, forge, settings={"status_issue": False})
        self.tasks = AwayTasks(self.office.tasks.directory)
        self.office.tasks = self.tasks
        rules = self.office.rules()
        self.disk = Disk(self.office.directory / "memory.json", checkpoint_type(rules))
        self.loop: Loop[Any, Any, Any, Any] = Loop(
            rules, self.disk, lambda *words: self.office.told.append(words), now=self.office.now
        )
        self._at: list[tuple[float, Callable[[], object]]] = []

    def at(self, hour: float, happens: Callable[[], object]) -> None:
        self._at.append((hour, happens))

    def issue(self, title: str) -> None:
        number = self.forge.world.open_issue("ann", f"[robo] {title}", "please")
        self.office.script(number, Answer(output=f"{title} is done", commit=title), LGTM)

    def approve(self) -> None:
        for pull in self.forge.world.pulls:
            self.forge.world.react(pull.number, "ann", "+1")

    def expire(self) -> None:
        self.forge.tokens.clear()

    def renew(self) -> None:
        self.office.token_file.write_text("ghp_new\n")
        self.forge.tokens["ghp_new"] = "bot"

    async def spend(self) -> None:
        for minute in range(0, HOURS * 60, MINUTES_PER_LOOK):
            self.office.seconds = minute * 60.0
            for hour, happens in self._at:
                if hour * 60 == minute:
                    happens()
            await self.loop.step()


@contextlib.contextmanager
def weekend(root: Path) -> Iterator[Weekend]:
    """With work that comes in at all hours."""
    (root / "forge").mkdir(parents=True)
    world = World("acme/shop", {"ann": "admin", "bot": "write"})
    with served_github(root / "forge", world) as forge:
        made = Weekend(root / "office", forge)
        for hour, title in ((0, "greet"), (2, "wave"), (5, "smile"), (7.5, "nod"), (9.5, "bow")):
            made.at(hour, lambda title=title: made.issue(title))
        made.at(11.5, made.approve)
        yield made
        assert forge.faults == []


def told_of(made: Weekend, word: str) -> list[str]:
    """The reasons that were given with that word."""
    return [str(fields.get("reason")) for _, told, fields in made.office.told if told == word]


@pytest.mark.storm
def test_d2_a_weekend_in_which_all_goes_wrong_ends_like_one_in_which_nothing_does(
    tmp_path: Path,
) -> None:
    with weekend(tmp_path / "quiet") as quiet:
        asyncio.run(quiet.spend())
        wanted: Any = quiet.office.picture()
        assert quiet.office.told == []
        assert len(wanted["branches"]) == 5
        assert [each["labels"] for each in wanted["issues"].values() if each["draft"] is False] == [
            ["approved"]
        ] * 5
    with weekend(tmp_path / "rough") as rough:
        rough.at(1, lambda: setattr(rough.forge, "is_down", True))
        rough.at(1.9, lambda: setattr(rough.forge, "is_down", False))
        rough.at(4.9, lambda: setattr(rough.tasks, "is_away", True))
        rough.at(5.5, lambda: setattr(rough.tasks, "is_away", False))
        rough.at(7.4, lambda: setattr(rough.disk, "is_full", True))
        rough.at(8, lambda: setattr(rough.disk, "is_full", False))
        rough.at(9.2, rough.expire)
        rough.at(10.2, rough.renew)
        asyncio.run(rough.spend())
        assert rough.office.picture() == wanted
        [person] = told_of(rough, "needs a person")
        assert "401" in person
        tried_again = told_of(rough, "failed, and is tried again")
        assert len(tried_again) == 3  # the forge, the hub, the disk: each said once
        assert rough.loop.troubles == {}
        assert rough.forge.counted < HOURS * 5000
