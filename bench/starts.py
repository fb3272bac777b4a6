"""Row 1c: how long a command takes to start, against a bare interpreter."""

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from bench.table import Row, interleaved, timed

BARE = [os.path.realpath(sys.executable), "-S", "-E", "-c", "pass"]
BULLPEN = str(Path(sys.executable).with_name("bullpen"))


def rows(rounds: int = 15) -> list[Row]:
    """`bullpen version` and `bullpen role list` in a fresh home."""
    with tempfile.TemporaryDirectory(prefix="bullpen-bench-") as scratch:
        home = str(Path(scratch, "home"))
        env = {**os.environ, "BULLPEN_DIR": home}
        subprocess.run([BULLPEN, "init", home], check=True, stdout=subprocess.DEVNULL)

        def start(words: list[str]) -> float:
            return timed(
                partial(subprocess.run, words, env=env, check=True, stdout=subprocess.DEVNULL)
            )

        verbs = [["version"], ["role", "list"]]
        commands = [BARE, *([BULLPEN, *verb] for verb in verbs)]
        bare, *ours = interleaved(rounds, *(partial(start, words) for words in commands))
    return [
        Row("1c", f"bullpen {' '.join(verb)}", time, bare, goal=12)
        for verb, time in zip(verbs, ours, strict=True)
    ]
