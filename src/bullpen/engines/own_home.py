"""A configuration directory of the agent's own, for programs that have no other way to be given
settings: it takes over what the person set, and links to what the person logged in with.

Used by the engines of such programs. It never writes into the person's directory.
"""

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bullpen.errors import BullpenError, Kind

# In the agent's own directory: where it was taken over from. A restart finds only the agent's
# own directory in its environment, and so does an agent that another one starts.
ORIGIN = ".bullpen-origin"


def find_origin(named: str, default: Path) -> Path:
    """The person's directory: what the environment names, or what that one was made from."""
    directory = Path(named) if named else default
    link = directory / ORIGIN
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


def link(own: Path, origin: Path, names: Iterable[str]) -> None:
    """Make those entries of the person's appear in the agent's directory; what the agent's
    program itself put in their place is replaced, directories excepted."""
    _point(own_directory(own) / ORIGIN, origin)
    for name in names:
        target, place = origin / name, own / name
        if target.exists():
            own_directory(place.parent)
            _point(place, target)
        elif place.is_symlink():
            place.unlink()


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
    """The command with that file as its standard input. These programs wait for the end of a
    pipe before they begin; and a prompt may be longer than one argument can be."""
    return ("/bin/sh", "-c", 'exec <"$1"; shift; exec "$@"', "sh", str(file), *argv)
