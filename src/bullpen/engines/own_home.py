"""A configuration directory of the agent's own, for programs that have no other way to be given
settings: it takes over what the person set, and links to what the person logged in with.

In a sandbox nothing of the person's can be reached, so what is taken over is copied, and the
directory is another one: a program outside of a sandbox must never read what an agent writes
there.

Used by the engines of such programs. It never writes into the person's directory.
"""

import contextlib
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen.engines.base import Start
from bullpen.errors import BullpenError, Kind
from bullpen.files import write_atomically

# Beside the agent's own directory, not in it, where the agent could change it: where that was
# taken over from. A restart finds only the agent's own directory in its environment, and so does
# an agent that another one starts.
ORIGIN = ".origin"
SANDBOXED = "-sandboxed"


@dataclass(frozen=True)
class OwnHome:
    """The home of one kind of program, and what of the person's is taken over into an agent's.
    Names and globs are of `inside`."""

    people_say: str  # the program's name, before "agent"
    variable: str  # that names its home
    name: str  # of the agent's, in the session
    default: str  # the person's, in the home directory
    inside: str  # where in a home its files are
    transcripts_in: str
    system: str  # the file of a role's system prompt, in the session
    taken_over: tuple[str, ...]
    secret: tuple[str, ...]  # of these, what no sandbox sees
    rules: str  # the person's files of rules: a glob
    planted: tuple[str, ...]  # what an agent in a sandbox could leave for its next run

    def own(self, start: Start) -> Path:
        """The agent's. One of a sandbox is another one."""
        return start.session / (f"{self.name}{SANDBOXED}" if start.is_sandboxed else self.name)

    def origin(self, start: Start) -> Path:
        """The person's."""
        return find_origin(start.env.get(self.variable, ""), start.person / self.default)

    def transcripts(self, start: Start) -> Path:
        """Where the program writes the agent's."""
        return self.own(start) / self.inside / self.transcripts_in

    def take_over(self, start: Start) -> None:
        """What the person has, into the agent's: links; in a sandbox copies, and no secrets."""
        own, origin = self.own(start), self.origin(start)
        note_origin(own, origin)
        own, origin = own / self.inside, origin / self.inside
        rules = [str(file.relative_to(origin)) for file in sorted(origin.glob(self.rules))]
        names = [*self.taken_over, *rules]
        if not start.is_sandboxed:
            link(own, origin, names)
            return
        real_directory(own)
        for name in self.planted:
            remove(own / name)
        copy(own, origin, [name for name in names if name not in self.secret])

    def write(self, start: Start, files: Mapping[str, str]) -> None:
        """Files of the agent's own."""
        for name, text in files.items():
            file = self.own(start) / self.inside / name
            own_directory(file.parent)
            write_own(file, text)


def find_origin(named: str, default: Path) -> Path:
    """The person's directory: what the environment names, or what that one was made from."""
    directory = Path(named) if named else default
    link = _origin_of(directory)
    return link.readlink() if link.is_symlink() else directory


def own_directory(path: Path) -> Path:
    """Made if it is missing. The agent may write where it is: a link there would have us write
    somewhere else."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_symlink():
        raise BullpenError(
            f"{path} is a link, not a directory of the agent's", hint="remove it", kind=Kind.DENIED
        )
    return path


def real_directory(path: Path) -> Path:
    """A directory that the agent of a sandbox writes to, which is one: whatever else is there is
    removed, so that the agent's next run is not kept from starting."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    return own_directory(path)


def note_origin(own: Path, origin: Path) -> None:
    """For `find_origin`, when all that is known is the agent's own directory."""
    own_directory(own)
    _point(_origin_of(own), origin)


def link(own: Path, origin: Path, names: Iterable[str]) -> None:
    """Make those entries of the person's appear in the agent's directory; what the agent's
    program itself put in their place is replaced, directories excepted."""
    own_directory(own)
    for name in names:
        target, entry = origin / name, own / name
        if target.exists():
            own_directory(entry.parent)
            _point(entry, target)
        elif entry.is_symlink():
            entry.unlink()


def copy(own: Path, origin: Path, names: Iterable[str]) -> None:
    """The same with copies, as they are now, in place of whatever the agent left there."""
    own_directory(own)
    for name in names:
        source, entry = origin / name, own / name
        own_directory(entry.parent)
        remove(entry)
        if source.is_dir():
            shutil.copytree(source, entry, ignore=_special, ignore_dangling_symlinks=True)
        elif source.is_file():
            shutil.copyfile(source, entry)


def _special(directory: str, names: list[str]) -> set[str]:
    """Sockets and pipes: to copy one would be to wait for it."""
    paths = {name: Path(directory, name) for name in names}
    return {name for name, p in paths.items() if p.exists() and not (p.is_dir() or p.is_file())}


def remove(entry: Path) -> None:
    """Whatever it is; what a link leads to stays."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)


def write_own(entry: Path, text: str) -> None:
    """A file in the agent's directory, also where the agent put something else."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    write_atomically(entry, text, mode=0o600)


def _origin_of(own: Path) -> Path:
    return own.with_name(own.name + ORIGIN)


def _point(entry: Path, target: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        return
    with contextlib.suppress(FileNotFoundError):
        entry.unlink()
    entry.symlink_to(target)


def merged(first: Mapping[str, Any], *others: Mapping[str, Any]) -> dict[str, Any]:
    """All mappings in one; where two differ, the later one holds. Pure."""
    result = dict(first)
    for other in others:
        for key, value in other.items():
            before = result.get(key)
            both = isinstance(before, Mapping) and isinstance(value, Mapping)
            result[key] = merged(before, value) if both else value  # type: ignore[arg-type]
    return result
