"""The version marker and the id of a home: `.bullpen-dir.txt`, `.bullpen-id.txt`.

Only this module reads or writes them. It decides which migrations run and when the marker
changes; what a migration does is given by the caller.
"""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from bullpen import __version__
from bullpen.errors import BullpenError, Kind
from bullpen.files import create_once, write_atomically

MARKER = ".bullpen-dir.txt"
ID = ".bullpen-id.txt"

Version = tuple[int, int, int]
# A step runs when the marker is older than its version. Two processes may run it
# at the same time, or one may die in the middle: it has to be repeatable.
Migration = tuple[Version, Callable[[Path], None]]


def parse_version(text: str) -> Version | None:
    """`0.2.0` or `0.2.0.dev1` (the suffix does not count) as numbers."""
    match = re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})([.a-z+-][\w.+-]*)?", text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def is_home(root: Path) -> bool:
    """Whether the directory holds the marker; one we may not look into does not."""
    try:
        return (root / MARKER).is_file()
    except PermissionError:
        return False


def read_version(root: Path) -> Version:
    """The version that the marker says."""
    path = root / MARKER
    try:
        with path.open("rb") as file:
            content = file.read(100).decode("utf-8", "backslashreplace")
    except OSError as error:
        raise BullpenError(f"cannot read {path}: {error.strerror}", kind=Kind.DENIED) from error
    line = content.removesuffix("\n").removesuffix("\r")
    version = parse_version(line.removeprefix("v")) if line.startswith("v") else None
    if version is None:
        raise BullpenError(
            f"{path} does not hold a version: {content!r}",
            hint=f"it is one line like v{__version__}; write the version that made this home",
        )
    return version


def create(root: Path, version: str = __version__) -> bool:
    """Make the directory a home; False if it already was one."""
    return create_once(root / MARKER, f"v{version}\n".encode())


def bring_up_to_date(
    root: Path, migrations: Sequence[Migration], program: str = __version__
) -> None:
    """Refuse a home of a newer major version, migrate an older one, leave the rest alone."""
    version_of_home, ours = read_version(root), parse_version(program)
    if ours is None:
        raise ValueError(f"not a version: {program}")
    if version_of_home[0] > ours[0]:
        needed = ".".join(map(str, version_of_home))
        raise BullpenError(
            f"the home {root} needs bullpen {needed}, this is {program}",
            hint=f"install bullpen {version_of_home[0]}.x, {needed} or newer",
            kind=Kind.UNSUPPORTED,
        )
    if version_of_home < ours:
        for version, migrate in migrations:
            if version_of_home < version:
                migrate(root)
        write_atomically(root / MARKER, f"v{program}\n", 0o600)


def renew_id(root: Path) -> None:
    """Give a copy of a home an id of its own."""
    write_atomically(root / ID, f"{os.urandom(8).hex()}\n", 0o600)


def home_id(root: Path) -> str:
    """The random name that tells this home from all others; made once, never changed."""
    path = root / ID
    if not path.exists():
        create_once(path, f"{os.urandom(8).hex()}\n".encode())
    text = path.read_text("utf-8", "backslashreplace")
    if re.fullmatch(r"[0-9a-f]{16}\n", text) is None:
        raise BullpenError(f"{path} does not hold a home's id: {text[:100]!r}")
    return text.strip()
