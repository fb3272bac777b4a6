"""How directors stand, and the lines of `bullpen list` about them."""

import pytest

from bullpen.home.supervised import Supervised
from bullpen.hub.directors import show_director
from bullpen.hub.render.directors import directors_text
from bullpen.model.component import Component, Phase
from bullpen.model.director import DirectorShown


def process(state: Phase | None, problem: str = "") -> Component:
    return Component(
        name="nightly",
        kind="director",
        url="http://127.0.0.1:9100",
        pid=7,
        version="1",
        state=state,
        problem=problem,
        start_time="1",
        registered=100.0,
    )


CRASHED = Supervised(5, "1", 0, 3, "ended with code 1", ended_at=50.0, again_at=58.0)
STARTS = Supervised(5, "1", 9, 3, "ended with code 1", ended_at=50.0)


@pytest.mark.parametrize(
    ("is_let_in", "component", "above", "state", "problem", "since"),
    [
        (False, None, None, "stopped", "", None),
        (True, None, None, "gone", "its process has ended, and nobody starts it again", None),
        (True, None, CRASHED, "restarting", "ended with code 1", 50.0),
        (True, None, STARTS, "starting", "ended with code 1", 50.0),
        (True, None, Supervised(5, "1", 9), "starting", "", None),
        (True, process("idle"), STARTS, "idle", "", 100.0),
        (True, process("error", "no token"), None, "error", "no token", 100.0),
        (True, process(None), None, "running", "", 100.0),  # a hub that has just started
    ],
)
def test_how_a_director_stands(
    is_let_in: bool,
    component: Component | None,
    above: Supervised | None,
    state: str,
    problem: str,
    since: float | None,
) -> None:
    shown = show_director("nightly", is_let_in, component, above)
    assert (shown.state, shown.problem, shown.since) == (state, problem, since)
    assert shown.restarts == (above.restarts if above is not None else 0)
    assert shown.again_at == (58.0 if above is CRASHED else None)


def text(*directors: DirectorShown, colour: bool = False, columns: int = 0) -> str:
    return directors_text(directors, 120.0, colour=colour, columns=columns)


def test_each_director_is_a_line_that_says_what_is_wrong() -> None:
    assert text() == ""
    assert text(
        show_director("nightly", True, process("idle"), None),
        show_director("shop", True, None, CRASHED.__class__(5, "1", 0, 1, "crashed", 50.0, 128.0)),
        show_director("old", True, None, None),
    ).splitlines() == [
        "Directors",
        "  nightly  idle 20s",
        "  shop     restarting in 8s  1 restart  crashed",
        "  old      gone                         its process has ended, and nobody starts it again"
        " · bullpen director start old",
    ]


def test_trouble_is_coloured_and_a_hostile_problem_is_one_line_of_text() -> None:
    hostile = process("idle", "\x1b[2J\nhub: all is well")
    shown = text(show_director("nightly", True, hostile, None), colour=True)
    assert shown.count("\n") == 2
    assert "\x1b[2J" not in shown
    assert shown.splitlines()[1].startswith("\x1b[33m")


def test_a_narrow_terminal_keeps_names_and_states() -> None:
    shown = text(show_director("nightly", True, None, CRASHED), columns=40)
    assert all(len(line) <= 40 for line in shown.splitlines())
    assert "nightly  restarting" in shown
