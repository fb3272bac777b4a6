"""A permission that a task's engine asks for outlives the hub: it stays open, the agent is shown as
blocked, and the answer reaches the engine."""

from collections.abc import Iterator

import pytest

from tests.hub.permissions.asking import ALLOW, Asking
from tests.hub.tasks.desk import Desk
from tests.waiting import wait_until


@pytest.fixture
def asking(desk: Desk) -> Iterator[Asking]:
    made = Asking(desk.pen)
    yield made
    for hook in made.hooks:
        hook.kill()


def give_slow_task(desk: Desk) -> str:
    desk.program("time.sleep(1000)")
    desk.agent("amy", walls=False)
    task = desk.give("amy", "x")
    desk.wait_begun(task)
    return task


def words_of(desk: Desk) -> str:
    return str(desk.pen.client().get("agents", "amy")["words"])


@pytest.mark.slow
def test_an_approval_of_a_task_is_open_after_a_restart_of_the_hub(
    desk: Desk, asking: Asking
) -> None:
    task = give_slow_task(desk)
    hook = asking.ask("make all")
    assert words_of(desk) == "blocked (permission: Bash)"
    desk.pen.kill_hub()
    desk.pen.start()
    desk.wait_ready("amy")
    wait_until(lambda: asking.inbox()[-1]["state"]["reachable"])
    wait_until(lambda: words_of(desk) == "blocked (permission: Bash)")
    answered = desk.cli("approve", str(asking.inbox()[-1]["id"]))
    assert answered.code == 0, answered.err
    assert hook.decision() == ALLOW
    assert words_of(desk) == "working (Bash)"
    desk.cancel(task)
    desk.over(task)
    wait_until(lambda: words_of(desk) == "idle")
