"""`python -m bench [ROW…]`: every row of the table, or those."""

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from bench import results
from bench.deadline import deadline
from bench.processes import adopt_orphans, end_descendants
from bench.report import Report, measure
from bench.sections import SECTIONS, choose
from bench.table import MEMORY, PREFIX

INTERRUPTED = 130
SECTION_SECONDS = 900.0  # the longest takes two minutes, and 80,000 files or a peer five


def main(words: list[str]) -> int:
    """Exit code: 1 if a section failed. A goal that is missed is said, and is no failure."""
    there_is = "\n".join(
        f"  {' '.join(section.numbers):6} {section.name}"
        f"{f' (--{section.only_with})' if section.only_with else ''}"
        for section in SECTIONS
    )
    parser = argparse.ArgumentParser(
        "python -m bench",
        description="Measures ratios against bare tools, and prints each row when it is there.",
        epilog=f"rows and sections:\n{there_is}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "row", nargs="*", help="a number (2a; 2 is all of 2) or a section; otherwise all"
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--short", action="store_true", help="one small round of each: does it still run?"
    )
    length.add_argument("--full", action="store_true", help="also a repository of 80,000 files")
    parser.add_argument(
        "--peers",
        action="store_true",
        help="also another orchestrator, installed for it, for rows 10 to 14",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="keep what comes out in benchmarks/RESULTS.md and docs/growth.md",
    )
    given = parser.parse_args(words)
    if given.write and (given.row or given.short):
        parser.error("--write is for a whole run: no ROW and no --short beside it")
    try:
        options = [option for option in ("full", "peers") if getattr(given, option)]
        sections = choose(given.row, options)
    except LookupError as error:
        parser.error(f"no row or section {error.args[0]!r}; there are\n{there_is}")
    try:
        with _alone():
            report = measure(
                sections,
                given.short,
                sys.stdout,
                between=partial(_between, given.write),
                limit=partial(deadline, SECTION_SECONDS),
            )
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    return 1 if report.failed else 0


def _between(is_kept: bool, report: Report) -> None:
    # What a section left, also dead and not reaped, would slow down the next one.
    end_descendants()
    if is_kept:
        results.write(report)


@contextmanager
def _alone() -> Iterator[None]:
    """Nothing of the person's goes in, and nothing is left afterwards."""
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    adopt_orphans()
    for name in list(os.environ):
        if name.startswith(("BULLPEN_", "_BULLPEN", "GIT_")):
            del os.environ[name]
    scratch = tempfile.mkdtemp(prefix=PREFIX, dir="/tmp")
    os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = scratch
    os.environ.pop("XDG_CONFIG_HOME", None)
    try:
        yield
    finally:
        _leave_nothing()


def _leave_nothing() -> None:
    """Also of a section that was interrupted, whose processes wrote on while it cleaned up."""
    end_descendants()
    for place in {"/tmp", MEMORY}:
        for left in Path(place).glob(f"{PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """The first time sections end what they started. The second time everything ends at once:
    they take too long, or the first was lost in a callback that swallows exceptions."""
    signal.signal(signal.SIGINT, _end_at_once)
    signal.signal(signal.SIGTERM, _end_at_once)
    raise KeyboardInterrupt


def _end_at_once(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _leave_nothing()
    print("\ninterrupted", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
