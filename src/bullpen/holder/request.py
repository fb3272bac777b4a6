"""What a holder is asked to hold: checked once, then trusted."""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any


class StartError(Exception):
    """Why a holder could not be started: a kind of the protocol, and words."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Request:
    """The fields of `hold`."""

    name: str
    socket: str
    session: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    mode: str = "pty"
    rows: int = 24
    cols: int = 80
    umask: int = 0o022
    log_bytes: int = 64 << 20
    ring_bytes: int = 256 << 10
    tag: str = ""

    @property
    def is_pty(self) -> bool:
        return self.mode == "pty"


def parse_request(given: dict[str, Any]) -> Request:
    """The request, every field of its type; StartError names those that are not."""
    known = {field.name: given[field.name] for field in fields(Request) if field.name in given}
    wrong = [
        name for name, is_right in RULES.items() if name in known and not is_right(known[name])
    ]
    wrong += [
        name for name in ("name", "socket", "session", "argv", "env", "cwd") if name not in known
    ]
    if wrong:
        raise StartError("invalid", f"missing or wrong: {', '.join(wrong)}")
    return Request(**known)


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


RULES: dict[str, Callable[[Any], bool]] = {
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
