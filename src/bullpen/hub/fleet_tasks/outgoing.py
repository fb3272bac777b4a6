"""Tasks that were asked for here and are done by whoever fits, anywhere.

Each is a row of this hub's own database from the moment in which it is acknowledged. It is offered
to the fleet until somebody has taken it, and again if it was given back; its one end is the one
that the server has, and is copied here, with the branch that it made.
"""

import asyncio
import contextlib
import logging
import time
from pathlib import Path

from bullpen.errors import BullpenError
from bullpen.fleet import bundles
from bullpen.fleet.link import cancel_all
from bullpen.fleet.subjects import queued, task_key
from bullpen.fleet.task_records import (
    OLDEST_SECONDS,
    Result,
    Signed,
    Standing,
    TaskRecord,
    by_own_clock,
    name_need,
)
from bullpen.fleet.task_server import LostError, TaskServer
from bullpen.home.workdirs import named_directory
from bullpen.hub.fleet_tasks.clones import name_repository
from bullpen.hub.fleet_tasks.leases import name_branch
from bullpen.hub.tasks.board import LiveTask
from bullpen.hub.tasks.queue import TaskQueue
from bullpen.hub.tasks.run_start import words_of
from bullpen.model.task import Cancelled, Cancelling, Error, Failed, Task, Wish
from bullpen.model.task_moves import end_elsewhere, take_elsewhere
from bullpen.worktrees.git import Repository, open_repository

log = logging.getLogger("bullpen.hub")

LOOK_SECONDS = 30.0  # at what the server may have told nobody
AGAIN_SECONDS = 5.0
AT_ONCE = 4  # bundles that are made
ARRIVE_SECONDS = 600.0  # that work is tried to be stored: a disk may be full, a repository away


class OutgoingTasks:
    """All that are not over, each followed by an asyncio task of its own."""

    def __init__(self, tasks: TaskQueue, person: Path, server: TaskServer, signed: Signed) -> None:
        self._tasks = tasks
        self._person = person
        self._server = server
        self._signed = signed
        self._following: dict[str, asyncio.Task[None]] = {}
        self._packing = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Until it is cancelled. The next hub goes on."""
        try:
            while True:
                self._tasks.fleet_asked.clear()
                for id, live in list(self._tasks.board.live.items()):
                    if live.task.fleet and not live.task.is_over and id not in self._following:
                        work = self._follow_safely(live)
                        self._following[id] = asyncio.create_task(work, name=f"asked {id}")
                await self._tasks.fleet_asked.wait()
        finally:
            await cancel_all(*self._following.values())

    async def _follow_safely(self, live: LiveTask) -> None:
        """Top of one. Whatever fails here, it is not the task: that is tried again."""
        id = live.task.id
        self._server.watch(id, live.moved.set)
        try:
            while not live.task.is_over:
                try:
                    await self._follow(live)
                except Exception:
                    log.exception("a task of the fleet could not be followed", extra={"task": id})
                    await asyncio.sleep(AGAIN_SECONDS)
        finally:
            self._server.unwatch(id)
            del self._following[id]

    async def _follow(self, live: LiveTask) -> None:
        id, data, sandboxed = live.task.id, b"", bool(live.task.wish.sandboxed)
        need = name_need(live.task.role, live.task.labels, sandboxed=sandboxed)
        while not live.task.is_over:
            live.moved.clear()
            entry = await self._server.read(self._server.host, id)
            standing = self._read(id, entry.data if entry else None)
            revision = entry.revision if entry else 0
            if standing is not None and standing.kind == "ended":
                await self._take_end(live, standing)
            elif isinstance(live.task.status, Cancelling):
                await self._end(id, standing, revision, Cancelled())
                continue
            elif standing is not None and standing.kind == "leased":
                await self._show(live, f"{standing.by}/{standing.agent}")
            else:
                await self._show(live, "", *_why_free(standing))
                try:
                    _refuse_old(live.task)
                    data = data or await self._write(live.task, need)
                except (BullpenError, OSError) as error:
                    failed = Failed(error=Error(type="setup_failed", message=words_of(error)))
                    await self._end(id, standing, revision, failed)
                    continue
                await self._server.offer(need, id, data)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await live.moved.wait()

    def _read(self, id: str, data: bytes | None) -> Standing | None:
        """How it stands; None if nobody has taken it. What nobody of the fleet has signed says
        nothing."""
        if data is None:
            return None
        try:
            return self._signed.read_standing(task_key(self._server.host, id), data)
        except BullpenError as error:
            log.warning("refused what is said of a task", extra={"task": id, "why": error.message})
            return None

    async def _show(self, live: LiveTask, taken_by: str, *warnings: str) -> None:
        """Who does it; or why nobody does, who has tried."""
        if (live.task.taken_by, live.task.warnings) != (taken_by, warnings):
            await self._tasks.put_elsewhere(
                live, lambda task: take_elsewhere(task, taken_by, time.time(), *warnings)
            )
            live.moved.clear()

    async def _end(
        self, id: str, standing: Standing | None, revision: int, status: Cancelled | Failed
    ) -> None:
        """Its end, unless somebody else is faster. Either is looked at after this."""
        epoch = standing.epoch if standing else 0
        result = Result(status=status, ended=time.time())
        ended = Standing(kind="ended", epoch=epoch, by=self._server.host, result=result)
        data = self._signed.write(task_key(self._server.host, id), ended)
        with contextlib.suppress(LostError):
            await self._server.put(self._server.host, id, data, revision)

    # ── what is asked ──

    async def _write(self, task: Task, need: str) -> bytes:
        """What is asked, as it is offered; its repository is on the server before."""
        parcel, repo_name = None, ""
        if task.wish.repo:
            async with self._packing:
                repo_name, commit, bundle = await asyncio.to_thread(self._pack, task)
                parcel = await self._server.send_parcel(task.id, bundle, commit)
        gone = {"repo": None, "worktree": None, "project": None}
        record = TaskRecord(
            at=task.created,
            wish=Wish.model_validate({**task.wish.model_dump(), **gone}),
            role=task.role,
            labels=task.labels,
            repo_name=repo_name,
            parcel=parcel,
        )
        return self._signed.write(queued(self._server.host, need, task.id), record)

    def _pack(self, task: Task) -> tuple[str, str, bytes]:
        """The repository's name, the commit, and that with its history."""
        repo = self._repository(task)
        commit = bundles.pin(repo, task.id, task.wish.worktree or "")
        return name_repository(repo.common_dir), commit, bundles.pack(repo, task.id)

    def _repository(self, task: Task) -> Repository:
        return open_repository(named_directory(self._person, task.wish.repo or ""))

    # ── what came of it ──

    async def _take_end(self, live: LiveTask, standing: Standing) -> None:
        assert standing.result is not None
        result = by_own_clock(standing.result, live.task.created, time.time())
        warnings = list(result.warnings)
        if live.task.wish.repo:
            try:
                warnings += await self._take_branch(live, result, standing)
            except (BullpenError, OSError) as error:
                there = name_branch(self._server.host, live.task.id, standing.epoch)
                warnings.append(
                    f"what was committed did not arrive: {words_of(error)}"
                    f" · {standing.by} has it as branch {there}"
                )
        taken_by = f"{standing.by}/{standing.agent}" if standing.agent else live.task.taken_by
        fields = {
            "output": result.output,
            "runs": result.runs,
            "commits": result.commits,
            "commit_count": result.commit_count,
            "warnings": tuple(warnings),
            "started": result.started or live.task.started,
        }
        await self._tasks.put_elsewhere(
            live, lambda task: end_elsewhere(task, result.status, taken_by, result.ended, **fields)
        )

    async def _take_branch(
        self, live: LiveTask, result: Result, standing: Standing
    ) -> tuple[str, ...]:
        """What a person has to know of it."""
        task, sent, branch = live.task, result.parcel, live.task.wish.worktree or ""
        if sent is None:
            with contextlib.suppress(BullpenError):  # a repository that is away takes nothing along
                await asyncio.to_thread(lambda: bundles.unpin(self._repository(task), task.id))
            return ()
        if sent.host != standing.by:
            raise BullpenError(f"{standing.by} says that {sent.host} has sent it")
        data = await self._server.fetch_parcel(sent)

        def take() -> tuple[str, ...]:
            repo = self._repository(task)
            name = bundles.take_result(repo, data, task.id, branch)
            bundles.unpin(repo, task.id)
            if name == branch:
                return ()
            return (f"{bundles.why_another_name(repo, branch, name)}: its work is {name}",)

        until = time.monotonic() + ARRIVE_SECONDS
        while True:
            try:
                return await asyncio.to_thread(take)
            except (BullpenError, OSError) as error:
                if time.monotonic() > until or isinstance(live.task.status, Cancelling):
                    raise
                why = f"it is done, and its commits cannot be stored yet: {words_of(error)}"
                await self._show(live, f"{standing.by}/{standing.agent}", why)
            live.moved.clear()
            with contextlib.suppress(TimeoutError):  # whoever cancels it waits no longer
                async with asyncio.timeout(AGAIN_SECONDS):
                    await live.moved.wait()


def _refuse_old(task: Task) -> None:
    """Nobody would take it any more; and what became of it may be forgotten."""
    if time.time() - task.created > OLDEST_SECONDS:
        days = OLDEST_SECONDS / 86400
        raise BullpenError(
            f"nobody of the fleet has it {days:g} days after it was asked for", hint="ask again"
        )


def _why_free(standing: Standing | None) -> tuple[str, ...]:
    """What a person has to know of one that was given back."""
    if standing is None or not standing.why:
        return ()
    return (f"{standing.by}/{standing.agent} could not begin it: {standing.why}",)
