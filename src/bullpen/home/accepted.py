"""The homes that this person made or accepted: what is noted, and what is said of the others.

`init` notes a home here, `init --accept` one that was made elsewhere or before. `home/paths` asks
whether one that it found by walking up may be used. The file and the rule are those of
`hot/known_homes.py`. No sandboxed agent reaches the file.
"""

import contextlib
import functools
import os
import shlex
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.files import locked, write_atomically
from bullpen.home import marker
from bullpen.hot import known_homes


class UnknownHomeError(BullpenError):
    """A home that nobody accepted yet; a person at a terminal may do so."""

    def __init__(self, root: Path, env: Mapping[str, str], person: Path) -> None:
        message = _describe(root, read(list_path(env, person)))
        super().__init__(message, hint=f"if it is yours: {accept_command(root)}", kind=Kind.DENIED)
        self.accept = functools.partial(accept, root, env, person)


class TasksDirectoryError(BullpenError):
    """A home where a task of another home worked: an agent may have made it."""

    def __init__(self, root: Path, home: Path, directory: str) -> None:
        named = f"BULLPEN_DIR={shlex.quote(str(root))}"
        super().__init__(
            f"{root} is none that you made: a task of {home} worked in {directory}, and may"
            " have made it",
            hint=f"read what is in it; if it is yours all the same: {named} {accept_command(root)}",
            kind=Kind.DENIED,
        )


def accept_command(root: Path) -> str:
    """What a person types to accept it."""
    return f"bullpen init --accept {shlex.quote(str(root))}"


def list_path(env: Mapping[str, str], person: Path) -> Path:
    """The file."""
    return Path(os.fsdecode(known_homes.list_path(_bytes(env), os.fsencode(person))))


def check(home: Path, env: Mapping[str, str], person: Path) -> None:
    """Refuse a home that was found by walking up, unless this person made or accepted it."""
    refuse_agents_directory(home)
    root = home.resolve()
    if any(
        known_homes.is_accepted(os.fsencode(root), _bytes(env), os.fsencode(each))
        for each in (person, person.resolve())
    ):
        return
    path = list_path(env, person)
    _refuse_open_list(path)
    _refuse_tasks_directory(root, [*read(path), person / ".bullpen"])
    raise UnknownHomeError(root, env, person)


def refuse_agents_directory(root: Path) -> None:
    """Agents can write there: what they call a home would run as the person."""
    for name in {root, root.resolve()}:
        around = known_homes.agents_directory(os.fsencode(name))
        if around is not None and not marker.is_home(root):
            raise BullpenError(
                f"no home is made in {os.fsdecode(around)}: an agent works there",
                hint="bullpen init in your own checkout",
                kind=Kind.DENIED,
            )
        if around is not None:
            raise BullpenError(
                f"{root} is no home: an agent works in {os.fsdecode(around)}, and may have made it",
                hint=f"cd somewhere else, or: rm {shlex.quote(str(root / marker.MARKER))}",
                kind=Kind.DENIED,
            )


def _refuse_tasks_directory(root: Path, homes: Iterable[Path]) -> None:
    """Tasks may work in any directory: those of the person's homes, and where they did, are in
    the databases of their hubs."""
    around = [str(path) for path in (root, *root.parents)]
    for home in homes:
        directory = None if home == root else _find_tasks_directory(home, around)
        if directory is not None:
            raise TasksDirectoryError(root, home, directory)


def _find_tasks_directory(home: Path, directories: list[str]) -> str | None:
    """Which of these a task of that home was given; None also if its database cannot be read."""
    import sqlite3

    path = home / "state.db"
    if not path.is_file():
        return None
    query = (
        "SELECT json_extract(data, '$.directory') AS directory FROM task_sessions"
        f" WHERE directory IN ({', '.join('?' * len(directories))})"
    )
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            row = database.execute(query, directories).fetchone()
    except sqlite3.Error:
        return None
    return str(row[0]) if row else None


def read(path: Path) -> dict[Path, str]:
    """The listed homes and their ids."""
    homes = {}
    for entry in known_homes.read_list(os.fsencode(path)):
        home_id, _, name = os.fsdecode(entry).partition(" ")
        if name.startswith("/"):
            homes[Path(_unescaped(name))] = home_id
    return homes


def note(root: Path, env: Mapping[str, str], person: Path) -> None:
    """List the home; what else is listed stays, also if others do so at the same time."""
    refuse_agents_directory(root)
    path = list_path(env, person)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(path.parent):
            _refuse_open_list(path)
            homes = {**read(path), root: marker.home_id(root)}
            lines = (
                known_homes.line(os.fsencode(homes[each]), os.fsencode(each)) for each in homes
            )
            text = "".join(f"{os.fsdecode(line)}\n" for line in lines)
            write_atomically(path, text, 0o600)
    except OSError as error:
        raise BullpenError(
            f"cannot note the home in {path}: {error.strerror}",
            hint="make that directory writable, or set XDG_CONFIG_HOME to one that is",
            kind=Kind.DENIED,
        ) from error


def accept(root: Path, env: Mapping[str, str], person: Path) -> bool:
    """Let the home be found by walking up; False if it could be before. Where a task worked, only
    with the explicit word of `BULLPEN_DIR`. A copy gets an id of its own: by their ids homes are
    told apart."""
    refuse_agents_directory(root)
    try:
        check(root, env, person)
        return False
    except TasksDirectoryError:
        named = env.get("BULLPEN_DIR", "")
        if not named or Path(named).resolve() != root:
            raise
    except UnknownHomeError:
        pass
    if original_of(root, read(list_path(env, person))):
        marker.renew_id(root)
    note(root, env, person)
    return True


def original_of(root: Path, homes: Mapping[Path, str]) -> Path | None:
    """The listed home with the same id, if it is still there: `root` is a copy of it."""
    listed = _same_id(root, homes)
    return listed if listed and known_homes.read_id(os.fsencode(listed)) else None


def _describe(root: Path, homes: Mapping[Path, str]) -> str:
    if original := original_of(root, homes):
        return f"{root} is a copy of the home {original}, and not accepted"
    if before := _same_id(root, homes):
        return f"the home {root} was at {before} before: it is not accepted where it is now"
    return (
        f"the home {root} is none that you made or accepted here; agents can make such files, too"
    )


def _same_id(root: Path, homes: Mapping[Path, str]) -> Path | None:
    home_id = known_homes.read_id(os.fsencode(root))
    if home_id is None:
        return None
    others = (each for each, listed in homes.items() if listed == home_id.decode("latin-1"))
    return next((each for each in others if each != root), None)


def _refuse_open_list(path: Path) -> None:
    try:
        status = path.stat()
    except OSError:
        return
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise BullpenError(
            f"{path} can be written by others ({stat.filemode(status.st_mode)}):"
            " no home in it counts",
            hint=f"look at what it lists, then: chmod 600 {shlex.quote(str(path))}",
            kind=Kind.DENIED,
        )


def _bytes(env: Mapping[str, str]) -> known_homes.Environment:
    return {os.fsencode(name): os.fsencode(value) for name, value in env.items()}


def _unescaped(text: str) -> str:
    return "\\".join(part.replace("\\n", "\n") for part in text.split("\\\\"))
