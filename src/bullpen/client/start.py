"""Starts the hub of a home when it is not there: any command may, at once, and one hub results.

The hub takes the home's lock first of all; a second one that was started meanwhile finds it
taken and leaves, and both commands wait for the one that serves.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from bullpen.client import wire
from bullpen.errors import BullpenError, Kind
from bullpen.paths import HUB, Home

START_SECONDS = 60.0
LOOK_AGAIN_SECONDS = 0.02


def answers(home: Home) -> bool:
    """Whether a hub serves the home now."""
    try:
        wire.request(str(home.socket(HUB)), "GET", "/status", {}, b"", 5.0)
    except (wire.NoHub, wire.HubGone, OSError):
        return False
    return True


def start_hub(home: Home, env: Mapping[str, str]) -> None:
    """Start it and wait until it answers; fine if somebody else does so at the same time."""
    if env.get("BULLPEN_ACTOR"):
        # It would be the agent's descendant, and die with it.
        raise BullpenError(
            "the hub is down, and an agent may not start it",
            hint="outside of agents: bullpen hub start",
            kind=Kind.UNAVAILABLE,
        )
    deadline = time.monotonic() + START_SECONDS
    answer = _spawn(home, env, deadline)
    if answer.get("served"):
        _wait(home, deadline)
    elif not answer.get("ok"):
        raise BullpenError(
            str(answer.get("message") or "the hub ended while it started"),
            hint=str(answer.get("hint") or f"its log: {home.logs / 'hub.log'}"),
            kind=Kind(answer.get("error", Kind.UNAVAILABLE.value)),
        )


def _spawn(home: Home, env: Mapping[str, str], deadline: float) -> dict[str, Any]:
    reading, writing = os.pipe()
    kept = {name: value for name, value in env.items() if not name.startswith("BULLPEN_")}
    if "BULLPEN_PORT" in env:
        kept["BULLPEN_PORT"] = env["BULLPEN_PORT"]
    with os.fdopen(reading, "rb") as answer:
        try:
            subprocess.Popen(
                [sys.executable, "-m", "bullpen.hub.main", str(writing)],
                env={**kept, "BULLPEN_DIR": str(home.root)},
                cwd=home.root,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=_error_file(home),
                pass_fds=(writing,),
                start_new_session=True,
            )
        finally:
            os.close(writing)
        if not select.select([answer], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise _too_slow()
        line = answer.readline()
    found: dict[str, Any] = json.loads(line) if line else {}
    return found


def _error_file(home: Home) -> int:
    """Where Python's own last words go, when not even the log could be opened."""
    try:
        path = home.logs / "hub-error.log"
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError:
        return subprocess.DEVNULL


def _wait(home: Home, deadline: float) -> None:
    while not answers(home):
        if time.monotonic() > deadline:
            raise _too_slow()
        time.sleep(LOOK_AGAIN_SECONDS)


def _too_slow() -> BullpenError:
    return BullpenError(
        f"the hub did not answer within {START_SECONDS:g} s",
        hint="bullpen hub logs",
        kind=Kind.UNAVAILABLE,
    )
