"""Rows 1a and 1b: how long the hot verbs take with a hub running, against a bare interpreter."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import bullpen
from bench.hubs import LISTENER, hub_home, launch_listener
from bench.starts import compile_all, start
from bench.table import BARE, BULLPEN, Row, interleaved
from bullpen.client.hook_line import hook_line


def rows(short: bool) -> Iterator[Row]:
    """All in one interleaved run."""
    compile_all()
    line = hook_line(sys.executable, str(Path(bullpen.__file__).parents[1]), "amy")
    commands = {
        ("1a", "bullpen hook", 1.5): [BULLPEN, "hook"],
        ("1a", "hook, as the generated line", 1.15): line,
        ("1b", "bullpen list", 1.6): [BULLPEN, "list"],
        ("1b", "bullpen send", 1.6): [BULLPEN, "send", "amy", "hello"],
    }
    with hub_home() as (home, env):
        launch_listener(home, env, "amy", ["sh", "-c", LISTENER])
        actor = {"1a": {"BULLPEN_ACTOR": "amy"}}
        works = [
            partial(start, words, {**env, **actor.get(number, {})})
            for (number, *_), words in commands.items()
        ]
        bare, *ours = interleaved(1 if short else 60, partial(start, BARE, env), *works)
    for (number, what, goal), seconds in zip(commands, ours, strict=True):
        yield Row(number, what, seconds, bare, goal)
