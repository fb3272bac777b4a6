"""L4: a hub is killed at each step of the life of a child on another machine. It is started once,
its parent hears everything once, its work lands, and nothing of it is left."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from bullpen.fleet.mail_server import MailServer
from bullpen.fleet.parcels import ParcelConnection
from bullpen.hot import wire
from bullpen.hub.agents.remove import Remover
from bullpen.hub.fleet_children.guests import GuestChildren
from bullpen.hub.fleet_children.remote import RemoteChildren
from bullpen.hub.fleet_children.rows import ChildRows
from bullpen.hub.messages.letters import Letters
from bullpen.hub.tree.children import Children
from bullpen.hub.tree.spawn import Spawner
from tests.fleet.kin import Kin, made_kin
from tests.hub.pen import Pen
from tests.hub.pods.support import deadly_hub
from tests.hub.tree.support import ToolError
from tests.steps import after, before
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
T = TypeVar("T")

PARENT = {
    "about to write it down": before(ChildRows.put_remote),
    "wrote it down": after(ChildRows.put_remote),
    "sent the commit": after(ParcelConnection.send_parcel),
    "adds the order to the transaction": before(Letters.add),
    "added the order, and commits": after(Letters.add),
    "wrote down that it is ordered": after(ChildRows.change_asked),
    "sent the order": after(MailServer.send),
    "heard that it was started": before(RemoteChildren.take_born),
    "takes that in the transaction": before(Letters.take),
    "took that, and commits": after(Letters.take),
    "wrote down that it was started": after(RemoteChildren.take_born),
    "heard of its report": before(RemoteChildren.take_update),
    "has its commits": after(RemoteChildren._take_commits),
    "takes the report in the transaction": before(Letters.take, 2),
    "took the report, and commits": after(Letters.take, 2),
    "has its report": after(RemoteChildren.take_update),
    "has its end": after(RemoteChildren.take_update, 2),
    "merged it, and cleans up": before(RemoteChildren.merged),
    "has cleaned up": after(RemoteChildren.merged),
}
CHILD = {
    "got the order": before(GuestChildren.take_birth),
    "took the order": after(GuestChildren.take_birth),
    "fetched the commit": after(ParcelConnection.fetch_parcel),
    "about to start it": before(Spawner.take_in),
    "started it": after(Spawner.take_in),
    "answers in the transaction": before(Letters.add),
    "answered, and commits": after(Letters.add),
    "answered": after(GuestChildren._answer),
    "sent the answer": after(MailServer.send),
    "wrote its report down": after(Children._put),
    "packed its commits": after(ParcelConnection.send_parcel),
    "adds its report to the transaction": before(Letters.add, 2),
    "added its report, and commits": after(Letters.add, 2),
    "told its report": after(GuestChildren._tell),
    "sent its report": after(MailServer.send, 2),
    "told its end": after(GuestChildren._tell, 2),
    "heard that it was merged": before(GuestChildren.take_merged),
    "knows that it was merged": after(GuestChildren.take_merged),
    "about to remove it": before(Remover.remove),
    "removed it": after(Remover.remove),
}
FEW = ("wrote it down", "sent the order", "has its commits", "started it", "told its report")


def steps(names: dict[str, str]) -> list[object]:
    return [
        pytest.param(
            name, marks=() if name in FEW else pytest.mark.storm, id=name.replace(" ", "-")
        )
        for name in names
    ]


@pytest.fixture(scope="module")
def shared_kin() -> Iterator[Kin]:
    with made_kin() as made:
        yield made


@pytest.fixture
def kin(shared_kin: Kin) -> Iterator[Kin]:
    yield shared_kin
    shared_kin.end_all()


class Story:
    """A child from its start to its end, asked for by who does not know what became of a request
    when a hub dies: until it knows."""

    def __init__(self, kin: Kin) -> None:
        self.kin = kin
        self.lead = kin.lead()
        self.child = f"{self.lead}.csv"
        self.name = f"h2/{self.child}"

    def run(self) -> None:
        kin = self.kin
        answer = self._surely(lambda: kin.ask(self.lead, request="spawn"))
        assert answer["name"] == self.name
        tip = self._surely(lambda: kin.commit(self.child, "a.txt"))
        self._surely(lambda: kin.report(self.child, "done", request="report"))
        self._wait(lambda: kin.heard(self.lead) != [])
        assert kin.branch(self.child) == tip
        merged = self._surely(lambda: kin.h1.call(self.lead, "merge_child", name=self.name))
        assert merged["state"] == "landed", merged
        self._surely(lambda: kin.h2.pen.stop(self.child))
        self._wait(lambda: kin.is_cleaned_up(self.child))
        self._wait(kin.nothing_waits)
        assert kin.heard(self.lead) == [(self.name, "child_finished", "done")]
        tree = kin.h1.pen.root / "worktrees" / self.lead
        assert (tree / "a.txt").read_text() == "text\n"

    def _surely(self, work: Callable[[], T]) -> T:
        while True:
            with contextlib.suppress(wire.HubError, OSError):
                return work()
            for pen in (self.kin.h1.pen, self.kin.h2.pen):
                wait_until(pen.answers)
            self._wait(lambda: self.kin.machines.reachable("h1") == {"h1", "h2"})

    def _wait(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            with contextlib.suppress(wire.HubError, OSError):
                return condition()
            return False

        wait_until(holds, 120)


def killed_at(kin: Kin, pen: Pen, step: str) -> None:
    story = Story(kin)
    pen.kill_hub()
    with ThreadPoolExecutor(1) as pool, deadly_hub(pen, step) as dying:
        wait_until(lambda: kin.machines.reachable("h1") == {"h1", "h2"})
        running = pool.submit(story.run)
        wait_until(lambda: dying.poll() is not None or running.done(), 180)
        kin.start(pen)
        running.result(180)


@pytest.mark.parametrize("step", steps(PARENT))
@pytest.mark.storm
def test_l4_the_hub_of_the_parent_is_killed_at_a_step(kin: Kin, step: str) -> None:
    killed_at(kin, kin.h1.pen, PARENT[step])


@pytest.mark.parametrize("step", steps(CHILD))
@pytest.mark.storm
def test_l4_the_hub_of_the_child_is_killed_at_a_step(kin: Kin, step: str) -> None:
    killed_at(kin, kin.h2.pen, CHILD[step])


def test_l4_the_server_is_killed_while_a_child_is_started_and_reports(kin: Kin) -> None:
    lead = kin.lead()
    child = kin.spawn(lead)
    kin.machines.kill_server()
    tip = kin.commit(child, "a.txt")
    kin.report(child, "done")
    kin.h2.pen.stop(child)
    assert kin.heard(lead) == []
    kin.machines.start_server()
    wait_until(lambda: kin.heard(lead) != [])
    assert kin.branch(child) == tip
    wait_until(lambda: kin.machines.reachable("h1") == {"h1", "h2"})
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(kin.ask, lead, "two")
        kin.machines.kill_server()
        kin.machines.start_server()
        try:
            assert asked.result(180)["name"] == f"h2/{lead}.two"
        except ToolError:  # the server was gone before anything was sent
            assert kin.children_of(lead) == {child}
    wait_until(kin.nothing_waits)
    assert kin.heard(lead) == [(f"h2/{child}", "child_finished", "done")]
