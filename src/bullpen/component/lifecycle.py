"""The life of everything that serves: stages, journal, `/status`, draining.

The hub, each task agent (`hub/tasks/agents`) and each director, view and bridge
(`component/server`) has one `Life`. It holds what is known of that life and answers from it; what
is prepared, waited for or cancelled is decided by its owner. Opens no socket: sockets and ports
are `component/http_server`'s.
"""

import asyncio
import os
import time
from dataclasses import dataclass, field
from typing import Any, assert_never, get_args

from bullpen import __version__
from bullpen.component.journal import Journal
from bullpen.errors import BullpenError, Kind
from bullpen.model.component import (
    DRAIN_SECONDS,
    CurrentTask,
    Interface,
    Leaving,
    Level,
    Phase,
    Shutdown,
    Status,
    Type,
)
from bullpen.model.state import Draining, Errored, Idle, Stage, Starting

LEVELS: tuple[Level, ...] = get_args(Level)  # the quietest last


@dataclass
class Life:
    """One component from its start to its end."""

    journal: Journal
    log_level: Level = "debug"  # what is below it is not noted
    own_stage: Stage = field(default_factory=Starting)
    began: float = field(default_factory=time.monotonic)
    draining: asyncio.Task[None] | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)  # set: its server leaves now

    @property
    def stage(self) -> Stage:
        """How far it is. A task agent's is recorded, and so kept elsewhere."""
        return self.own_stage

    @property
    def is_draining(self) -> bool:
        """It takes nothing new, and leaves."""
        return isinstance(self.stage, Draining)

    @property
    def problem(self) -> str:
        """Why it cannot work."""
        return self.stage.reason if isinstance(self.stage, Errored) else ""

    def note(self, level: Level, message: str, **fields: object) -> None:
        """Add an entry to the journal, if its level is high enough."""
        if LEVELS.index(level) >= LEVELS.index(self.log_level):
            self.journal.note(level, message, **fields)

    def fail(self, problem: str, **fields: object) -> None:
        """It cannot work, for that reason."""
        self.own_stage = Errored(reason=problem)
        self.note("error", problem, **fields)

    def drain(self, work: asyncio.Task[None]) -> None:
        """Leave by `work`, in place of an earlier drain: the newest request counts."""
        self.own_stage = Draining()
        if self.draining is not None:
            self.draining.cancel()
        self.draining = work

    def phase(self, is_working: bool) -> Phase:
        """Its state for everybody."""
        if self.over.is_set():
            return "draining"
        match self.stage:
            case Idle():
                return "working" if is_working else "idle"
            case Starting() | Errored() | Draining() as stage:
                return stage.state
            case _ as never:
                assert_never(never)

    def status(
        self,
        component_type: Type,
        name: str,
        interfaces: tuple[Interface, ...],
        home_id: str,
        config: dict[str, Any],
        current_task: CurrentTask | None = None,
        sandbox: dict[str, Any] | None = None,
    ) -> Status:
        """What it answers at `/status`."""
        return Status(
            type=component_type,
            interfaces=interfaces,
            name=name,
            version=__version__,
            state=self.phase(current_task is not None),
            uptime_seconds=round(time.monotonic() - self.began, 3),
            home_id=home_id,
            pid=os.getpid(),
            current_task=current_task,
            config=config,
            sandbox=sandbox,
            log=self.journal.entries(),
        )


def plan_leaving(name: str, shutdown: Shutdown | None, task: tuple[str, str] | None) -> Leaving:
    """The answer to `POST /shutdown`. `task` is the id and the state of what runs.

    Raises if something runs and the request does not say how long it may go on.
    """
    shutdown = shutdown or Shutdown()
    if task is not None and shutdown.timeout_seconds is None and not shutdown.force:
        task_id, state = task
        raise BullpenError(
            f"{name} has a task: {task_id} is {state}",
            hint="say how long it may go on: timeout_seconds, and force to cancel it then",
            kind=Kind.CONFLICT,
            details={"error": "task_in_progress", "task_id": task_id},
        )
    seconds = shutdown.timeout_seconds
    drain_timeout = DRAIN_SECONDS if seconds is None else seconds
    return Leaving(message=f"{name} leaves", drain_timeout=drain_timeout, pid=os.getpid())
