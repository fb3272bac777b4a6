"""State files: what engines' programs write about themselves, taken in as it changes.

A file is matched to an agent by the conversation that it names, never by its pid: pids are used
again, and inside sandboxes they collide. Of a file only what it holds now counts, so they are
read one after the other.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from bullpen import proc
from bullpen.engines import Engine, StateFile
from bullpen.files import read_plain
from bullpen.hub.agents.inotify import Watcher
from bullpen.hub.agents.registry import LiveAgent

log = logging.getLogger("bullpen.hub")

MOST_BYTES = 1 << 20
Take = Callable[[str, bytes], Awaitable[None]]


class StateFiles:
    """The directories that agents' programs write to. `take` gets a directory and what a file in
    it holds."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._watcher: Watcher | None = None
        self._changed: dict[Path, None] = {}  # in the order in which they did
        self._is_new = asyncio.Event()

    def follow(self, live: LiveAgent) -> None:
        """Take in what the agent's program writes from now on, and what is there now."""
        if not live.agent.state_files:
            return
        directory = Path(live.agent.state_files)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._watcher = self._watcher or Watcher()
            self._watcher.watch(directory, self._note)
        except OSError as error:
            extra = {"path": str(directory), "reason": str(error)}
            log.warning("cannot watch state files", extra=extra)
        self.look(live)

    def look(self, live: LiveAgent) -> None:
        """Read all files of that agent's directory again."""
        if live.agent.state_files:
            for path in Path(live.agent.state_files).glob("*.json"):
                self._note(path)

    async def run(self) -> None:
        """Read what changes, for ever."""
        while True:
            await self._is_new.wait()
            self._is_new.clear()
            while self._changed:
                path = next(iter(self._changed))
                del self._changed[path]
                try:
                    text = await asyncio.to_thread(read_plain, path, MOST_BYTES)
                except OSError:
                    continue  # deleted in the meantime, or no file: the process tells its own end
                await self._take(str(path.parent), text)

    def _note(self, path: Path) -> None:
        if path.suffix == ".json":
            self._changed[path] = None
            self._is_new.set()


def find_process(engine: Engine, directory: str, conversation: str) -> int | None:
    """The living process that has that conversation open; None: nobody has."""
    if not directory or not conversation:
        return None
    for path in Path(directory).glob("*.json"):
        try:
            state_file = engine.read_state_file(read_plain(path, MOST_BYTES))
        except OSError:
            continue
        if (
            state_file is not None
            and state_file.conversation == conversation
            and is_alive(state_file)
        ):
            return state_file.pid
    return None


def is_alive(state_file: StateFile) -> bool:
    """Whether the process that wrote the file still runs; a killed one leaves it behind."""
    began = proc.start_time(state_file.pid)  # with the boot's id in front
    return began is not None and began.rpartition("/")[2] == state_file.started
