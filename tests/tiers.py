"""Which of many cases run in `make test`; the rest run in `make storm`."""

from collections.abc import Iterable
from typing import Any

import pytest


def few(values: Iterable[Any], number: int) -> list[Any]:
    """`number` of the values, evenly spread, as they are; the others marked `storm`."""
    cases = list(values)
    kept = {round(index * (len(cases) - 1) / max(number - 1, 1)) for index in range(number)}
    return [case if at in kept else storm(case) for at, case in enumerate(cases)]


def storm(case: Any) -> Any:
    """The case of a parametrised test, for `make storm` only."""
    if hasattr(case, "marks"):  # a pytest.param
        return pytest.param(*case.values, id=case.id, marks=(*case.marks, pytest.mark.storm))
    return pytest.param(case, marks=pytest.mark.storm)
