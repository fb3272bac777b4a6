"""Ends a run that is cancelled, takes too long or uses too much. Called by `driver` for each."""

import asyncio
import contextlib
import logging
import time

from bullpen.errors import BullpenError
from bullpen.hub.tasks import run as task_run
from bullpen.hub.tasks.board import LiveTask
from bullpen.hub.tasks.workers import Workers
from bullpen.hub.usage.budgets import Budgets
from bullpen.model.task import Cancelling
from bullpen.model.task_moves import seconds_left, verdict

log = logging.getLogger("bullpen.hub")

GRACE_SECONDS = 10.0
LOOK_SECONDS = 5.0  # budgets are used up also while a run says nothing
LEAST_SECONDS = 0.01


class RunWatch:
    """Watches the runs of all tasks."""

    def __init__(self, workers: Workers, budgets: Budgets) -> None:
        self._workers = workers
        self._budgets = budgets

    async def watch(self, live: LiveTask, run_ref: task_run.RunRef) -> None:
        """End the run when it is cancelled, takes too long, or uses too much. One that does not
        take notice is told again, until this is cancelled. What fails here is tried again: else
        the run would go on without limits."""
        ahead = time.time() - time.monotonic()
        while True:
            pause = GRACE_SECONDS
            try:
                await self.wait_for_limit(live, ahead)
                await task_run.stop(run_ref, GRACE_SECONDS)
            except (BullpenError, OSError) as error:
                log.error("cannot end a run yet", extra={"tag": run_ref.tag, "why": str(error)})
                pause = LOOK_SECONDS
            await asyncio.sleep(pause)

    async def wait_for_limit(self, live: LiveTask, ahead: float) -> None:
        """Until the run has to end. `ahead`: what to add to the monotonic clock."""
        limit = await self._workers.turn_seconds(live)

        def now() -> float:
            """A clock that is set meanwhile ends no run, and spares none."""
            return time.monotonic() + ahead

        while not self._has_to_end(live, limit, now()):
            live.moved.clear()
            left = max(LEAST_SECONDS, seconds_left(live.task, limit, now()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_SECONDS)):
                    await live.moved.wait()

    def _has_to_end(self, live: LiveTask, limit: float, now: float) -> bool:
        if isinstance(live.task.status, Cancelling):
            return True
        run_output = live.run_output or task_run.RunOutput()
        used = run_output.input_tokens + run_output.output_tokens
        refusal = self._budgets.refusal(live.task.agent)
        live.stopped_for = verdict(live.task, limit, now, used) or (
            ("budget", refusal) if refusal else None
        )
        return live.stopped_for is not None
