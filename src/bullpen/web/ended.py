"""Log-ins that were ended before their time: a copy of such a cookie counts for nothing.

`<home>/web/ended.json`, so that it holds for the next view, too. Written by `web/login`, asked by
`web/guard` for every request.
"""

import json
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.files import read_plain, write_atomically
from bullpen.home.paths import Home
from bullpen.web.config import web_directory
from bullpen.web.session import SECONDS, Session

LARGEST_BYTES = 1 << 24


class EndedSessions:
    """By the ids of log-ins, when they were ended. After 30 days no cookie of theirs is good."""

    def __init__(self, home: Home) -> None:
        self._path = web_directory(home) / "ended.json"
        self._ended = _load(self._path)

    def has(self, session: Session) -> bool:
        return session.id in self._ended

    def end(self, session: Session, now: float) -> None:
        """Ended also if that cannot be written: then this view alone knows."""
        if not session.id:
            return  # somebody who showed the token itself
        self._ended = {id: at for id, at in self._ended.items() if at > now - SECONDS}
        self._ended[session.id] = now
        try:
            write_atomically(self._path, json.dumps(self._ended), mode=0o600)
        except OSError as error:
            raise BullpenError(
                f"logged out until this view is started again: cannot write {self._path}: {error}",
                kind=Kind.UNAVAILABLE,
            ) from error


def _load(path: Path) -> dict[str, float]:
    try:
        times = json.loads(read_plain(path, LARGEST_BYTES))
        return {str(id): float(at) for id, at in times.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise BullpenError(
            f"{path} says who has logged out, and cannot be read: {error}",
            hint="remove it, and the token in .env: copies of old cookies would count again",
            kind=Kind.COMMAND_FAILED,
        ) from error
