"""`bullpen components`: healthy, late or unreachable, with the state that was last known."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.at_terminal import AtTerminal
from tests.component.sample_process import Sample, running
from tests.hub.pen import Pen, made_pen
from tests.ports import reserved_port
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

HEALTHY = {"hub": ("idle", "healthy"), "night": ("idle", "healthy")}


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        made.start()
        yield made


@pytest.fixture
def night(pen: Pen) -> Iterator[Sample]:
    """A director that has told the hub of itself."""
    with reserved_port() as port, running(pen.home, "night", port) as sample:
        wait_until(lambda: [one["state"] for one in pen.ask("GET", "/components")[1]] == ["idle"])
        yield sample


def looked(pen: Pen) -> dict[str, tuple[Any, str]]:
    components = pen.cli("components", "--json").json["components"]
    return {one["name"]: (one["state"], one["health"]) for one in components}


def test_f2_what_does_not_answer_is_late_and_what_has_died_unreachable(
    pen: Pen, night: Sample
) -> None:
    assert looked(pen) == HEALTHY
    os.kill(night.process.pid, signal.SIGSTOP)
    assert looked(pen) == {**HEALTHY, "night": ("idle", "late")}
    os.kill(night.process.pid, signal.SIGCONT)
    wait_until(night.answers)
    assert looked(pen) == HEALTHY
    night.kill()
    gone = {**HEALTHY, "night": ("idle", "unreachable")}
    assert looked(pen) == gone
    assert looked(pen) == gone  # the first look has told the hub, too
    line = next(row for row in pen.cli("components").out.splitlines() if "night" in row)
    assert line.split()[:5] == ["director", "night", "was", "idle", "unreachable"]


def test_f2_who_answers_at_the_port_of_a_dead_one_does_not_bring_it_back(
    pen: Pen, night: Sample
) -> None:
    night.kill()
    assert looked(pen)["night"] == ("idle", "unreachable")
    with made_pen() as foreign:
        foreign.start()  # it makes the token that a component needs
        with running(foreign.home, "night", night.port):
            assert looked(pen)["night"] == ("idle", "unreachable")


def test_f2_one_that_comes_back_is_healthy(pen: Pen, night: Sample) -> None:
    night.kill()
    assert looked(pen)["night"] == ("idle", "unreachable")
    with reserved_port() as port, running(pen.home, "night", port):
        wait_until(lambda: looked(pen)["night"] == ("idle", "healthy"))


def test_f2_without_a_hub_the_others_are_shown(pen: Pen, night: Sample) -> None:
    assert looked(pen) == HEALTHY
    pen.kill_hub()
    assert looked(pen) == {"hub": (None, "unreachable"), "night": ("idle", "healthy")}


def test_f2_a_watch_shows_it_while_it_happens(pen: Pen, night: Sample) -> None:
    env = {**pen.env, "BULLPEN_DIR": str(pen.root), "TERM": "xterm"}
    watch = AtTerminal("components", "-w", **env)
    watch.expect("healthy")
    os.kill(night.process.pid, signal.SIGSTOP)
    watch.expect("was idle")
    watch.expect("late")
    watch.expect("unreachable")
    os.kill(night.process.pid, signal.SIGCONT)
    watch.text = ""
    watch.expect("healthy     ")
    os.kill(watch.pid, signal.SIGINT)
    assert watch.end() == 0


def test_f2_a_watch_is_for_terminals(pen: Pen) -> None:
    assert pen.cli("components", "-w").code != 0
    refused = pen.cli("components", "-w", "--json")
    assert "--json prints once" in refused.err
