"""Rows 1a, 1b and 1d: how long the hot verbs take with a hub running, beside a bare interpreter."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import bullpen
from bench.hubs import LISTENER, launch_listener, run
from bench.starts import compile_all, start
from bench.table import BARE, BULLPEN, Row, interleaved
from bench.tools import grove
from bullpen.hot.hook_line import hook_line


def rows(short: bool) -> Iterator[Row]:
    """All in one interleaved run."""
    compile_all()
    line = hook_line(sys.executable, str(Path(bullpen.__file__).parents[1]), "amy")
    commands = {
        ("1a", "bullpen hook", 1.5): [BULLPEN, "hook"],
        ("1a", "hook, as the generated line", 1.15): line,
        ("1b", "bullpen list", 1.6): [BULLPEN, "list"],
        ("1b", "bullpen send", 1.6): [BULLPEN, "send", "amy", "hello"],
        ("1d", "bullpen approvals", 2.0): [BULLPEN, "approvals"],
        ("1d", "bullpen explain", 2.0): [BULLPEN, "explain", "amy"],
        ("1d", "bullpen usage", 2.0): [BULLPEN, "usage"],
        ("1d", "bullpen tasks", 2.0): [BULLPEN, "tasks"],
        ("1d", "bullpen history", 2.0): [BULLPEN, "history"],
        ("1d", "bullpen peek", 2.0): [BULLPEN, "peek", "amy"],
        ("1d", "bullpen tree", 2.0): [BULLPEN, "tree"],
    }
    with grove(files=20) as (home, env, repo):
        launch_listener(home, env, "amy", ["sh", "-c", LISTENER])
        actor = {"1a": {"BULLPEN_ACTOR": "amy"}}
        works = [
            partial(start, words, {**env, **actor.get(number, {})})
            for (number, *_), words in commands.items()
        ]
        bare, *ours = interleaved(1 if short else 60, partial(start, BARE, env), *works)
        for (number, what, goal), seconds in zip(commands, ours, strict=True):
            yield Row(number, what, seconds, bare, goal)
        run(env, "worktree", "create", "bob", cwd=str(repo))
        words = [BULLPEN, "worktree", "list", "--repo", str(repo)]
        bare, ours_too = interleaved(
            1 if short else 15, partial(start, BARE, env), partial(start, words, env)
        )
        yield Row("1d", "bullpen worktree list", ours_too, bare, 2.0)
