"""A configuration directory of the agent's own, for programs that have no other way to be given
settings: it takes over what the person set, and links to what the person logged in with.

In a sandbox nothing of the person's can be reached, so what is taken over is copied, and the
directory is another one: what an agent writes there must never be read by a program without walls.

Used by the engines of such programs. It never writes into the person's directory.
"""

import contextlib
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bullpen.errors import BullpenError, Kind
from bullpen.files import write_atomically

# Beside the agent's own directory, not in it, where the agent could change it: where that was
# taken over from. A restart finds only the agent's own directory in its environment, and so does
# an agent that another one starts.
ORIGIN = ".origin"
SANDBOXED = "-sandboxed"


def own_name(name: str, is_sandboxed: bool) -> str:
    """What the directory is called in the session."""
    return f"{name}{SANDBOXED}" if is_sandboxed else name


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
        target, place = origin / name, own / name
        if target.exists():
            own_directory(place.parent)
            _point(place, target)
        elif place.is_symlink():
            place.unlink()


def copy(own: Path, origin: Path, names: Iterable[str]) -> None:
    """The same with copies, as they are now, in place of whatever the agent left there."""
    own_directory(own)
    for name in names:
        source, place = origin / name, own / name
        own_directory(place.parent)
        remove(place)
        if source.is_dir():
            shutil.copytree(source, place, ignore=_special, ignore_dangling_symlinks=True)
        elif source.is_file():
            shutil.copyfile(source, place)


def _special(directory: str, names: list[str]) -> set[str]:
    """Sockets and pipes: to copy one would be to wait for it."""
    found = {name: Path(directory, name) for name in names}
    return {name for name, p in found.items() if p.exists() and not (p.is_dir() or p.is_file())}


def remove(place: Path) -> None:
    """Whatever it is; what a link leads to stays."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def write_own(place: Path, text: str) -> None:
    """A file in the agent's directory, also where the agent put something else."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    write_atomically(place, text, mode=0o600)


def _origin_of(own: Path) -> Path:
    return own.with_name(own.name + ORIGIN)


def _point(place: Path, target: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        return
    with contextlib.suppress(FileNotFoundError):
        place.unlink()
    place.symlink_to(target)


def merged(first: Mapping[str, Any], *others: Mapping[str, Any]) -> dict[str, Any]:
    """All of them in one; where two say something else, the later one holds. Pure."""
    result = dict(first)
    for other in others:
        for key, value in other.items():
            before = result.get(key)
            both = isinstance(before, Mapping) and isinstance(value, Mapping)
            result[key] = merged(before, value) if both else value  # type: ignore[arg-type]
    return result


def fed(file: Path, argv: Iterable[str]) -> tuple[str, ...]:
    """The command with that file as its standard input; without the file it does not run. These
    programs wait for the end of a pipe before they begin; and a prompt may be longer than one
    argument can be."""
    return ("/bin/sh", "-c", 'exec <"$1"; shift; exec "$@"', "sh", str(file), *argv)
