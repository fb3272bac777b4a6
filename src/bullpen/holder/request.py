"""The requests to a factory and its answers. A request is checked once, here."""

import contextlib
import errno
import json
import os
import select
import time
from collections.abc import Callable

READ = 1 << 16
REQUEST_BYTES = 8 << 20
REQUEST_SECONDS = 10.0
KINDS = {
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
}


class StartError(Exception):
    """Why a holder could not be started: a kind of the protocol, and words."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class HoldRequest:
    """The fields of `hold`. (Dataclasses would bring a megabyte of modules into each holder.)"""

    def __init__(
        self,
        name: str,
        socket: str,
        session: str,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        mode: str = "pty",
        rows: int = 24,
        cols: int = 80,
        umask: int = 0o022,
        log_bytes: int = 64 << 20,
        ring_bytes: int = 256 << 10,
        tag: str = "",
    ) -> None:
        self.name = name
        self.socket = socket
        self.session = session
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.mode = mode
        self.rows = rows
        self.cols = cols
        self.umask = umask
        self.log_bytes = log_bytes
        self.ring_bytes = ring_bytes
        self.tag = tag

    @property
    def is_pty(self) -> bool:
        return self.mode == "pty"


def read_request(connection: int) -> dict[str, object]:
    """A request's fields, of whatever kind it is."""
    line = _read_line(connection)
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StartError("invalid", f"not JSON: {error}") from error
    if not isinstance(request, dict):
        raise StartError("invalid", "not a JSON object")
    return request


def _read_line(connection: int) -> bytes:
    deadline = time.monotonic() + REQUEST_SECONDS
    line = bytearray()
    while b"\n" not in line[-READ:]:
        left = max(0.0, deadline - time.monotonic())
        if not select.select([connection], [], [], left)[0]:
            raise StartError("invalid", f"no whole request within {REQUEST_SECONDS:g} seconds")
        piece = os.read(connection, READ)
        if not piece:
            break
        line += piece
        if len(line) > REQUEST_BYTES:
            raise StartError("invalid", f"a request of more than {REQUEST_BYTES} bytes")
    return bytes(line)


def reply(connection: int, fields: dict[str, object]) -> None:
    """A line to whoever asked, if he is still there."""
    with contextlib.suppress(OSError):
        os.write(connection, json.dumps(fields).encode() + b"\n")


def refuse(connection: int, error: Exception) -> None:
    """Say why it could not be done."""
    kind, message = "failed", repr(error)
    if isinstance(error, StartError):
        kind, message = error.kind, str(error)
    elif isinstance(error, OSError):
        kind = KINDS.get(error.errno or 0, "failed")
        message = f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
    reply(connection, {"ok": False, "error": kind, "message": message})


def parse_request(fields: dict[str, object]) -> HoldRequest:
    """The request, every field of its type; StartError names those that are not."""
    known = {name: fields[name] for name in RULES if name in fields}
    wrong = [name for name, value in known.items() if not RULES[name](value)]
    wrong += [
        name for name in ("name", "socket", "session", "argv", "env", "cwd") if name not in known
    ]
    if wrong:
        raise StartError("invalid", f"missing or wrong: {', '.join(wrong)}")
    return HoldRequest(**known)  # type: ignore[arg-type] # each was looked at


RING_MOST = (1 << 20) - 4096  # with the modes before it, it has to fit a frame
SOCKET_BYTES = 107  # sun_path with its NUL is 108


def _is_text(value: object) -> bool:
    return value != "" and _is_value(value)


def _is_path(value: object) -> bool:
    return _is_text(value) and str(value).startswith("/")


def _is_socket(value: object) -> bool:
    return _is_path(value) and len(os.fsencode(str(value))) <= SOCKET_BYTES


def _is_value(value: object) -> bool:
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:  # half a surrogate: JSON can say it, the kernel cannot take it
        return False
    return True


def _are_words(value: object) -> bool:
    return (
        isinstance(value, list)
        and value != []
        and _is_text(value[0])
        and all(map(_is_value, value))
    )


def _is_environment(value: object) -> bool:
    return isinstance(value, dict) and all(
        _is_text(name) and "=" not in name and _is_value(text) for name, text in value.items()
    )


def _is_count(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


RULES: dict[str, Callable[[object], bool]] = {
    "name": _is_text,
    "socket": _is_socket,
    "session": _is_path,
    "argv": _are_words,
    "env": _is_environment,
    "cwd": _is_path,
    "mode": lambda value: value in ("pty", "pipe"),
    "rows": lambda value: _is_count(value, 1, 65535),
    "cols": lambda value: _is_count(value, 1, 65535),
    "umask": lambda value: _is_count(value, 0, 0o777),
    "log_bytes": lambda value: _is_count(value, 1, 1 << 50),
    "ring_bytes": lambda value: _is_count(value, 1, RING_MOST),
    "tag": _is_value,
}
