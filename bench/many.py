"""Row 15: very many agents on one hub."""

from collections.abc import Iterator
from functools import partial

from bench.hubs import hub_home, launch, run
from bench.starts import start
from bench.table import BARE, BULLPEN, Row, interleaved, timed


def rows(short: bool) -> Iterator[Row]:
    """Starting them, listing them, and how long it takes to stop them all."""
    count, rounds = (3, 1) if short else (500, 15)
    with hub_home() as (home, env):
        seconds = timed(lambda: launch(home, count, at_once=8))
        yield Row("15", f"launch of {count} agents, each (of 10 ms)", seconds / count, 0.010, 1.0)
        listing, bare = interleaved(
            rounds, partial(start, [BULLPEN, "list"], env), partial(start, BARE, env)
        )
        limit = bare * 1.6 + 0.020
        yield Row("15", f"list of {count} (of 1.6x bare + 20 ms)", listing, limit, 1.0)
        stopping = timed(lambda: run(env, "stop", "--all", "--grace", "1s"))
        yield Row("15", f"stop of all {count}, beside their launch", stopping, seconds, None)
