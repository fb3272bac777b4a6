"""A program in place of Claude Code that keeps a journal of its runs, and reads such journals.

Its prompt says what it does, in the last `[[…]]` of it:

    [[count NAME SECONDS]]    be at work for so long, then say "done NAME"
    [[count NAME hold]]       until `Journal.release(NAME)`
    [[count NAME talk]]       the same, and say "NAME 1", "NAME 2", … meanwhile

While it is at work it has two locks, one of its name and one of its agent: files that it makes (so
that two at once are seen), and on which it has a flock (so that one whose program was killed is not
taken for a living one, not even from inside a sandbox).

Standard library only; the program itself is run without site packages.
"""

import contextlib
import fcntl
import json
import os
import re
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VERSION = "2.1.325 (Claude Code)"
LONGEST_SECONDS = 120.0
LOOK_SECONDS = 0.01
USAGE = {"input_tokens": 10, "output_tokens": 1}
PROMPT = re.compile(r"\[\[count (\S+) (\S+)\]\]")


@dataclass(frozen=True)
class Line:
    """start, end, ended (by a signal), stale (a killed one's lock), overlap: what must not be."""

    what: str
    name: str
    agent: str
    at: float


class Journal:
    """What the runs of a test wrote."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    def program(self, path: Path) -> Path:
        """A program that writes here. It says its version without starting Python: a hub asks
        every agent's for it whenever it starts. Not while there is a file `starting`."""
        words = (sys.executable, "-I", "-S", __file__, str(self.directory))
        starting = shlex.quote(str(self.directory / "starting"))
        path.write_text(
            f'#!/bin/sh\nif [ "$1" = --version ]; then\n'
            f"  while [ -e {starting} ]; do sleep 0.02; done\n"
            f'  echo "{VERSION}"; exit\nfi\n'
            f'exec {" ".join(map(shlex.quote, words))} "$@"\n'
        )
        path.chmod(0o755)
        return path

    def lines(self, *what: str) -> list[Line]:
        try:
            text = (self.directory / "journal").read_text()
        except FileNotFoundError:
            return []
        found = [line.split(" ") for line in text.splitlines()]
        return [
            Line(kind, name, agent, float(at))
            for kind, name, agent, at in found
            if not what or kind in what
        ]

    def counted(self, what: str) -> Counter[str]:
        """How often that happened, by name."""
        return Counter(line.name for line in self.lines(what))

    def of(self, name: str) -> list[str]:
        """What happened to that one, in order."""
        return [line.what for line in self.lines() if line.name == name]

    def release(self, name: str) -> None:
        (self.directory / f"{name}.go").touch()

    def overlapping(self) -> list[tuple[Line, Line]]:
        """Pairs of runs that were at work at once, of one name or of one agent; by their times."""
        found = []
        for key in ("name", "agent"):
            last: dict[str, Line] = {}
            for line in self.lines("start", "end", "ended", "stale"):
                which = getattr(line, key)
                if line.what != "start":
                    last.pop(which, None)
                elif which in last:
                    found.append((last[which], line))
                else:
                    last[which] = line
        return found


# ── the program ──────────────────────────────────────────────────────────────


class Keeper:
    """Writes the journal."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.name = name
        self.agent = os.environ.get("BULLPEN_ACTOR", "nobody")

    def note(self, what: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(self.directory / "journal", flags, 0o600)
        os.write(descriptor, f"{what} {self.name} {self.agent} {time.time()}\n".encode())
        os.close(descriptor)

    @contextlib.contextmanager
    def lock(self, which: str) -> Iterator[None]:
        path = self.directory / f"{which}.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            is_new = True
        except FileExistsError:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            is_new = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.note("overlap")
        else:
            if not is_new:
                self.note("stale")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(descriptor)


def main() -> int:
    directory, words = Path(sys.argv[1]), sys.argv[2:]
    text = json.loads(sys.stdin.readline())["message"]["content"]
    name, how_long = PROMPT.findall(text)[-1]
    conversation = _after(words, "--resume") or _after(words, "--session-id")
    keeper = Keeper(directory, name)

    def leave(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(143)

    signal.signal(signal.SIGTERM, leave)
    try:
        with keeper.lock(f"task-{name}"), keeper.lock(f"agent-{keeper.agent}"):
            keeper.note("start")
            _say({"type": "system", "subtype": "init", "session_id": conversation})
            _speak("m0", f"at {name}")
            _work(directory, name, how_long)
            keeper.note("end")
    except SystemExit as end:
        keeper.note("ended")
        return int(str(end.code))
    line = {"type": "result", "subtype": "success", "is_error": False, "session_id": conversation}
    _say({**line, "result": f"done {name}", "total_cost_usd": 0.001, "usage": USAGE})
    return 0


def _work(directory: Path, name: str, how_long: str) -> None:
    held = how_long in ("hold", "talk")
    until = time.monotonic() + (LONGEST_SECONDS if held else float(how_long))
    number = 0
    while time.monotonic() < until and not (held and (directory / f"{name}.go").exists()):
        if how_long == "talk":
            number += 1
            _speak(f"m{number}", f"{name} {number}")
        time.sleep(LOOK_SECONDS if held else max(0.0, until - time.monotonic()))


def _speak(id: str, text: str) -> None:
    block = {"type": "text", "text": text}
    _say({"type": "assistant", "message": {"id": id, "content": [block], "usage": USAGE}})


def _after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1] if option in words else ""


def _say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
