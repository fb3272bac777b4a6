"""Programs that holders of a test run."""

import sys
from pathlib import Path


def python(code: str, *words: str | Path) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, *map(str, words)]


def shell(code: str, *words: str | Path) -> list[str]:
    return ["/bin/bash", "--norc", "-c", code, "bash", *map(str, words)]


RAW = "import os, signal, sys, termios, tty; tty.setraw(0);"
# Says READY, then says in hexadecimal what it is given.
HEXER = python(
    RAW
    + """
os.write(1, b"READY ")
while piece := os.read(0, 65536):
    os.write(1, piece.hex().encode())
"""
)
# Tells its size at the start and whenever that changes, and never an older one after a newer one:
# a handler that interrupts another would let it.
SIZER = python(
    RAW
    + """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
def tell():
    size = os.get_terminal_size(1)
    os.write(1, b"<%d %d>" % (size.lines, size.columns))
tell()
os.write(1, b"READY")
while signal.sigwait({signal.SIGWINCH}):
    tell()
"""
)
# Says READY. At Ctrl-Z it gives the terminal back and sleeps until it is told to go on, as many
# full-screen programs do, and then says BACK.
SLEEPER = python(
    """
import os, signal, termios, tty
before = termios.tcgetattr(0)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
tty.setraw(0)
os.write(1, b"READY")
while key := os.read(0, 100):
    if key in (b"\\x1a", b"\\x1b[122;5u"):
        termios.tcsetattr(0, termios.TCSANOW, before)
        os.kill(0, signal.SIGTSTP)
        signal.sigwait({signal.SIGCONT})
        tty.setraw(0)
        os.write(1, b"BACK")
"""
)
# Waits for a byte of input, then writes the file to its terminal as it is, and ends.
PRINT_FILE = (
    RAW
    + """
os.write(1, b"READY")
os.read(0, 1)
with open(sys.argv[1], "rb") as file:
    while piece := file.read(50_000):
        done = 0
        while done < len(piece):
            done += os.write(1, piece[done:])
termios.tcdrain(1)
"""
)
# Copies a FIFO to its terminal, piece by piece, until that is closed.
FED = (
    RAW
    + """
feed = os.open(sys.argv[1], os.O_RDONLY)
while piece := os.read(feed, 65536):
    done = 0
    while done < len(piece):
        done += os.write(1, piece[done:])
"""
)
