"""Shows text in the person's pager: GIT_PAGER, PAGER, else less as git starts it."""

import contextlib
import os
import shlex
import subprocess
import sys

from bullpen import proc
from bullpen.cli import output


def page(text: str) -> None:
    """At a terminal through the pager, which leaves at once if all of it fits; else as it is."""
    command = _command() if sys.stdout.isatty() else ""
    if not command:
        output.write(text)
        return
    env = proc.with_absolute_path({"LESS": "FRX", "LV": "-c", **os.environ})
    argv = [proc.get_program("sh"), "-c", command]
    pager = subprocess.Popen(argv, stdin=subprocess.PIPE, env=env, cwd="/")
    with contextlib.suppress(BrokenPipeError):  # the person left before the end
        pager.communicate(text.encode(errors="backslashreplace") + b"\n")
    pager.wait()


def _command() -> str:
    """A shell line; empty: none is wanted, or there is none."""
    for name in ("GIT_PAGER", "PAGER"):
        if name in os.environ:
            chosen = os.environ[name].strip()
            return "" if chosen == "cat" else chosen
    less = proc.find_program("less")
    return shlex.quote(less) if less else ""
