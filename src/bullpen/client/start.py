"""Starts the hub of a home when it is not there: any command may, at once, and one hub results.

A hub holds the home's lock for as long as it lives; while the lock is taken, commands wait
for the one that has it. Of those that find it free one at a time starts a hub.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bullpen import proc
from bullpen.client.status import get_status
from bullpen.errors import BullpenError, Kind
from bullpen.home.hub_file import read_hub_file
from bullpen.home.paths import HUB, Home
from bullpen.hot import wire
from bullpen.hot.own_python import module_command
from bullpen.text import seconds_text

START_SECONDS = 60.0
BOOT_SECONDS = 300.0  # a machine that boots is busy
STATUS_SECONDS = 5.0
LOOK_AGAIN_SECONDS = 0.02
PASSED_ON = re.compile(r"BULLPEN_(PORT|[A-Z0-9]+_BIN)")


@dataclasses.dataclass(frozen=True)
class StartAnswer:
    """The line that a new hub writes when it serves or cannot: `hub/main.py` has the other side.
    `served`: another hub has the home. Without a line it ended before it could say anything."""

    ok: bool = False
    served: bool = False
    message: str = ""
    hint: str = ""
    error: str = Kind.UNAVAILABLE.value

    @classmethod
    def parse(cls, line: bytes) -> "StartAnswer":
        sent = json.loads(line) if line else {}
        names = [each.name for each in dataclasses.fields(cls)]
        return cls(**{name: sent[name] for name in names if name in sent})


def answers(home: Home) -> bool:
    """Whether a hub serves the home now. One that is there but says nothing is an error."""
    try:
        call = get_status()
        wire.request(str(home.socket(HUB)), call.method, call.path, {}, b"", STATUS_SECONDS)
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
        if answer.ok:
            return
        if not answer.served:
            raise BullpenError(
                answer.message or f"the hub ended while it started{_last_words(home)}",
                hint=answer.hint or f"its log: {home.logs / 'hub.log'}",
                kind=Kind(answer.error),
            )


def wait_for_hub(home: Home, seconds: float = BOOT_SECONDS) -> None:
    """Until a hub answers that somebody else starts."""
    deadline = time.monotonic() + seconds
    while not _wait(home, deadline):
        if time.monotonic() > deadline:
            raise BullpenError(
                f"no hub serves {home.root} after {seconds_text(seconds)}",
                hint="bullpen hub start",
                kind=Kind.UNAVAILABLE,
            )
        time.sleep(LOOK_AGAIN_SECONDS)


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


def _spawn(home: Home, env: Mapping[str, str], deadline: float) -> StartAnswer:
    reading, writing = os.pipe()
    errors = _error_file(home)
    with os.fdopen(reading, "rb") as answer:
        try:
            _launch(home.root, hub_environment(env, home.root), writing, errors)
        finally:
            os.close(writing)
            os.close(errors)
        if not select.select([answer], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise _too_slow(home, START_SECONDS)
        line = answer.readline()
    return StartAnswer.parse(line)


def hub_environment(env: Mapping[str, str], root: Path) -> dict[str, str]:
    """What a hub gets of the shell that starts it: of Bullpen's own variables its port, and where
    the engines' programs are."""
    kept = {
        name: value
        for name, value in env.items()
        if not name.startswith("BULLPEN_") or PASSED_ON.fullmatch(name)
    }
    return {**kept, "BULLPEN_DIR": str(root)}


def _launch(root: Path, env: Mapping[str, str], answer: int, errors: int) -> None:
    subprocess.Popen(
        module_command("bullpen.hub.main", str(answer)),
        env=proc.with_absolute_path(env),
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
    hub = read_hub_file(home)
    if hub.is_of_this_machine and hub.is_alive:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(hub.pid, signal.SIGUSR1)


def _too_slow(home: Home, seconds: float) -> BullpenError:
    pid = read_hub_file(home).pid or "unknown"
    return BullpenError(
        f"the hub (pid {pid}) did not answer within {seconds_text(seconds)}",
        hint=f"bullpen hub logs · agents do not need it: kill -9 {pid}",
        kind=Kind.UNAVAILABLE,
    )
