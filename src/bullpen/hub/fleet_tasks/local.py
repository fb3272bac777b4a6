"""A task of the fleet as one of this hub's own: given to an agent, waited for, its commits packed.

The same lease asked twice is one task here: its `request` is made of the lease's key and epoch.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import time
from functools import partial
from pathlib import Path

from bullpen import worktrees
from bullpen.errors import BullpenError
from bullpen.fleet import bundles
from bullpen.fleet.task_records import OUTPUT_BYTES, Result, TaskRecord
from bullpen.fleet.task_server import TaskServer
from bullpen.hub.agents.private_gits import PrivateGits
from bullpen.hub.agents.registry import Registry
from bullpen.hub.agents.worktrees import open_site
from bullpen.hub.context import HubContext
from bullpen.hub.fleet_tasks.clones import name_clone
from bullpen.hub.fleet_tasks.leases import Lease, LeaseRows, name_branch
from bullpen.hub.tasks import task_changes
from bullpen.hub.tasks.agents import TaskAgents
from bullpen.hub.tasks.brought_over import list_missing
from bullpen.hub.tasks.queue import TaskQueue
from bullpen.hub.tasks.run_start import words_of
from bullpen.model import names
from bullpen.model.agent import Agent
from bullpen.model.parcel import Parcel
from bullpen.model.task import Error, Failed, Task, TaskRequest
from bullpen.worktrees.git import open_repository

log = logging.getLogger("bullpen.hub")

MISSING_SECONDS = 0.5  # between two looks at what is still on its way
MOST_LINES, LINE_CHARACTERS, ERROR_CHARACTERS = 50, 200, 4000


class GivenBackError(Exception):
    """Nobody here can do it now: it is another one's."""


class LocalTasks:
    """What `taken` uses of this hub."""

    def __init__(
        self,
        context: HubContext,
        registry: Registry,
        tasks: TaskQueue,
        task_agents: TaskAgents,
        private_gits: PrivateGits,
        rows: LeaseRows,
        server: TaskServer,
    ) -> None:
        self._context = context
        self._registry = registry
        self._tasks = tasks
        self._task_agents = task_agents
        self._private_gits = private_gits
        self._rows = rows
        self._server = server

    def list_free(self) -> dict[str, Agent]:
        """Agents that could take a task now."""
        return self._tasks.list_free()

    async def check(self, name: str) -> None:
        """GivenBackError if that agent could not begin a task now. Nothing is fetched for that."""
        try:
            await asyncio.to_thread(self._tasks.check_login, self._registry.get(name).agent, {})
        except BullpenError as error:
            raise GivenBackError(error.message) from error

    async def do(self, lease: Lease, record: TaskRecord) -> Result:
        """Have it done; GivenBackError if it was not begun."""
        id = lease.local or await self._find(lease) or await self._give(lease, record)
        if isinstance(id, Result):
            return id
        if id != lease.local:
            await self._rows.put(lease.model_copy(update={"local": id}))
        try:
            task = await self._tasks.board.wait(id, lambda _: False)
        except BullpenError as error:  # it is no longer kept
            return failed(words_of(error))
        warnings, parcel = await self._pack(lease, record, task)
        return _result(task, warnings, parcel)

    async def cancel(self, lease: Lease) -> None:
        """What it does counts no longer."""
        id = lease.local or await self._find(lease)
        if id:
            with contextlib.suppress(BullpenError):  # it is over
                await self._tasks.cancel(id)

    async def _find(self, lease: Lease) -> str:
        """The task that an earlier hub had given, and had not written down."""
        task = await self._tasks.board.rows.find_request(_request(lease))
        return task.id if task else ""

    async def _give(self, lease: Lease, record: TaskRecord) -> str | Result:
        where: dict[str, str] = {}
        if record.parcel is not None:
            directory = self._context.home.projects / name_clone(lease.asker, record.repo_name)
            branch = name_branch(lease.asker, lease.id, lease.epoch)
            sent = record.parcel
            try:
                if sent.host != lease.asker:
                    raise BullpenError(f"{lease.asker} says that {sent.host} has sent it")
                data = await self._server.fetch_parcel(sent)
                await asyncio.to_thread(bundles.unpack, directory, data, lease.id, sent.commit)
                make = partial(self._make_worktree, directory, branch, sent.commit)
                await self._context.trees.run_to_end(make)
            except (BullpenError, OSError) as error:
                return failed(f"{self._server.host}: {words_of(error)}")
            where = {"repo": str(directory), "worktree": branch}
        fields = {**record.wish.model_dump(exclude_none=True), **where, "keep_open": False}
        request = TaskRequest.model_validate({**fields, "request": _request(lease)})
        try:
            with self._task_agents.giving(lease.agent):
                return (await self._tasks.submit(lease.agent, request)).id
        except BullpenError as error:
            if where:
                remove = partial(self._remove_worktree, directory, branch)
                await self._context.trees.run_to_end(remove)
            raise GivenBackError(error.message) from error

    def _make_worktree(self, directory: Path, branch: str, commit: str) -> None:
        """The task finds it there."""
        site = open_site(self._context.home, self._context.settings, directory)
        name = names.subtree_name(branch)
        worktrees.ensure(site, worktrees.Spec(name, branch=branch, base=commit))

    def _remove_worktree(self, directory: Path, branch: str) -> None:
        """Nobody has worked in it."""
        site = open_site(self._context.home, self._context.settings, directory)
        worktrees.remove(site, names.subtree_name(branch), force=True)

    async def _pack(
        self, lease: Lease, record: TaskRecord, task: Task
    ) -> tuple[tuple[str, ...], Parcel | None]:
        """What was committed, when all of it is in the repository; and what is not."""
        if record.parcel is None:
            return (), None
        warnings: list[str] = []
        changes, _ = await asyncio.to_thread(task_changes.find, self._context.home, task)
        if changes is not None and (changes.uncommitted or changes.staged):
            warnings.append(f"what it did not commit stays on {self._server.host}")
        try:
            warnings += await self._wait_brought_over(task)
            base = record.parcel.commit

            def pack() -> tuple[bytes, str] | None:
                repo = open_repository(Path(task.wish.repo or ""))
                return bundles.pack_result(
                    repo, lease.id, name_branch(lease.asker, lease.id, lease.epoch), base
                )

            packed = await asyncio.to_thread(pack)
            parcel = await self._server.send_parcel(lease.id, *packed) if packed else None
        except (BullpenError, OSError) as error:
            return (*warnings, f"its commits stay on {self._server.host}: {words_of(error)}"), None
        return tuple(warnings), parcel

    async def _wait_brought_over(self, task: Task) -> tuple[str, ...]:
        session = await self._tasks.board.rows.find_session(task.session_id)
        if session is None:
            return ()
        while True:
            agent = self._registry.find(task.agent)
            missing = await list_missing(self._private_gits, agent, session)
            if missing is not None:
                return missing
            await asyncio.sleep(MISSING_SECONDS)


def _request(lease: Lease) -> str:
    return hashlib.sha256(f"{lease.key} {lease.epoch}".encode()).hexdigest()[:32]


def failed(why: str) -> Result:
    """It could not be done, now or later."""
    failed = Failed(error=Error(type="setup_failed", message=why[:ERROR_CHARACTERS]))
    return Result(status=failed, ended=time.time())


def _result(task: Task, warnings: tuple[str, ...], parcel: Parcel | None) -> Result:
    """What is told of it: not more than the server takes in one message. Pure."""
    output, status = task.output, task.status
    runs = [run.model_copy(update={"why": run.why[:LINE_CHARACTERS]}) for run in task.runs]
    if output is not None and len(json.dumps(output)) > OUTPUT_BYTES:
        warnings = (*warnings, "the rest of its output stays where it was done")
        while len(json.dumps(output)) > OUTPUT_BYTES:
            output = output[: len(output) * 3 // 4]
    if isinstance(status, Failed):
        error = status.error.model_copy(update={"message": status.error.message[:ERROR_CHARACTERS]})
        status = Failed(error=error)
    return Result.model_validate(
        {
            "status": status,
            "started": task.started,
            "ended": task.ended,
            "output": output,
            "runs": runs[-MOST_LINES:],
            "parcel": parcel,
            "commits": [line[:LINE_CHARACTERS] for line in task.commits[:MOST_LINES]],
            "commit_count": max(task.commit_count, len(task.commits)),
            "warnings": [
                line[:LINE_CHARACTERS] for line in (*task.warnings, *warnings)[:MOST_LINES]
            ],
        }
    )
