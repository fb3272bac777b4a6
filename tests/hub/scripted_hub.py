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
    with open(offset) as file:
        return real() + float(file.read())
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
        wait_until(lambda: pen.answers() or process.poll() is not None, 30)
        assert process.poll() is None
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)
