"""L3: a task whose machine died, or was frozen, is done by another one: one end counts."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.fleet.queues import Queues, changed_program, made_queues
from tests.hub.pen import change_hub
from tests.hub.tasks.desk import Desk, made_desk
from tests.waiting import wait_until
from tests.worktrees.repos import git

pytestmark = pytest.mark.storm

# A minute would do as well, and take a minute.
IMPATIENT = """
import sys
if sys.argv[:1] != ["-c"]:
    from bullpen.fleet import task_server
    task_server.ACK_SECONDS = 3.0
    from bullpen.hub.fleet_tasks import incoming
    incoming.LEASE_SECONDS, incoming.RENEW_SECONDS = 8.0, 1.0
"""


@pytest.fixture
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with made_desk(tmp_path_factory.mktemp("other")) as desk:
        change_hub(desk.pen, IMPATIENT)
        yield desk


@pytest.fixture
def queues(tmp_path_factory: pytest.TempPathFactory, other: Desk) -> Iterator[Queues]:
    """h1 asks, h2 and h3 do; tim of h3 is not there yet."""
    root = tmp_path_factory.mktemp("queues")
    with made_queues(root, IMPATIENT, h3=other.pen) as made:
        yield made


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_l3_another_machine_takes_over_and_the_first_ends_nothing(
    queues: Queues, other: Desk, how: str
) -> None:
    h2 = queues.h2
    id = queues.ask_on_repo("lost")
    wait_until(lambda: queues.runs("lost") == 1)
    if how == "killed":
        h2.kill_hub()  # what runs goes on in its holder
    else:
        os.kill(h2.pid, signal.SIGSTOP)
    changed_program(other, queues.work)
    other.agent("tim", walls=False)
    wait_until(lambda: queues.runs("lost") == 2, 120)
    queues.wait(id, "working")
    if how == "killed":
        queues.start(h2)
    else:
        os.kill(h2.pid, signal.SIGCONT)
    # It learns that the task is another one's, and ends what it does.
    wait_until(lambda: bool(h2.logged("a task is no longer this machine's")))
    wait_until(lambda: queues.desk.status("tim")["state"] == "idle")
    queues.may_go()
    shown = queues.over(id)
    assert (shown["state"], shown["agent"]) == ("completed", "h3/tim"), shown
    assert queues.ends(id) == ["completed"]
    assert git(queues.repo, "log", "--format=%s", "main..lost") == "Do lost"


def test_l3_an_end_that_comes_too_late_is_refused(queues: Queues, other: Desk) -> None:
    """The first doer is done while it is frozen: its end is written after the second's."""
    h2 = queues.h2
    id = queues.ask_on_repo("late")
    wait_until(lambda: queues.runs("late") == 1)
    os.kill(h2.pid, signal.SIGSTOP)
    changed_program(other, queues.work)
    other.agent("tim", walls=False)
    wait_until(lambda: queues.runs("late") == 2, 120)
    queues.may_go()  # both end now; h2's hub does not see it yet
    assert queues.over(id)["agent"] == "h3/tim"
    os.kill(h2.pid, signal.SIGCONT)
    refused = ("a task is no longer this machine's", "what a task came to counts no longer")
    wait_until(lambda: any(h2.logged(text) for text in refused))
    assert queues.task(id)["agent"] == "h3/tim"
    assert queues.ends(id) == ["completed"]
    assert git(queues.repo, "log", "--format=%s", "main..late") == "Do late"
