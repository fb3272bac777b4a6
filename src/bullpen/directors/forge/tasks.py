"""Gives tasks to the hub's agents, and looks what became of them."""

from typing import Protocol

from bullpen.client import AsyncHub
from bullpen.client.tasks import get_history, get_task, offer_task
from bullpen.directors.cancelling import cancel
from bullpen.directors.failures import ActionError, Verdict
from bullpen.directors.forge.config import ForgeConfig
from bullpen.directors.forge.remember import Given
from bullpen.errors import BullpenError, Kind
from bullpen.model.value import Value

OVER = ("completed", "failed", "cancelled")


class TaskSeen(Value):
    """How a task stands. `failure`: why it did not get done; `failure_kind`: the hub's word for
    that, if the rest is what programs of this machine wrote; `is_unbegun`: it had no directory
    yet."""

    is_over: bool
    output: str = ""
    failure: str = ""
    failure_kind: str = ""
    is_unbegun: bool = False
    is_cancelled: bool = False
    agent: str = ""
    created_at: float = 0.0


class Tasks(Protocol):
    """What a director asks of the hub."""

    async def give(
        self, request: str, prompt: str, *, session_id: str, repo: str, branch: str
    ) -> Given:
        """In that conversation; in a new one with a worktree of that branch if there is none, or
        none any more. The same request is one task."""

    async def look(self, task_id: str) -> TaskSeen: ...

    async def find_refused(self, task_id: str) -> str:
        """Why commits of it are not in the clone; empty: all are. Raises while that is not known
        yet."""

    async def has_uncommitted(self, task_id: str) -> bool:
        """Whether it left changes that are not committed."""

    async def cancel(self, task_id: str) -> None: ...


class HubTasks:
    """Those of the hub."""

    def __init__(self, hub: AsyncHub, config: ForgeConfig) -> None:
        self._hub = hub
        self._config = config

    async def give(
        self, request: str, prompt: str, *, session_id: str, repo: str, branch: str
    ) -> Given:
        try:
            if not session_id:
                return await self._offer(request, prompt, repo=repo, worktree=branch)
            try:
                return await self._offer(request, prompt, session_id=session_id)
            except BullpenError as error:
                if error.kind is not Kind.NOT_FOUND:
                    raise
                # The hub forgets conversations; what came of this one is in its worktree.
                return await self._offer(request, prompt, repo=repo, worktree=branch)
        except BullpenError as error:
            # An agent that does not run may be started at any time.
            if self._config.agent and error.kind in (Kind.NOT_FOUND, Kind.CONFLICT):
                raise ActionError(error.message, Verdict.LATER, hint=error.hint) from error
            raise

    async def _offer(
        self,
        request: str,
        prompt: str,
        *,
        session_id: str | None = None,
        repo: str | None = None,
        worktree: str | None = None,
    ) -> Given:
        config = self._config
        timeout = config.timeout.total_seconds() if config.timeout else None
        call = offer_task(
            prompt,
            agent=config.agent,
            role=config.role,
            labels=config.labels or None,
            request=request,
            model=config.model,
            timeout_seconds=timeout,
            session_id=session_id,
            repo=repo,
            worktree=worktree,
            sandboxed="required",
        )
        accepted = await self._hub.do(call)
        return Given(task_id=accepted.task_id, session_id=accepted.session_id)

    async def look(self, task_id: str) -> TaskSeen:
        try:
            task = await self._hub.do(get_task(task_id))
        except BullpenError as error:
            if error.kind is not Kind.NOT_FOUND:
                raise
            return TaskSeen(is_over=True, failure=f"the hub no longer knows task {task_id}")
        failure = ""
        if task.state == "failed":
            failure = f"{task.error.type}: {task.error.message}" if task.error else "failed"
        elif task.state == "cancelled":
            failure = f"somebody cancelled task {task_id}"
        return TaskSeen(
            is_over=task.state in OVER,
            output=task.output or "",
            failure=failure,
            failure_kind=task.error.type if task.state == "failed" and task.error else "",
            is_unbegun=not task.directory,
            is_cancelled=task.state == "cancelled",
            agent=task.agent or "",
            created_at=task.created_at,
        )

    async def find_refused(self, task_id: str) -> str:
        missing = (await self._hub.do(get_history(task_id))).not_brought_over
        if missing is None:
            raise ActionError("its commits are still being brought over", Verdict.LATER)
        return f"commits were not brought over: {'; '.join(missing)}" if missing else ""

    async def has_uncommitted(self, task_id: str) -> bool:
        changes = (await self._hub.do(get_history(task_id))).changes
        return changes is not None and bool(changes.uncommitted.strip())

    async def cancel(self, task_id: str) -> None:
        await cancel(self._hub, task_id)
