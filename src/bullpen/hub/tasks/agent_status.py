"""A task agent as a component: its status for everybody, and for those who may see all. Pure."""

from typing import get_args

from bullpen import __version__
from bullpen.hub.tasks.agent_config import shown_config
from bullpen.hub.tasks.agent_log import TaskAgent
from bullpen.hub.tasks.run_plan import Worker
from bullpen.model.component import CurrentTask, Interface, PublicStatus, Status
from bullpen.model.task import Task

INTERFACES: tuple[Interface, ...] = get_args(Interface)  # an agent has them all


def public_status(name: str, home_id: str) -> PublicStatus:
    """What other machines are told of one that starts."""
    return PublicStatus(
        type="agent",
        interfaces=INTERFACES,
        name=name,
        version=__version__,
        state="starting",
        uptime_seconds=0,
        home_id=home_id,
    )


def make_status(
    worker: Worker,
    task_agent: TaskAgent,
    task: Task | None,
    port: int | None,
    home_id: str,
) -> Status:
    """The whole status."""
    # Its file may say others by now: those hold from the next start on.
    in_force = {"port": port, "role": task_agent.live.agent.role}
    return task_agent.status(
        "agent",
        task_agent.live.agent.name,
        INTERFACES,
        home_id,
        shown_config(worker.file) | in_force,
        _current(task),
        worker.role.sandbox.model_dump(mode="json") if worker.is_sandboxed else None,
    )


def _current(task: Task | None) -> CurrentTask | None:
    if task is None:
        return None
    started = task.started or task.created
    return CurrentTask(id=task.id, started_at=started, prompt_preview=task.preview)
