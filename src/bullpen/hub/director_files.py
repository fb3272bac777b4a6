"""What is wrong with the files of directors, for `list` and the page.

Called by `hub/directors`. The hub knows no types of directors: `bullpen validate` checks the files,
in a process of its own, and only when one of them has changed, or something that they are checked
against. Changes nothing.
"""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from bullpen import proc
from bullpen.errors import BullpenError
from bullpen.home.named_files import files_in
from bullpen.home.paths import Home
from bullpen.hot.own_python import TRUSTED_DIRECTORY, module_command

log = logging.getLogger("bullpen.hub")

CHECK_SECONDS = 30.0
UNCHECKED = "it could not be checked · bullpen validate"

Seen = tuple[tuple[str, int, int, int], ...]


class DirectorFiles:
    """Those of one home, as they were when somebody last looked."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._seen: Seen | None = None
        self._problems: Mapping[str, str] = {}
        self._looking = asyncio.Lock()

    async def problems(self) -> Mapping[str, str]:
        """By director: file, line, what is wrong there, and how much more. As it is now."""
        async with self._looking:
            seen = await asyncio.to_thread(_look, self._home)
            if seen != self._seen:  # the files may change while they are read: then once more
                self._problems = await asyncio.to_thread(find_problems, self._home)
                self._seen = seen
        return self._problems


def find_problems(home: Home) -> dict[str, str]:
    """Of the directors whose files are wrong, by name."""
    files = files_in(home.directors)
    if not files:
        return {}
    words = module_command("bullpen", "validate", "--json", *map(str, files))
    env = {name: value for name, value in os.environ.items() if not name.startswith("BULLPEN_")}
    env["BULLPEN_DIR"] = str(home.root)
    try:
        done = proc.run(words, cwd=Path(TRUSTED_DIRECTORY), env=env, timeout=CHECK_SECONDS)
        results = json.loads(done.out)["files"]
    except (BullpenError, ValueError, KeyError) as error:
        log.warning("the files of directors could not be checked", extra={"reason": str(error)})
        return {path.stem: f"directors/{path.name}: {UNCHECKED}" for path in files}
    wrong = ((Path(one["file"]), one["problems"]) for one in results if not one["ok"])
    return {path.stem: _in_a_line(path, problems) for path, problems in wrong}


def _in_a_line(path: Path, problems: list[dict[str, object]]) -> str:
    """The first, and how to see the others. Pure."""
    first, *others = problems
    where = f"directors/{path.name}:{first['line']}"
    words = " ".join(str(first[key]) for key in ("key", "message") if first[key])
    more = f" · and {len(others)} more · bullpen validate directors/{path.name}" if others else ""
    return f"{where}: {words}{more}"


def _look(home: Home) -> Seen:
    """What tells a changed file: of directors, and of what theirs are checked against. Nothing
    without directors."""
    files = files_in(home.directors)
    if not files:
        return ()
    others = (home.agents, home.roles, home.pod_roles, home.credentials)
    files += [
        home.config_file,
        home.root / "hub.json",
        *(one for each in others for one in _in(each)),
    ]
    return tuple(_stats(files))


def _in(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _stats(files: list[Path]) -> Iterator[tuple[str, int, int, int]]:
    for path in files:
        with contextlib.suppress(OSError):
            status = path.stat()
            yield str(path), status.st_mtime_ns, status.st_size, status.st_mode
