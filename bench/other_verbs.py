"""Row 1c: how long the other verbs take, against a bare interpreter."""

import os
import tempfile
from collections.abc import Iterator
from functools import partial

from bench.hubs import run
from bench.starts import compile_all, start
from bench.table import BARE, BULLPEN, Row, interleaved

VERBS = (["version"], ["role", "list"])


def rows(short: bool) -> Iterator[Row]:
    """Two that need no hub: one that does next to nothing, one that reads the home."""
    compile_all()
    with tempfile.TemporaryDirectory() as scratch:
        env = {**os.environ, "HOME": scratch}
        run(env, "init", f"{scratch}/home", cwd=scratch)
        env["BULLPEN_DIR"] = f"{scratch}/home"
        commands = [BARE, *([BULLPEN, *verb] for verb in VERBS)]
        works = [partial(start, words, env) for words in commands]
        bare, *ours = interleaved(1 if short else 15, *works)
    for verb, seconds in zip(VERBS, ours, strict=True):
        yield Row("1c", f"bullpen {' '.join(verb)}", seconds, bare, goal=12)
