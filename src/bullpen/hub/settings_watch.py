"""Takes over what changes in `config.yaml` while the hub runs.

A part of `parts`. A changed file is checked as a whole: one with errors changes nothing. What is
bound or announced at the start needs a restart; everything else counts at once, for whoever asks
the context. What was taken over is in the hub's log; what was not, `list` and `status` say.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bullpen.component import logs
from bullpen.component.journal import Journal
from bullpen.errors import BullpenError
from bullpen.home.settings import Settings, load_settings
from bullpen.hub.agents.inotify import Watcher
from bullpen.hub.context import HubContext

log = logging.getLogger("bullpen.hub")

NEED_RESTART = frozenset({"port", "discovery.method"})
SETTLE_SECONDS = 0.05  # editors write in several steps


def changed_keys(before: Settings, after: Settings) -> frozenset[str]:
    """The keys whose values differ: `worktrees.base`. Pure."""
    old, new = (dict(_flat(each.model_dump())) for each in (before, after))
    return frozenset(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


class SettingsWatch:
    """The settings of one hub: as it started, and as the file is now."""

    def __init__(self, context: HubContext, journal: Journal) -> None:
        self._context = context
        self._journal = journal
        self._started_with = context.settings
        self._file = context.home.config_file
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self.note = ""  # why the file does not count as it is; for people

    async def run(self) -> None:
        """Until it is cancelled."""
        with contextlib.closing(Watcher()) as watcher:
            while True:
                self._follow(watcher)
                await self.look()
                await self._changed.wait()
                await asyncio.sleep(SETTLE_SECONDS)
                self._changed.clear()

    async def next_change(self) -> None:
        """Until other settings count than now."""
        self._taken.clear()
        await self._taken.wait()

    def _follow(self, watcher: Watcher) -> None:
        """The file may be a link into a directory where a person keeps all settings."""
        try:
            for path in {self._file, Path(os.path.realpath(self._file))}:
                watcher.watch(path.parent, partial(self._notice, path))
        except OSError as error:
            log.warning("cannot watch config.yaml", extra={"reason": str(error)})

    def _notice(self, file: Path, changed: Path) -> None:
        if changed == file:
            self._changed.set()

    async def look(self) -> None:
        """Read the file, and take over what can be."""
        try:
            settings = await asyncio.to_thread(load_settings, self._file)
        except BullpenError as error:
            why = error.message.partition("\n")[0]  # the rest is a line for each mistake
            self._say(f"{why} and is not used · bullpen validate")
            return
        except OSError as error:
            self._say(f"config.yaml cannot be read: {error.strerror or error}")
            return
        new = changed_keys(self._context.settings, settings)
        self._context.settings = settings
        logging.getLogger().setLevel(logs.LEVELS[settings.log_level])
        if new:
            self._taken.set()
            self._journal.note("info", "config.yaml has changed", keys=sorted(new))
        late = sorted(changed_keys(self._started_with, settings) & NEED_RESTART)
        self._say(f"config.yaml: {', '.join(late)} · needs bullpen hub restart" if late else "")

    def _say(self, note: str) -> None:
        if note and note != self.note:
            self._journal.note("warn", note)
        self.note = note
