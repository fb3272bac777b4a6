"""A home, a database and a living holder of an earlier version go on under this one."""

from collections.abc import Iterator

import pytest

from tests.hub.pen import Pen, made_pen
from tests.hub.recorded_home import lay_out, recorded_holder, shown
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SAME = (
    *("name", "run", "role", "kind", "engine", "cwd", "command", "created"),
    *("words", "running", "messages"),
)


@pytest.fixture
def old_pen() -> Iterator[Pen]:
    with made_pen() as pen:
        lay_out(pen)
        yield pen


def test_k2_a_home_and_a_holder_of_before_go_on(old_pen: Pen) -> None:
    with recorded_holder(old_pen, "amy") as holder:
        old_pen.start()
        wait_until(lambda: old_pen.agents()["dora"]["running"])
        wait_until(lambda: old_pen.state("dora") == "idle")
        words = {recorded["name"]: recorded["words"] for recorded in shown(old_pen)["agents"]}
        # A holder that says nothing for a while is not waited for.
        wait_until(lambda: old_pen.state("amy") == words["amy"])
        agents = old_pen.agents()
        for recorded in shown(old_pen)["agents"]:
            now = agents[recorded["name"]]
            assert {key: now[key] for key in SAME} == {key: recorded[key] for key in SAME}
            assert recorded["state"].items() <= now["state"].items()  # later fields were added
        assert old_pen.cli("peek", "amy").out.startswith("hello\n")
        assert "are you there?" in old_pen.cli("inbox", "bob").out

        old = shown(old_pen)["task"]
        _, task = old_pen.ask("GET", f"/agents/dora/task/{old['task_id']}")
        for run, recorded_run in zip(task.pop("runs"), old.pop("runs"), strict=True):
            assert recorded_run.items() <= run.items()
        same = [key for key in old if key in task]
        assert {key: task[key] for key in same} == {key: old[key] for key in same}
        assert "count the commas" in old_pen.cli("history").out

        done = old_pen.cli("task", "dora", "count again")
        assert (done.code, done.out) == (0, "worked\ncount again\n")
        old_pen.stop("amy")
        end = {"state": "exited", "code": None, "signal": 15, "unasked": False}
        assert old_pen.agents()["amy"]["state"] == end
        assert "X" in holder.requests


@pytest.mark.parametrize(
    ("boot", "words"), [("", "lost (its holder was killed)"), ("of-before", "ended (reboot)")]
)
def test_k2_a_holder_of_before_that_is_gone_is_lost(boot: str, words: str) -> None:
    with made_pen() as pen:
        lay_out(pen, boot)
        pen.start()
        wait_until(lambda: pen.state("amy") == words)
