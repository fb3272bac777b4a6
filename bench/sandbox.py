"""Row 9: how long a program behind walls takes to start, beside bubblewrap with next to none."""

import os
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from bench.table import Row, interleaved, timed
from bullpen.sandboxes.base import Policy
from bullpen.sandboxes.bubblewrap import BUBBLEWRAP
from bullpen.sandboxes.limits import entries, find, sweep

BARE = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "true"]


def rows(rounds: int = 60) -> list[Row]:
    """`true` through the whole policy of a task; the hub prepares and wraps before.

    Where processes are limited by a cgroup, both enter one: the kernel takes longer for that than
    for all the rest. The second row is without.
    """
    with tempfile.TemporaryDirectory(prefix="bullpen-bench-", dir="/tmp") as scratch:
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
        bare, ours, bare_free, ours_free = interleaved(
            rounds, *(partial(_start, list(words), env) for words in starts)
        )
        sweep(policy.home, [])
    return [
        Row("9", "start behind walls, both with a limit", ours, bare, goal=1.3),
        Row("9", "start behind walls, both without one", ours_free, bare_free, goal=1.3),
    ]


def _start(words: list[str], env: dict[str, str]) -> float:
    return timed(partial(subprocess.run, words, env=env, check=True, start_new_session=True))
