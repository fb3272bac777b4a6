"""A hub that runs a script which tampers with it first."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from tests.hub.pen import Pen
from tests.waiting import wait_until

CLOCK = """
import sys, time
real, offset = time.time, sys.argv[2]
def shifted():
    while True:
        with open(offset) as file:
            text = file.read()
        if text:  # it is empty for a moment when it is written
            return real() + float(text)
time.time = shifted
sys.argv = ["hub"]
import bullpen.hub.main
bullpen.hub.main.main()
"""


@contextlib.contextmanager
def scripted_hub(pen: Pen, code: str, *words: str, **env: str) -> Iterator[int]:
    """A hub that was tampered with, serving."""
    script = pen.root / "tampered.py"
    script.write_text(code)
    given = {**pen.env, "BULLPEN_DIR": str(pen.root), "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, str(script), "hub-script", *words],
        env={**given, **env},
        cwd="/",
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: pen.answers() or process.poll() is not None)
        assert process.poll() is None
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)
