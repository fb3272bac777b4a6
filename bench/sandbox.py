"""Row 9: how long a program behind walls takes to start, beside bubblewrap with next to none."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.table import Row, Skipped, interleaved, timed
from bullpen.sandboxes.base import Policy
from bullpen.sandboxes.bubblewrap import BUBBLEWRAP
from bullpen.sandboxes.limits import entries, find, sweep

BARE = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "true"]


def rows(short: bool) -> Iterator[Row]:
    """`true` through the whole policy of a task; the hub prepares and wraps before.

    Where processes are limited by a cgroup, both enter one: the kernel takes longer for that than
    for all the rest. The second row is without.
    """
    _check()
    with tempfile.TemporaryDirectory() as scratch:
        session = Path(scratch, "home", "sessions", "amy")
        policy = Policy(
            cwd=Path(scratch, "work"),
            home=Path(scratch, "home"),
            session=session,
            person=Path(scratch, "person"),
            doors=session / "api",
            is_terminal=False,
        )
        for path in (policy.cwd, policy.doors, policy.person):
            path.mkdir(parents=True)
        BUBBLEWRAP.prepare(policy)
        enter = "".join(f"echo $$ >{file}; " for file in entries(policy, find()))
        limited = BUBBLEWRAP.wrap(("true",), os.environ, policy)
        free = BUBBLEWRAP.wrap(("true",), os.environ, policy, without={"limits"})
        starts = (
            ["sh", "-c", f'{enter}exec "$@"', "sh", *BARE],
            limited.argv,
            BARE,
            free.argv,
        )
        env = dict(limited.env)
        try:
            bare, ours, bare_free, ours_free = interleaved(
                1 if short else 60, *(partial(_start, list(words), env) for words in starts)
            )
        finally:
            sweep(policy.home, [])
    yield Row("9", "start behind walls, both with a limit", ours, bare, goal=1.3)
    yield Row("9", "start behind walls, both without one", ours_free, bare_free, goal=1.3)


def _check() -> None:
    if not shutil.which("bwrap"):
        raise Skipped("bwrap is not installed")
    done = subprocess.run(BARE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skipped(f"bwrap may not be used: {done.stderr.strip()}")


def _start(words: list[str], env: dict[str, str]) -> float:
    return timed(partial(subprocess.run, words, env=env, check=True, start_new_session=True))
