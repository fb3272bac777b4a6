"""When an agent comes back by itself."""

from typing import Any

import pytest

from bullpen.model.restarts import MOST, WINDOW_SECONDS, add_restart, is_wanted
from bullpen.model.state import Exited, Idle, Interrupted, Lost


@pytest.mark.parametrize(
    ("end", "rules"),
    [
        (Exited(code=0), {"always"}),
        (Exited(code=1), {"always", "on-failure"}),
        (Exited(signal=9), {"always", "on-failure"}),
        (Lost(reason="x"), {"always", "on-failure"}),
        (Interrupted(reason="reboot"), {"always", "on-failure"}),
        (Interrupted(reason="terminated"), {"always", "on-failure"}),
        (Interrupted(reason="killed"), set()),
        (Idle(), set()),
    ],
)
def test_b10_which_ends_are_followed_by_a_restart(end: Any, rules: set[str]) -> None:
    assert {rule for rule in ("always", "on-failure", "never") if is_wanted(rule, end)} == rules


def test_b10_at_most_so_many_restarts_in_ten_minutes() -> None:
    times: tuple[float, ...] | None = ()
    for now in range(MOST):
        times = add_restart(times or (), float(now))
    assert times == tuple(map(float, range(MOST)))
    assert add_restart(times, 100.0) is None
    assert add_restart(times, WINDOW_SECONDS) == (1.0, 2.0, 3.0, 4.0, WINDOW_SECONDS)
    assert add_restart([1e12], 5.0) == (5.0,)  # of a clock that ran ahead
