"""The person's file of a scheduler: read while it runs, and changed by the API and by commands.

Called by `director` and `bullpen schedule`. A change is made in the text, so that comments and
order stay; it is checked as a whole before it is written, and written at once or not at all.
"""

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from bullpen.directors.config import check_director_document
from bullpen.directors.scheduler.config import Entry, SchedulerConfig, entry_fields
from bullpen.errors import BullpenError, Kind
from bullpen.files import locked, write_atomically
from bullpen.home.check import check_data, raise_if_any
from bullpen.home.paths import Home
from bullpen.home.yaml_edit import WIDTH
from bullpen.home.yamlfile import dotted, parse, read
from bullpen.suggest import did_you_mean

Mark = tuple[int, int, int]


class ScheduleFile:
    """One file. `entries` are those of the last version that was right; `problem` says what is
    wrong with the present one."""

    def __init__(self, home: Home, path: Path) -> None:
        self._home = home
        self.path = path
        self.entries: Mapping[str, Entry] = {}
        self.problem = ""
        self._mark: Mark | None = None

    def look(self) -> bool:
        """Read it if it has changed; whether it had."""
        mark = self._find_mark()
        if mark is not None and mark == self._mark:
            return False
        self._mark = mark
        config, problems = check_director_document(read(self.path), self._home)
        if isinstance(config, SchedulerConfig):
            self.entries = {entry.name: entry for entry in config.schedule}
            self.problem = ""
        else:
            lines = [f"line {one.line}: {one.key} {one.message}" for one in problems]
            self.problem = "; ".join(lines) or "it is no scheduler's any more"
        return True

    def _find_mark(self) -> Mark | None:
        with contextlib.suppress(OSError):
            status = self.path.stat()
            return status.st_mtime_ns, status.st_ino, status.st_size
        return None

    # ── changes ──

    def add(self, fields: Mapping[str, Any]) -> Entry:
        """One more entry, at the end."""
        entry = _checked(fields)

        def change(entries: CommentedSeq) -> None:
            if any(_name(each) == entry.name for each in entries):
                raise BullpenError(f"{entry.name} is there already", kind=Kind.CONFLICT)
            entries.append(entry_fields(entry))

        self._change(change)
        return entry

    def remove(self, name: str) -> None:
        """One entry less."""

        def change(entries: CommentedSeq) -> None:
            names = [_name(each) for each in entries]
            if name not in names:
                raise no_entry(name, names)
            del entries[names.index(name)]

        self._change(change)

    def replace(self, schedule: Sequence[Mapping[str, Any]]) -> None:
        """All entries. Those that are the same stay as they were written."""
        new = [entry_fields(_checked(fields)) for fields in schedule]

        def change(entries: CommentedSeq) -> None:
            before = {_name(each): each for each in entries}
            entries[:] = [
                before[each["name"]] if before.get(each["name"]) == each else each for each in new
            ]

        self._change(change)

    def _change(self, change: Callable[[CommentedSeq], None]) -> None:
        with locked(self.path.parent):
            yaml = YAML()
            yaml.preserve_quotes = True
            yaml.width = WIDTH
            document = read(self.path)
            raise_if_any(self.path.name, list(document.problems), "mend the file first")
            before = self.path.read_text()
            offset = 2 if re.search(r"^  - ", before, re.MULTILINE) else 0  # as the person's
            yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
            data = yaml.load(before)
            if not isinstance(data, CommentedMap):
                raise BullpenError(f"{self.path} is no scheduler's file")
            if not isinstance(data.get("schedule"), CommentedSeq):
                data["schedule"] = CommentedSeq()
            if not data["schedule"]:
                data["schedule"].fa.set_block_style()  # after `[]`, which a starter file has
            change(data["schedule"])
            if not data["schedule"]:
                data["schedule"] = CommentedSeq()  # comments in an empty one are no YAML
            out = StringIO()
            yaml.dump(data, out)
            text = _with_comments(out.getvalue(), before)
            problems = check_director_document(parse(self.path, text), self._home)[1]
            raise_if_any(self.path.name, problems, "nothing was changed")
            mode = self.path.stat().st_mode & 0o777
            try:
                write_atomically(self.path, text, mode=mode)
            except OSError as error:
                raise BullpenError(
                    f"cannot write {self.path}: {error.strerror}",
                    hint="the file is as it was",
                    kind=Kind.UNAVAILABLE,
                ) from error
        self.look()


def _with_comments(text: str, before: str) -> str:
    """With the comments that stood below an entry and went with it: they may be of others."""
    lines = text.splitlines()
    lost = [line for line in before.splitlines() if line.startswith("#") and line not in lines]
    return text + "".join(f"{line}\n" for line in lost)


def no_entry(name: str, names: Sequence[str]) -> BullpenError:
    """Nothing in the schedule is called that."""
    return BullpenError(
        f"nothing in the schedule is called {name[:80]}{did_you_mean(name, names)}",
        hint="bullpen schedule list",
        kind=Kind.NOT_FOUND,
    )


def _name(entry: object) -> str:
    return str(entry.get("name", "")) if isinstance(entry, Mapping) else ""


def _checked(fields: Mapping[str, Any]) -> Entry:
    entry, problems = check_data(Entry, dict(fields))
    if problems or entry is None:
        lines = [f"{dotted(where)}: {message}".removeprefix(": ") for where, message in problems]
        raise BullpenError("; ".join(lines), details={"problems": lines})
    return entry
