"""Starts the process of a view or a director, and waits until it serves.

Called by `cli/supervised`. What the process writes before it serves is the error of the command
that started it.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bullpen import proc
from bullpen.component import ask
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.hot.own_python import module_command
from bullpen.text import seconds_text

START_SECONDS = 60.0
END_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 0.02


def start_component(
    home: Home,
    noun: str,
    errors_name: str,
    module: str,
    *words: str,
    find_pid: Callable[[int], int] = lambda pid: pid,
) -> int:
    """Start it in a session of its own, and wait until it serves; its pid. `noun` is what messages
    call it; `find_pid` tells who serves from who was started."""
    errors = _error_file(home, errors_name)
    process = spawn_component(home, errors_name, module, *words)
    deadline = time.monotonic() + START_SECONDS
    try:
        while not _is_ready(home, noun, find_pid(process.pid)):
            if process.poll() is not None:
                raise _start_error(noun, errors, process.returncode)
            if time.monotonic() > deadline:
                raise BullpenError(
                    f"{noun} is not ready after {seconds_text(START_SECONDS)}, and was ended",
                    hint=f"its log: {home.logs}",
                    kind=Kind.UNAVAILABLE,
                )
            time.sleep(LOOK_AGAIN_SECONDS)
        return find_pid(process.pid)
    except BaseException:  # Ctrl-C, too: who was told that it did not start has nothing that runs
        _end(process)
        raise


def spawn_component(
    home: Home, errors_name: str, module: str, *words: str
) -> "subprocess.Popen[bytes]":
    """Start it, and wait for nothing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    descriptor = os.open(_error_file(home, errors_name), flags, 0o600)
    env = {name: value for name, value in os.environ.items() if not name.startswith("BULLPEN_")}
    try:
        return subprocess.Popen(
            module_command(module, str(home.root), *words),
            env=proc.with_absolute_path({**env, "BULLPEN_DIR": str(home.root)}),
            cwd=home.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)


def _error_file(home: Home, errors_name: str) -> Path:
    return home.logs / f"{errors_name}-error.log"


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it started."""
    if process.poll() is not None:
        return
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
        return
    os.killpg(process.pid, signal.SIGKILL)  # its session is its own
    process.wait()


def _is_ready(home: Home, noun: str, pid: int) -> bool:
    try:
        state = ask.get_status(home.component_socket(pid)).state
    except ask.NoAnswerError:
        return False
    if state == "error":
        raise BullpenError(f"{noun} failed", hint=f"its log: {home.logs}", kind=Kind.COMMAND_FAILED)
    return state in ("idle", "working")


def _start_error(noun: str, errors: Path, code: int) -> BullpenError:
    """What the process wrote, as an error of ours."""
    text = errors.read_text(errors="replace")
    message, _, hint = text.strip().partition("\nhint:  ")
    words = message.removeprefix("error: ").splitlines()
    last = words[-1] if words else f"it ended with code {code}"
    is_ours = text.startswith("error: ")
    return BullpenError(
        "\n".join(words) if is_ours else f"{noun} ended: {last[:300]}",
        hint=hint.strip() if is_ours else f"all that it wrote: {errors}",
        kind=Kind.COMMAND_FAILED,
    )
