"""Words of the command line as a task's fields: variables, labels, budgets, places, prompts."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bullpen.errors import BullpenError
from bullpen.home.paths import absolute, person_home
from bullpen.model import duration
from bullpen.model.task import MOST_PROMPT, SESSION_ID

BUDGET = {"usd": float, "tokens": int, "minutes": int}


def prompt_of(text: str) -> str:
    """The prompt; `-` is standard input."""
    if text != "-":
        return _checked(text)
    data = sys.stdin.buffer.read(4 * MOST_PROMPT + 1)
    try:
        return _checked(data.decode())
    except UnicodeDecodeError as error:
        raise BullpenError(
            f"standard input is no UTF-8: byte {error.start + 1}", hint="iconv -t UTF-8"
        ) from error


def _checked(text: str) -> str:
    """What the hub would refuse less clearly."""
    if not text.strip():
        raise BullpenError("the prompt is empty")
    if len(text) > MOST_PROMPT:
        raise BullpenError(
            f"a prompt has at most {MOST_PROMPT >> 20} MiB",
            hint="put it into a file, and say where that is",
        )
    if "\x00" in text:
        raise BullpenError("the prompt holds a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BullpenError("the prompt is no UTF-8") from error
    return text


def seconds_of(option: str, text: str | None) -> float | None:
    """A duration as people write it."""
    try:
        return duration.parse(text).total_seconds() if text is not None else None
    except ValueError as error:
        raise BullpenError(f"{option}: {error}") from error


def time_limit_of(text: str | None) -> float | None:
    """`--timeout` of a task."""
    seconds = seconds_of("--timeout", text)
    if seconds == 0:
        raise BullpenError("--timeout: a task needs more time than none")
    return seconds


def session_of(text: str | None) -> str | None:
    """`--session`, as tasks name it."""
    if text is not None and re.fullmatch(SESSION_ID, text) is None:
        raise BullpenError(
            f"--session: {text!r} is no id of a session", hint="bullpen task show ID names it"
        )
    return text


def variables_of(words: Sequence[str], shell: Mapping[str, str]) -> dict[str, str]:
    """`NAME=VALUE`, or `NAME` for what the shell has."""
    variables = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or (not equals and name not in shell):
            raise BullpenError(
                f"--env {name or word}: "
                + ("there is no such variable here" if name else "no name"),
                hint="--env NAME=VALUE · --env NAME takes the value from this shell",
            )
        variables[name] = value if equals else shell[name]
    return variables


def labels_of(words: Sequence[str], option: str = "--label") -> dict[str, str]:
    """`NAME=VALUE` each."""
    labels = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise BullpenError(f"{option} {word}: is no NAME=VALUE")
        labels[name] = value
    return labels


def budget_of(text: str | None) -> dict[str, float] | None:
    """`usd=1,tokens=50000,minutes=10`, any of them."""
    if text is None:
        return None
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        read = BUDGET.get(name)
        try:
            number = read(value) if read else 0
        except ValueError:
            number = 0
        if read is None or not 0 < number < float("inf"):
            raise BullpenError(
                f'--budget: "{part}" is no limit', hint="--budget usd=1.50,tokens=200000,minutes=20"
            )
        limits[name] = number
    return limits


def directory_of(text: str | None, cwd: Path) -> str | None:
    """A directory as seen from here, for a hub that is elsewhere."""
    return None if text is None else os.path.realpath(absolute(text, cwd, person_home()))


def repository_of(text: str | None, cwd: Path) -> str | None:
    """A repository: a path if there is something of that name here, else an address."""
    if text is None or not text:
        return text
    is_path = text.startswith((".", "/", "~")) or (cwd / text).is_dir()
    return directory_of(text, cwd) if is_path else text
