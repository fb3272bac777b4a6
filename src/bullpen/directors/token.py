"""A director's own token: `directors/<name>/token`. Made at its start, gone when it is stopped.

Called by `bullpen director`, which tells the hub its hash, and by `director`, which uses it. A file
that others can read is refused.
"""

import hashlib
import secrets
import stat
from pathlib import Path

from bullpen.directors.memory import directory_of
from bullpen.errors import BullpenError, Kind
from bullpen.files import make_directory, read_plain, write_atomically
from bullpen.home.paths import Home

LARGEST_BYTES = 1 << 10


def token_file(home: Home, name: str) -> Path:
    """Where it lies."""
    return directory_of(home, name) / "token"


def make_token(home: Home, name: str) -> str:
    """A new one, in place of any other. What is returned is its hash, for the hub."""
    make_directory(directory_of(home, name), 0o700)
    token = f"bullpen_director_{secrets.token_urlsafe(32)}"
    write_atomically(token_file(home, name), f"{token}\n", mode=0o600)
    return hashlib.sha256(token.encode()).hexdigest()


def load_token(home: Home, name: str) -> str:
    """The one that it has."""
    path = token_file(home, name)
    hint = f"bullpen director restart {name}"
    try:
        token = read_plain(path, LARGEST_BYTES).decode("ascii", "replace").strip()
        mode = path.lstat().st_mode
    except FileNotFoundError as error:
        raise BullpenError(f"{name} has no token", hint=hint, kind=Kind.UNAVAILABLE) from error
    except OSError as error:
        raise BullpenError(
            f"{path} cannot be read: {error.strerror}", hint=hint, kind=Kind.DENIED
        ) from error
    if stat.S_IMODE(mode) & 0o077 or not token:
        raise BullpenError(f"{path} is empty, or others can read it", hint=hint, kind=Kind.DENIED)
    return token


def forget_token(home: Home, name: str) -> None:
    """It is revoked; its file goes, too."""
    token_file(home, name).unlink(missing_ok=True)
