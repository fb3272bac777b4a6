"""Runs `claude setup-token` in the person's terminal, and finds the token that it prints at its
end. Called by `bullpen auth claude`. The token goes to the caller and nowhere else."""

import os
import pty
import re
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Mapping, Sequence
from pathlib import Path

from bullpen.terminal.plain import Plain

TOKEN = re.compile(r"sk-ant-oat[A-Za-z0-9_-]+")
REST = re.compile(r"\s*([A-Za-z0-9_-]+)$")
MARGIN = 4  # columns that a program may leave at the end of a line that it breaks
OUTPUT_BYTES = 4 << 20
INTERRUPT = b"\x03"


def run_here(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> tuple[int, str]:
    """Its exit code, and the token; empty if it printed none. The terminal is put right after."""
    columns = shutil.get_terminal_size().columns
    before = termios.tcgetattr(0)
    pid, master = pty.fork()
    if pid == 0:
        try:
            os.chdir(cwd)
            os.execve(argv[0], list(argv), dict(env))
        finally:
            os._exit(127)
    termios.tcsetwinsize(master, termios.tcgetwinsize(0))
    try:
        tty.setraw(0)
        output = _relay(master, pid)
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        os.close(master)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), find_token(output, columns)


def _relay(master: int, pid: int) -> bytes:
    """Keys in and output out, until the program ends; what it wrote last. It (2.1.325) goes on at
    Ctrl-C: a second one ends it."""
    output, interrupts = b"", 0
    while True:
        ready, _, _ = select.select([0, master], [], [])
        if 0 in ready:
            keys = os.read(0, 65536)
            os.write(master, keys)
            interrupts += keys.count(INTERRUPT)
            if interrupts > 1:
                os.kill(pid, signal.SIGTERM)
        if master in ready:
            try:
                data = os.read(master, 65536)
            except OSError:  # Linux says EIO when the other side is closed
                data = b""
            if not data:
                return output
            output = (output + data)[-OUTPUT_BYTES:]
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def find_token(output: bytes, columns: int) -> str:
    """The last token in what a terminal of that width was given; empty if there is none. Pure."""
    plain = Plain()
    lines = (plain.feed(output) + plain.finish()).splitlines()
    token = ""
    for number, line in enumerate(lines):
        for match in TOKEN.finditer(line):
            is_broken = match.end() == len(line) and len(line) >= columns - MARGIN
            token = match[0] + (_rest(lines[number + 1 :], columns) if is_broken else "")
    return token


def _rest(lines: Sequence[str], columns: int) -> str:
    """What stands on the next lines of a word that was broken at the end of the terminal's."""
    rest = ""
    for line in lines:
        piece = REST.fullmatch(line)
        if piece is None:
            break
        rest += piece[1]
        if len(line) < columns - MARGIN:
            break
    return rest
