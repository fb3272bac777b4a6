"""Tasks of the fleet that agents of this machine take when they are free, and do.

A task is leased by writing its key at the server; the key's revision is the fence: whoever was
thought dead, and is not, writes in vain. While a task is done the lease is renewed, and the queue
is told that somebody is at it. A hub that comes after a crash goes on with the leases of its
database. While the server is away work goes on: it counts if nobody has taken the task over
meanwhile.
"""

import asyncio
import base64
import contextlib
import logging
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bullpen.errors import BullpenError
from bullpen.fleet.deliveries import kept, tell
from bullpen.fleet.link import cancel_all
from bullpen.fleet.subjects import task_key
from bullpen.fleet.task_records import (
    OLDEST_SECONDS,
    Result,
    Signed,
    Standing,
    TaskRecord,
    parse_need,
)
from bullpen.fleet.task_server import ACK_SECONDS, LostError, TaskServer
from bullpen.hub.fleet_tasks.leases import Lease, LeaseRows
from bullpen.hub.fleet_tasks.local import LINE_CHARACTERS, GivenBackError, LocalTasks, failed
from bullpen.hub.fleet_tasks.set_aside import SetAside
from bullpen.model.agent import Agent

if TYPE_CHECKING:
    from nats.aio.msg import Msg

log = logging.getLogger("bullpen.hub")

LEASE_SECONDS = 30.0  # a lease that nobody has renewed for so long may be taken over
RENEW_SECONDS = LEASE_SECONDS / 6
PULL_SECONDS = 5.0
NEEDS_SECONDS = 2.0  # between two looks at what tasks need
GIVEN_BACK_SECONDS = 5.0  # before a task is offered again that could not be done here


@dataclass
class Work:
    """One task that is done here."""

    lease: Lease
    revision: int
    beat: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)


class IncomingTasks:
    """All of this machine."""

    def __init__(
        self,
        rows: LeaseRows,
        local: LocalTasks,
        labels: Mapping[str, str],
        server: TaskServer,
        signed: Signed,
    ) -> None:
        self._rows = rows
        self._local = local
        self._labels = labels  # of this machine
        self._server = server
        self._signed = signed
        self._works: dict[str, Work] = {}
        self._reserved: set[str] = set()  # agents that are about to get a task
        self._set_aside = SetAside()
        self._pulling: dict[str, asyncio.Task[None]] = {}  # by need
        self._running: set[asyncio.Task[None]] = set()
        self.changed = asyncio.Event()  # an agent may be free

    async def run(self) -> None:
        """Until it is cancelled: what runs goes on in its holder."""
        try:
            await self._resume()
            while True:
                needs = await self._server.list_needs() if self._free() else []
                looked = time.monotonic()
                while time.monotonic() < looked + NEEDS_SECONDS:
                    self.changed.clear()
                    for need in needs:
                        if need not in self._pulling and self._choose(need):
                            work = self._pull(need)
                            self._pulling[need] = asyncio.create_task(work, name=f"pull {need}")
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(looked + NEEDS_SECONDS - time.monotonic()):
                            await self.changed.wait()
        finally:
            await cancel_all(*self._pulling.values(), *self._running)

    # ── who is free ──

    def _free(self) -> dict[str, Agent]:
        free = self._local.list_free()
        return {
            name: agent
            for name, agent in free.items()
            if name not in self._reserved and name not in self._set_aside
        }

    def _choose(self, need: str) -> str:
        """A free agent that fits; empty if there is none."""
        parsed = parse_need(need)
        if parsed is None:
            return ""
        role, labels, sandboxed = parsed
        for name, agent in self._free().items():
            has = {**self._labels, **agent.labels}
            if (
                role in ("", agent.role)
                and labels.items() <= has.items()
                and (agent.is_sandboxed or not sandboxed)
            ):
                return name
        return ""

    # ── taking ──

    async def _pull(self, need: str) -> None:
        """As long as somebody is free who fits."""
        try:
            while self._choose(need):
                message = await self._server.pull(need, PULL_SECONDS)
                if message is not None:
                    self._begin(self._receive(message), message.subject)
                    await asyncio.sleep(0)  # it reserves its agent
        finally:
            del self._pulling[need]

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(self._safely(work, name), name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _safely(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Top of what is done with one task. Whatever fails, it is offered to others again."""
        try:
            await work
        except Exception:
            log.exception("a task of the fleet failed here", extra={"task": name})
        self.changed.set()

    async def _receive(self, message: "Msg") -> None:
        """One that the queue has delivered."""
        _, asker, _, id = message.subject.split(".")
        try:
            record = self._signed.read_asked(message.subject, message.data)
            if time.time() - record.at > OLDEST_SECONDS:
                raise BullpenError("it was asked too long ago")
            if message.subject.split(".")[2] != record.need:
                raise BullpenError("it was asked for others")
        except BullpenError as error:
            extra = {"host": asker, "task": id, "reason": error.message}
            log.warning("refused a task of the fleet", extra=extra)
            await tell(message.term())
            return
        async with kept(message, ACK_SECONDS):
            await self._take(message, asker, id, record)

    async def _take(self, message: "Msg", asker: str, id: str, record: TaskRecord) -> None:
        work = self._works.get(f"{asker}/{id}")
        if work is not None:  # delivered again: this hub was restarted, or was slow
            await work.over.wait()
        epoch, revision, is_over = await self._wait_turn(asker, id)
        if is_over:
            await tell(message.ack_sync())
            return
        agent = self._choose(record.need)
        if not agent:
            await tell(message.nak())
            return
        self._reserved.add(agent)
        try:
            lease = Lease(
                asker=asker,
                id=id,
                epoch=epoch + 1,
                agent=agent,
                subject=message.subject,
                asked=base64.b64encode(message.data).decode(),
            )
            is_over = await self._do_new(Work(lease, revision))
            await tell(message.ack_sync() if is_over else message.nak(GIVEN_BACK_SECONDS))
        finally:
            self._reserved.discard(agent)

    async def _do_new(self, work: Work) -> bool:
        """Whether it is over."""
        try:
            await self._local.check(work.lease.agent)
        except GivenBackError as error:
            await self._give_back(work, error)
            return False
        await self._rows.put(work.lease)
        try:
            await self._renew(work)
        except LostError:
            await self._rows.drop(work.lease)
            return False
        return await self._do(work)

    async def _wait_turn(self, asker: str, id: str) -> tuple[int, int, bool]:
        """Until nobody else does it: the last epoch, the revision, and whether it is over. A lease
        counts for as long as it is renewed, by the clock of whoever waits."""
        seen, since = -1, time.monotonic()
        while True:
            entry = await self._server.read(asker, id)
            if entry is None:
                return 0, 0, False
            standing = self._read(asker, id, entry.data)
            if standing is None or standing.kind == "free":
                return standing.epoch if standing else 0, entry.revision, False
            if standing.kind == "ended":
                return standing.epoch, entry.revision, True
            if entry.revision != seen:
                seen, since = entry.revision, time.monotonic()
            elif time.monotonic() - since > LEASE_SECONDS:
                return standing.epoch, entry.revision, False
            await asyncio.sleep(RENEW_SECONDS)

    def _read(self, asker: str, id: str, data: bytes | None) -> Standing | None:
        """None: what nobody of the fleet has signed says nothing."""
        try:
            return self._signed.read_standing(task_key(asker, id), data) if data else None
        except BullpenError as error:
            log.warning("refused what is said of a task", extra={"task": id, "why": error.message})
            return None

    async def _resume(self) -> None:
        """Go on with what an earlier hub had leased."""
        for lease in await self._rows.list():
            self._reserved.add(lease.agent)
            self._begin(self._go_on(lease), lease.subject)

    async def _go_on(self, lease: Lease) -> None:
        try:
            entry = await self._server.read(lease.asker, lease.id)
            standing = self._read(lease.asker, lease.id, entry.data if entry else None)
            if entry is None or not _is_held(standing, lease, self._server.host):
                await self._give_up(lease)
                return
            assert standing is not None
            await self._do(Work(lease, entry.revision, standing.beat))
        finally:
            self._reserved.discard(lease.agent)

    # ── doing ──

    async def _do(self, work: Work) -> bool:
        """From the lease to the end of it; whether the task is over."""
        self._works[work.lease.key] = work
        try:
            return await self._do_leased(work)
        finally:
            del self._works[work.lease.key]
            work.over.set()  # whoever waits may take it anew: nothing is left of this lease

    async def _do_leased(self, work: Work) -> bool:
        lease = work.lease
        renewing = asyncio.create_task(self._keep(work), name=f"lease {lease.key}")
        doing = asyncio.create_task(self._do_here(lease), name=f"do {lease.key}")
        try:
            await asyncio.wait({renewing, doing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_all(renewing, doing)
        if doing.cancelled():
            await self._give_up(lease)
            return False
        try:
            result = doing.result()
        except GivenBackError as error:
            await self._give_back(work, error)
            await self._rows.drop(lease)
            return False
        self._set_aside.forget(lease.agent)
        if not await self._record(work, kind="ended", result=result):
            log.warning("what a task came to counts no longer", extra={"task": lease.key})
        await self._rows.drop(lease)
        return True

    async def _do_here(self, lease: Lease) -> Result:
        """Top of that. Whatever fails is its end: it would fail again, here and elsewhere."""
        try:
            record = self._signed.read_asked(lease.subject, base64.b64decode(lease.asked))
            return await self._local.do(lease, record)
        except GivenBackError:
            raise
        except Exception as error:
            log.exception("a task of the fleet could not be done", extra={"task": lease.key})
            await self._local.cancel(lease)
            why = error.message if isinstance(error, BullpenError) else repr(error)
            return failed(f"{self._server.host}: the hub failed: {why}")

    async def _give_back(self, work: Work, error: GivenBackError) -> None:
        """Its agent could not begin it: the asker is told why."""
        lease, why = work.lease, str(error)[:LINE_CHARACTERS]
        extra = {"task": lease.key, "agent": lease.agent, "reason": why}
        log.warning("a task was given back", extra=extra)
        self._set_aside.add(lease.agent)
        await self._record(work, kind="free", why=why)

    async def _keep(self, work: Work) -> None:
        """Renew the lease, until it is lost."""
        with contextlib.suppress(LostError):
            while True:
                await asyncio.sleep(RENEW_SECONDS)
                await self._renew(work)

    async def _renew(self, work: Work) -> None:
        lease, beat = work.lease, work.beat + 1
        standing = Standing(
            kind="leased", epoch=lease.epoch, beat=beat, by=self._server.host, agent=lease.agent
        )
        await self._put(work, standing)
        work.beat = beat

    async def _put(self, work: Work, standing: Standing) -> None:
        lease = work.lease
        data = self._signed.write(task_key(lease.asker, lease.id), standing)
        work.revision = await self._server.put(lease.asker, lease.id, data, work.revision)

    async def _record(
        self,
        work: Work,
        *,
        kind: Literal["ended", "free"],
        result: Result | None = None,
        why: str = "",
    ) -> bool:
        """The one end of it, or that it is given back; False if it is somebody else's by now."""
        lease, host = work.lease, self._server.host
        standing = Standing(
            kind=kind, epoch=lease.epoch, by=host, agent=lease.agent, result=result, why=why
        )
        while True:
            try:
                await self._put(work, standing)
                return True
            except LostError:
                # A renewal that was under way may have been written after all.
                entry = await self._server.read(lease.asker, lease.id)
                now = self._read(lease.asker, lease.id, entry.data if entry else None)
                if entry is None or not _is_held(now, lease, host):
                    return False
                work.revision = entry.revision

    async def _give_up(self, lease: Lease) -> None:
        """Somebody else has it, or it is over."""
        log.info("a task is no longer this machine's", extra={"task": lease.key})
        await self._local.cancel(lease)
        await self._rows.drop(lease)


def _is_held(standing: Standing | None, lease: Lease, host: str) -> bool:
    return standing is not None and (standing.kind, standing.by, standing.epoch) == (
        "leased",
        host,
        lease.epoch,
    )
