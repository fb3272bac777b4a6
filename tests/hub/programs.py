"""Plain programs that agents of a test run."""

import sys
from pathlib import Path

SLEEP = ("/bin/sleep", "1000000")
# Says what it is told in argv[1] as its exit code, at once.
END = (sys.executable, "-I", "-S", "-c", "import sys; sys.exit(int(sys.argv[1]))")
# Counts aloud, a hundred times a second or so, for ever.
COUNT = """
import sys, time
number = 0
while True:
    number += 1
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
    time.sleep(float(sys.argv[1]))
"""
# Ignores SIGTERM, and leaves a child in a session of its own that does so, too.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(1000)
    os._exit(0)
print("READY", flush=True)
time.sleep(1000)
"""


def python(code: str, *words: str | Path) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code, *map(str, words))


def counter(seconds: float = 0.01) -> tuple[str, ...]:
    return python(COUNT, str(seconds))
