"""The view's token: `BULLPEN_WEB_TOKEN` in the home's `.env`, made when the view starts first.

Read again when the file changes: another token there ends every log-in at once. A file that
others can read, or that is gone, has no token: then nobody gets in.
"""

import hmac
import os
import re
import secrets
import stat
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.files import read_plain, write_atomically
from bullpen.home.paths import Home

VARIABLE = "BULLPEN_WEB_TOKEN"
# `[ \t]`, not `\s`: after an empty value the next line, another variable, would be the token.
LINE = re.compile(rf"^[ \t]*(?:export[ \t]+)?{VARIABLE}[ \t]*=[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)
LARGEST_BYTES = 1 << 16
LEAST_CHARACTERS = 16
TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")


def env_file(home: Home) -> Path:
    """The home's variables."""
    return home.root / ".env"


def ensure_token(home: Home) -> str:
    """The token, which is made if there is none. Other lines of the file stay."""
    path = env_file(home)
    text = ""
    if os.path.lexists(path):
        _refuse_open(path)
        text = _read(path)
        known = find_token(text)
        if known:
            return _checked(known, path)
    token = f"bullpen_web_{secrets.token_urlsafe(32)}"
    lines = LINE.sub("", text).rstrip("\n")
    write_atomically(path, f"{lines}\n{VARIABLE}={token}\n".lstrip("\n"), mode=0o600)
    return token


def find_token(text: str) -> str:
    """The value in that text; empty if there is none. The last line counts, as in a shell. Pure."""
    values = LINE.findall(text)
    value = values[-1] if values else ""
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return str(value)


class CurrentToken:
    """The token of now. `matches` is for one that somebody shows."""

    def __init__(self, home: Home) -> None:
        self._path = env_file(home)
        self._seen: tuple[int, ...] = ()
        self._value = ""

    @property
    def value(self) -> str:
        """Empty if there is none, or none to be trusted."""
        try:
            status = self._path.stat()
        except OSError:
            self._seen, self._value = (), ""
            return ""
        seen = (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode, status.st_uid)
        if seen != self._seen:
            try:
                self._value, self._seen = self._load(), seen
            except OSError:  # it may be read the next time: say, too many files were open
                self._value, self._seen = "", ()
        return self._value

    def matches(self, given: str) -> bool:
        value = self.value
        return bool(value) and hmac.compare_digest(given.encode(), value.encode())

    def _load(self) -> str:
        try:
            _refuse_open(self._path)
            token = find_token(_read(self._path))
            return _checked(token, self._path) if token else ""
        except BullpenError:
            return ""


def _read(path: Path) -> str:
    return read_plain(path, LARGEST_BYTES).decode("utf-8", "replace")


def _checked(token: str, path: Path) -> str:
    # The value itself is in no message.
    if TOKEN.fullmatch(token) is None:
        raise BullpenError(
            f"{VARIABLE} in {path} is no token: at least {LEAST_CHARACTERS} letters, figures and"
            " . _ ~ + / = -",
            hint="remove that line: the next start makes a new one",
        )
    return token


def _refuse_open(path: Path) -> None:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        raise BullpenError(f"{path} is not a file of yours", kind=Kind.DENIED)
    if status.st_mode & 0o077:
        raise BullpenError(
            f"{path} is open to others ({stat.S_IMODE(status.st_mode):04o})",
            hint=f"chmod 600 {path}",
            kind=Kind.DENIED,
        )
