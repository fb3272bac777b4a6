"""L3: what a machine does with tasks that it takes, step by step, against a server in memory."""

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.fleet.credential import issue
from bullpen.fleet.direct_get import Entry
from bullpen.fleet.link import cancel_all
from bullpen.fleet.nkeys import make_seed
from bullpen.fleet.subjects import queued, task_key
from bullpen.fleet.task_records import Result, Signed, Standing, TaskRecord, name_need
from bullpen.fleet.task_server import LostError
from bullpen.hub.fleet_tasks.clones import name_clone, name_repository
from bullpen.hub.fleet_tasks.incoming import IncomingTasks, Work
from bullpen.hub.fleet_tasks.leases import Lease, LeaseRows
from bullpen.hub.store.store import Store
from bullpen.model.agent import Agent
from bullpen.model.task import Failed, Wish
from tests.fleet.links import until, until_true

AUTHORITY = make_seed()
STRANGER = Signed(issue(make_seed(), "h1", make_seed()))
H1, H2 = (Signed(issue(AUTHORITY, host, make_seed())) for host in ("h1", "h2"))


class MemoryServer:
    """Keeps how tasks stand; its queue is empty."""

    host = "h2"

    def __init__(self, *needs: str) -> None:
        self.needs = list(needs)
        self.pulled: list[str] = []
        self.entries: dict[str, Entry] = {}

    async def list_needs(self) -> list[str]:
        return self.needs

    async def pull(self, need: str, seconds: float) -> None:
        self.pulled.append(need)
        await asyncio.sleep(seconds)

    async def read(self, asker: str, id: str) -> Entry | None:
        return self.entries.get(id)

    async def put(self, asker: str, id: str, data: bytes, revision: int) -> int:
        now = self.entries.get(id)
        if (now.revision if now else 0) != revision:
            raise LostError
        self.entries[id] = Entry(data, revision + 1)
        return revision + 1


class SlowServer(MemoryServer):
    """Writes down what it is told when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.may = asyncio.Event(), asyncio.Event()

    async def put(self, asker: str, id: str, data: bytes, revision: int) -> int:
        self.is_asked.set()
        await self.may.wait()
        return await super().put(asker, id, data, revision)


class FreeAgents:
    """Nobody of them has a task."""

    def __init__(self, *agents: Agent) -> None:
        self.agents = agents

    def list_free(self) -> dict[str, Agent]:
        return {agent.name: agent for agent in self.agents}


class NothingDone(FreeAgents):
    """Fails whatever it is asked to do."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled: list[Lease] = []

    async def do(self, lease: Lease, asked: TaskRecord) -> Result:
        raise RuntimeError("broken")

    async def cancel(self, lease: Lease) -> None:
        self.cancelled.append(lease)


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[LeaseRows]:
    store = Store.open(tmp_path / "state.db")
    try:
        yield LeaseRows(store)
    finally:
        store.close()


NEEDS = name_need("", {}, sandboxed=True), name_need("", {})


@pytest.mark.parametrize(("is_sandboxed", "pulled"), [(False, NEEDS[1:]), (True, NEEDS)])
def test_l3_a_task_that_needs_a_sandbox_is_pulled_only_for_an_agent_in_one(
    rows: LeaseRows, is_sandboxed: bool, pulled: tuple[str, ...]
) -> None:
    tim = Agent(name="tim", run="1", cwd="/", created="", is_sandboxed=is_sandboxed)
    server = MemoryServer(*NEEDS)

    async def act() -> None:
        taken = IncomingTasks(rows, FreeAgents(tim), {}, server, H2)
        running = asyncio.create_task(taken.run())
        await until(lambda: NEEDS[1] in server.pulled)
        await cancel_all(running)

    asyncio.run(act())
    assert server.pulled == list(pulled)


SUBJECT, KEY = queued("h1", NEEDS[1], "t-1"), task_key("h1", "t-1")
ASKED = TaskRecord(at=1.0, wish=Wish(prompt="tidy up"))


def leased(server: MemoryServer, asked: bytes, epoch: int = 1) -> Lease:
    """One that h2 has at the server."""
    standing = Standing(kind="leased", epoch=epoch, by="h2", agent="tim")
    server.entries["t-1"] = Entry(H2.write(KEY, standing), 1)
    data = base64.b64encode(asked).decode()
    return Lease(asker="h1", id="t-1", epoch=epoch, agent="tim", subject=SUBJECT, asked=data)


@pytest.mark.parametrize(
    ("asker", "why"),
    [(STRANGER, "the fleet has given no such key to h1"), (H1, "RuntimeError('broken')")],
)
def test_l3_whatever_goes_wrong_with_a_task_is_its_end_and_no_hub_begins_it_again(
    rows: LeaseRows, asker: Signed, why: str
) -> None:
    server, local = MemoryServer(), NothingDone()

    async def act() -> None:
        lease = leased(server, asker.write(SUBJECT, ASKED))
        await rows.put(lease)
        running = asyncio.create_task(IncomingTasks(rows, local, {}, server, H2).run())
        await until_true(lambda: is_empty(rows))
        await cancel_all(running)
        assert local.cancelled == [lease]

    asyncio.run(act())
    ended = H1.read_standing(KEY, server.entries["t-1"].data or b"")
    assert ended.result is not None and isinstance(ended.result.status, Failed)
    assert why in ended.result.status.error.message


async def is_empty(rows: LeaseRows) -> bool:
    return await rows.list() == []


def test_l3_the_end_of_one_lease_leaves_the_next_one_of_the_same_task(rows: LeaseRows) -> None:
    async def act() -> None:
        server = MemoryServer()
        first, second = (leased(server, b"asked", epoch) for epoch in (1, 2))
        await rows.put(first)
        await rows.put(second)
        await rows.drop(first)
        assert await rows.list() == [second]
        await rows.drop(second)
        assert await rows.list() == []

    asyncio.run(act())


def test_l3_a_task_is_not_taken_anew_before_its_end_is_recorded(rows: LeaseRows) -> None:
    async def act() -> None:
        server = SlowServer()
        lease = leased(server, H1.write(SUBJECT, ASKED))
        await rows.put(lease)
        work = Work(lease, revision=1)
        doing = asyncio.create_task(IncomingTasks(rows, NothingDone(), {}, server, H2)._do(work))
        await server.is_asked.wait()
        assert not work.over.is_set()
        server.may.set()
        await work.over.wait()
        assert await rows.list() == [] and await doing

    asyncio.run(act())


def test_l3_no_two_machines_have_one_clone_and_every_repository_has_one() -> None:
    asked = [("web", "1-shop"), ("web-1", "shop"), ("web", "shop"), ("web", "日本"), ("web-1", "")]
    assert len({name_clone(*each) for each in asked}) == len(asked)


def test_l3_no_two_repositories_of_one_machine_have_one_clone() -> None:
    long = "a-very-long-name-of-a-repository-that-is-cut-off"
    paths = [
        "/a/shop/.git",
        "/b/shop/.git",
        "/b/shop.git",
        "/c/shop",
        "/a/日本/.git",
        "/b/日本/.git",
    ]
    paths += [f"/a/{long}/.git", f"/b/{long}/.git", "/a/" + "İ" * 60, "/b/" + "İ" * 60]
    names = [name_repository(Path(path)) for path in paths]
    assert len({name_clone("web", name) for name in names}) == len(paths)
    assert names[0].endswith("-shop") and names[0] == name_repository(Path(paths[0]))
