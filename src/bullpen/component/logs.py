"""The log files of servers, `<home>/logs/<component>.log`: JSON lines, and old files are deleted.

`configure` is called once by a process that serves (`hub/main`, `component/server`); all other code
logs by the standard library. A file has at most `FILE_BYTES`; then hub.log becomes hub.log.1, and
so on; of `FILES` files the oldest is deleted (`JsonFile._rotate`). Logs of agents' terminals
(`sessions/<agent>/output.log`) are rotated by `holder/log`, and deleted with the session by
`hub/agents/gc`; old events are deleted by `hub/upkeep`. Nothing here raises into the code that
logs, or prints: a line that cannot be written (a full disk) is dropped and counted, and the count
is logged later. Writes no credentials.
"""

import contextlib
import itertools
import json
import logging
import os
import threading
import traceback
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bullpen.component.redact import REDACTED, Redactor

__all__ = ["LEVELS", "REDACTED", "JsonFile", "add_secret", "configure"]

# The levels of settings and config files.
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}
FILE_BYTES = 10_000_000
FILES = 5  # the one that is written to and four old ones; what is older is deleted

# They come with handlers of their own.
SERVER_LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")
OWN_FIELDS = ("timestamp", "level", "component", "logger", "message")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}

_redactor = Redactor()


def add_secret(value: str) -> None:
    """Keep this value out of the log from now on."""
    _redactor.add([value])


def configure(
    path: Path, component: str, level: str | int = "INFO", secrets: Iterable[str] = ()
) -> "JsonFile":
    """Send everything that this process logs to the file; a second call replaces the first.

    Uvicorn has to be started with `log_config=None`, or it puts its own handlers back.
    """
    _redactor.add(secrets)
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, JsonFile)]:
        root.removeHandler(old)
        old.close()
    handler = JsonFile(path, component)
    root.addHandler(handler)
    root.setLevel(level)
    for name in SERVER_LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    return handler


class JsonFile(logging.Handler):
    """Writes each record as one line, with one call, and begins a new file when one is full."""

    def __init__(
        self,
        path: Path,
        component: str,
        redactor: Redactor = _redactor,
        file_bytes: int = FILE_BYTES,
        files: int = FILES,
    ) -> None:
        super().__init__()
        self.path = path
        self.component = component
        self.dropped = 0
        self._redactor = redactor
        self._file_bytes = file_bytes
        self._files = files
        self._descriptor = -1
        self._is_cut = False
        self._inside = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        # A value whose text is made by code that logs would call us from within.
        if getattr(self._inside, "now", False):
            return
        self._inside.now = True
        try:
            self._write(self._line(record))
            if self.dropped:
                self._write(self._line(_about_dropped(self.dropped)))
                self.dropped = 0
        except Exception:  # the code that makes a value's text can raise anything
            self.dropped += 1
        finally:
            self._inside.now = False

    def close(self) -> None:
        """Close the file; another record opens it again."""
        self.acquire()
        try:
            self._close_file()
        finally:
            self.release()
        super().close()

    def _line(self, record: logging.LogRecord) -> bytes:
        redact = self._redactor
        moment = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, Any] = {
            "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "component": self.component,
            "logger": record.name,
            "message": redact.text(_message(record)),
        }
        for name, value in vars(record).items():
            if name not in _STANDARD:
                shown = redact.text(f"{name}_" if name in OWN_FIELDS else name)
                fields[shown] = redact.field(name, value)
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = redact.text("".join(traceback.format_exception(*record.exc_info)))
        if record.stack_info:
            fields["stack"] = redact.text(record.stack_info)
        return json.dumps(fields).encode("ascii") + b"\n"

    def _write(self, line: bytes) -> None:
        self._open(len(line))
        if self._is_cut:
            line = b"\n" + line
        written = os.write(self._descriptor, line)
        # The disk is full in the middle of a line: the next line must not be appended to it.
        self._is_cut = written < len(line)
        if self._is_cut:
            raise OSError("cut short")

    def _open(self, size: int) -> None:
        """Have a descriptor of the file at `path`, one with room for so many bytes."""
        for is_second in (False, True):
            if self._descriptor < 0:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self.path, flags, 0o600)
            ours = os.fstat(self._descriptor)
            if ours.st_size and ours.st_size + size > self._file_bytes and not is_second:
                self._rotate()
            # Another process may have rotated it, too, or somebody removed it.
            if _identity(self.path) == (ours.st_dev, ours.st_ino):
                return
            self._close_file()

    def _close_file(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _rotate(self) -> None:
        """hub.log becomes hub.log.1, that one hub.log.2, and the oldest is deleted."""
        names = [self.path, *(Path(f"{self.path}.{number}") for number in range(1, self._files))]
        for newer, older in reversed(list(itertools.pairwise(names))):
            # A directory that became read-only: better a file that grows than no log.
            with contextlib.suppress(OSError):
                newer.replace(older)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError, IndexError):
        # Arguments that do not fit the text: log both.
        return f"{record.msg} {record.args!r}"


def _about_dropped(count: int) -> logging.LogRecord:
    return logging.makeLogRecord(
        {
            "name": __name__,
            "levelname": "WARNING",
            "msg": "log lines were dropped",
            "dropped": count,
        }
    )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
