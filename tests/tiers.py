"""When a test runs: `make check` (unmarked), `make test` (also `slow`), `make storm` (`storm`).

`@pytest.mark.few(3)`: of the cases of this test that are not marked `storm` by hand three, evenly
spread, run in `make test`; the others are marked `storm`.

A module that is slow as a whole is not even loaded for `make check`: that would be half its time;
one that says nothing of `slow` is not for the rest of `make test`.
"""

from collections import defaultdict
from pathlib import Path

import pytest

QUICK, SLOW = "not slow and not storm", "slow and not storm"  # as in the Makefile
ALL_SLOW = "\npytestmark = pytest.mark.slow\n"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    tier = config.option.markexpr
    if tier not in (QUICK, SLOW) or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text()
    return (ALL_SLOW in text if tier == QUICK else "slow" not in text) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("storm"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for each in cases.values():
        mark = each[0].get_closest_marker("few")
        assert mark is not None
        kept = spread(len(each), *mark.args)
        for number, item in enumerate(each):
            if number not in kept:
                item.add_marker(pytest.mark.storm)


def spread(cases: int, number: int) -> set[int]:
    """So many of the cases' numbers, the first and the last among them if there are two."""
    return {round(index * (cases - 1) / max(number - 1, 1)) for index in range(number)}
