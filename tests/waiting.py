"""Waiting for a condition, and letting time pass where there is none."""

import threading
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for the condition; fail at the deadline. It is asked less and less often: most of
    the conditions ask a hub, which has other things to do."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(pause)
        pause = min(pause * 1.2, 0.1)


def quiet_for(seconds: float) -> None:
    """Let time pass, for measuring what happens meanwhile: there is no condition to wait for."""
    threading.Event().wait(seconds)
