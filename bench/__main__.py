"""`python -m bench`: every row of the table."""

import sys

from bench import (
    discovery,
    engine_hooks,
    events,
    holders,
    hub,
    messages,
    sandbox,
    screens,
    starts,
    storm,
    trees,
)
from bench.table import Row, show


def main() -> None:
    """Measure, print; `--full` adds the repository of 80,000 files."""
    rows: list[Row] = starts.rows(hub=hub.real_hub)
    rows += holders.rows()
    rows += screens.rows()
    for files, rounds in (
        (1_000, 9),
        (20_000, 5),
        *([(80_000, 3)] if "--full" in sys.argv else []),
    ):
        rows += trees.rows(files, rounds)
    rows += storm.rows()
    rows += events.rows()
    rows += hub.rows()
    rows += messages.rows()
    rows += engine_hooks.rows()
    rows += sandbox.rows()
    rows += discovery.rows()
    show(rows)
    missed = [row for row in rows if not row.met]
    print(f"\n{len(rows) - len(missed)} of {len(rows)} goals met")


if __name__ == "__main__":
    main()
