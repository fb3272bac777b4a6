"""Starts the hub of a home when it is not there: any command may, at once, and one hub results.

A hub holds the home's lock for as long as it lives; while the lock is taken, commands wait
for the one that has it. Of those that find it free one at a time starts a hub.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bullpen import proc
from bullpen.client import wire
from bullpen.errors import BullpenError, Kind
from bullpen.paths import HUB, Home

START_SECONDS = 60.0
STATUS_SECONDS = 5.0
LOOK_AGAIN_SECONDS = 0.02


def answers(home: Home) -> bool:
    """Whether a hub serves the home now. One that is there but says nothing is an error."""
    try:
        wire.request(str(home.socket(HUB)), "GET", "/status", {}, b"", STATUS_SECONDS)
    except wire.HubSlow as error:
        raise _too_slow(home, STATUS_SECONDS) from error
    except (wire.NoHub, wire.HubGone, OSError):
        return False
    return True


def start_hub(home: Home, env: Mapping[str, str]) -> None:
    """Start it and wait until it answers; fine if somebody else does so at the same time."""
    deadline = time.monotonic() + START_SECONDS
    while not _wait(home, deadline):
        if env.get("BULLPEN_ACTOR"):
            # It would be the agent's descendant, and die with it.
            raise BullpenError(
                "the hub is down, and an agent may not start it",
                hint="outside of agents: bullpen hub start",
                kind=Kind.UNAVAILABLE,
            )
        with _turn(home, deadline):
            if _is_served(home):
                continue
            answer = _spawn(home, env, deadline)
        if answer.get("ok"):
            return
        if not answer.get("served"):
            raise BullpenError(
                str(answer.get("message") or f"the hub ended while it started{_last_words(home)}"),
                hint=str(answer.get("hint") or f"its log: {home.logs / 'hub.log'}"),
                kind=Kind(answer.get("error", Kind.UNAVAILABLE.value)),
            )


@contextlib.contextmanager
def _turn(home: Home, deadline: float) -> Iterator[None]:
    """One at a time: of ten hubs nine would be loaded only to find the home served."""
    home.sockets.mkdir(mode=0o700, exist_ok=True)
    with _opened(home.sockets) as descriptor:
        while not _locks(descriptor, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise _too_slow(home, START_SECONDS)
            time.sleep(LOOK_AGAIN_SECONDS)
        yield


def _is_served(home: Home) -> bool:
    """Whether a hub has the home's lock, though it may not answer yet."""
    with _opened(home.root) as descriptor:
        return not _locks(descriptor, fcntl.LOCK_SH)


def _locks(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _spawn(home: Home, env: Mapping[str, str], deadline: float) -> dict[str, Any]:
    reading, writing = os.pipe()
    kept = {name: value for name, value in env.items() if not name.startswith("BULLPEN_")}
    if "BULLPEN_PORT" in env:
        kept["BULLPEN_PORT"] = env["BULLPEN_PORT"]
    errors = _error_file(home)
    with os.fdopen(reading, "rb") as answer:
        try:
            _launch(home.root, {**kept, "BULLPEN_DIR": str(home.root)}, writing, errors)
        finally:
            os.close(writing)
            os.close(errors)
        if not select.select([answer], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise _too_slow(home, START_SECONDS)
        line = answer.readline()
    found: dict[str, Any] = json.loads(line) if line else {}
    return found


def _launch(root: Path, env: Mapping[str, str], answer: int, errors: int) -> None:
    subprocess.Popen(
        [sys.executable, "-m", "bullpen.hub.main", str(answer)],
        env=env,
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        pass_fds=(answer,),
        start_new_session=True,
    )


def _error_file(home: Home) -> int:
    """Where Python's own last words go, when not even the log could be opened."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        return os.open(_error_path(home), flags, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _error_path(home: Home) -> Path:
    return home.logs / "hub-error.log"


def _last_words(home: Home) -> str:
    """What a hub that ended without an answer said last."""
    try:
        lines = _error_path(home).read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f": {lines[-1][:200]}" if lines else ""


def _wait(home: Home, deadline: float) -> bool:
    """Wait while somebody has the home's lock; True when it answers, False when nobody has it."""
    while _is_served(home):
        if not os.path.lexists(home.socket(HUB)):
            ask_to_listen(home)
        with contextlib.suppress(BullpenError):  # too slow: perhaps not yet too late
            if answers(home):
                return True
        if time.monotonic() > deadline:
            raise _too_slow(home, START_SECONDS)
        time.sleep(LOOK_AGAIN_SECONDS)
    return False


def ask_to_listen(home: Home) -> None:
    """A hub whose socket somebody deleted makes a new one when it is told to. One that has
    written its file knows the signal; the file of another machine's, or of a hub that is gone,
    is about nobody here."""
    found = _hub_file(home)
    pid, began = found.get("pid"), found.get("start_time")
    is_here = found.get("host") == socket.gethostname()
    if is_here and isinstance(pid, int) and began and proc.start_time(pid) == began:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGUSR1)


def _hub_file(home: Home) -> dict[str, Any]:
    try:
        found = json.loads((home.root / "hub.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _too_slow(home: Home, seconds: float) -> BullpenError:
    pid = _hub_file(home).get("pid")
    return BullpenError(
        f"the hub (pid {pid}) did not answer within {seconds:g} s",
        hint=f"bullpen hub logs · agents do not need it: kill -9 {pid}",
        kind=Kind.UNAVAILABLE,
    )
