"""`python -m tests.rewritten`: has pytest write down what it makes of the tests, once; with
`--quick` of those that `make check` runs.

pytest rewrites the asserts of a module when it loads it, and keeps the result beside it. In a fresh
clone every process of a run would do that for all modules at the same time: a minute of CPU.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.tiers import ALL_SLOW

TESTS = Path(__file__).parent


def is_stale(module: Path) -> bool:
    """Whether nothing is kept of it, or something older."""
    kept = [
        path.stat().st_mtime
        for path in (module.parent / "__pycache__").glob(f"{module.stem}.*-pytest-*")
    ]
    return max(kept, default=0.0) < module.stat().st_mtime


def main() -> None:
    wanted = [path for path in TESTS.rglob("test_*.py") if is_stale(path)]
    if "--quick" in sys.argv:
        wanted = [path for path in wanted if ALL_SLOW not in path.read_text()]
    stale = sorted(map(str, wanted))
    words = [sys.executable, "-m", "pytest", "--collect-only", "-qq"]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    halves = [half for half in (stale[::2], stale[1::2]) if half]
    running = [
        subprocess.Popen([*words, *half], env=env, stdout=subprocess.DEVNULL) for half in halves
    ]
    for process in running:
        process.wait()  # what is wrong with a module is told by the run


if __name__ == "__main__":
    main()
