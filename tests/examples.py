"""Which examples a property is tried with: the same ones in every run and for everybody.

`--explore N`: other ones in every run, N times as many as usual. That is for who wants to find
something (`scripts/flakes` does it), not for who wants to know whether a change broke something.

Loaded by `conftest`, before any test module.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--explore", type=int, metavar="N", help="other examples in every run, N times as many"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Deadlines and health checks judge how busy the machine is, and by the first few of random
    # examples: each of them fails now and then. A test that names its own puts them in place of
    # these.
    settings.register_profile(
        "bullpen",
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        derandomize=config.getoption("explore") is None,
    )
    settings.load_profile("bullpen")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    times = config.getoption("explore")
    if times is None:
        return
    for test in {getattr(item, "function", None) for item in items}:
        usual: Any = getattr(test, "_hypothesis_internal_use_settings", None)
        if usual is not None:
            test._hypothesis_internal_use_settings = settings(  # type: ignore[union-attr]
                usual, max_examples=usual.max_examples * times
            )
