"""Tools for parents and children: start agents, report to who started you, wait for what they do.

Registered by `server`. The text of a function is what a model reads before it calls the tool: it
says what happens, what comes back, and what to do next.
"""

import json
import time
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from pydantic import BaseModel, ConfigDict, Field, model_validator

from bullpen.engines import get_engine
from bullpen.errors import BullpenError
from bullpen.hub.mcp.arguments import given
from bullpen.hub.mcp.caller import Caller, caller_of
from bullpen.hub.parts import Hub
from bullpen.hub.tree.spawn import ChildWish
from bullpen.model.agent import Agent
from bullpen.model.child_event import KINDS, ChildEvent
from bullpen.model.role import Engine
from bullpen.model.state import EngineReport, Working

WAIT_SECONDS = 3600.0
MOST_WAIT_SECONDS = 86_400.0
MOST_MESSAGE = 64 << 10
LARGEST = 1 << 62  # that a database can compare

Task = Annotated[
    str, Field(description="Its whole first prompt: what to do, where, and when it is done.")
]
RoleName = Annotated[
    str, Field(description="A role of this home; left out: the same role as yours.")
]
EngineName = Annotated[
    Engine | None, Field(description="Another engine than the role's: claude, gemini or codex.")
]


class WorkerWish(BaseModel):
    """One worker."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(description="A short name, unique among your workers, e.g. docs.")]
    task: Task
    role: RoleName = ""
    engine: EngineName = None

    @model_validator(mode="before")
    @classmethod
    def _drop_null(cls, data: Any) -> Any:
        return given(data) if isinstance(data, dict) else data


async def spawn_subtree(
    hub: Hub,
    ctx: Context[Any],
    task: Task,
    branch_name: Annotated[str, Field(description="A short name of the work, e.g. csv-export.")],
    role: RoleName = "",
    engine: EngineName = None,
    where: Annotated[
        str,
        Field(
            max_length=1000,
            description="Another machine of the fleet: its name, or labels as gpu=yes; left out:"
            " this one.",
        ),
    ] = "",
) -> str:
    """Start an agent with a git worktree and a branch of its own, from your current commit.

    For work that changes files and may run beside yours. It does not see what you have not
    committed. Returns its name, branch and path at once; it works on. It reports to you: call
    wait_for_event to hear of it. Its branch is called <your branch>.<branch_name>. On another
    machine its name is HOST/NAME, and its branch is here when it has reported."""
    caller = caller_of(hub, ctx)
    wish = ChildWish(task=task, branch=branch_name, role=role, engine=engine)
    if where:
        away = await hub.fleet_spawner.spawn(caller.live, wish, where, caller.request)
        if away is not None:
            shown = {"name": away.full_name, "branch": away.branch, "path": away.path}
            return _text({**shown, **_not_granted(away.not_granted)})
    [child] = await hub.spawner.spawn(caller.live, [wish], caller.request)
    agent = child.agent
    path = agent.worktree.path if agent.worktree else agent.cwd
    shown = {"name": agent.name, "branch": agent.birth_branch, "path": path}
    return _text({**shown, **_left_out(agent)})


async def spawn_workers(
    hub: Hub,
    ctx: Context[Any],
    workers: Annotated[list[WorkerWish], Field(min_length=1, max_length=64)],
) -> str:
    """Start agents that work in your own directory, beside you, with no branch of their own.

    For looking things up, reviewing, or work on files that nobody else touches. All of them start,
    or none does. Returns their names at once; each reports to you: call wait_for_event."""
    caller = caller_of(hub, ctx)
    wishes = [
        ChildWish(task=each.task, name=each.name, role=each.role, engine=each.engine)
        for each in workers
    ]
    children = await hub.spawner.spawn(caller.live, wishes, caller.request)
    started = [
        {"name": each.agent.name, "path": each.agent.cwd, **_left_out(each.agent)}
        for each in children
    ]
    return _text({"started": started})


def _left_out(agent: Agent) -> dict[str, tuple[str, ...]]:
    """What its role has, and you may not grant."""
    return _not_granted(agent.not_granted)


def _not_granted(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {"not_granted": names} if names else {}


async def notify_parent(
    hub: Hub,
    ctx: Context[Any],
    status: Annotated[
        Literal["success", "failure"], Field(description="Whether your task is done.")
    ],
    message: Annotated[
        str,
        Field(description="What you did, what you checked, what is left; of a failure: why."),
    ],
) -> str:
    """Report to the agent that started you, or to the person if nobody did.

    Call it once, at the end of your task. Returns when the report is stored: it arrives even if
    everything is restarted."""
    caller = caller_of(hub, ctx)
    if len(message.encode()) > MOST_MESSAGE:
        raise BullpenError(
            f"a report has at most {MOST_MESSAGE >> 10} KiB",
            hint="write the details to a file, commit it, and name it in the message",
        )
    hub.quotas.spend(caller.name, {"messages": 1, "message_bytes": len(message.encode())})
    parent = await hub.children.report(caller.live, status, message, caller.request)
    return _text({"ack": True, "to": parent})


async def wait_for_event(
    hub: Hub,
    ctx: Context[Any],
    timeout_seconds: Annotated[
        float, Field(gt=0, le=MOST_WAIT_SECONDS, description="Then kind is timeout; default 1 h.")
    ] = WAIT_SECONDS,
    kinds: Annotated[
        list[str],
        Field(max_length=20, description=f"Only these: {', '.join(KINDS)}. Left out: all."),
    ] = [],  # noqa: B006 - the SDK reads the default
    after: Annotated[
        int,
        Field(
            ge=0, le=LARGEST, description="The id of the last event that you got: acknowledges it."
        ),
    ] = 0,
) -> str:
    """Wait until one of your agents reports, ends, is idle or blocked, until a task that you gave
    is over, or somebody writes to you.

    Returns {id, kind, from, at, data}. Kinds: child_finished (its report: status and message),
    child_exited (it ended without a report), child_idle (its turn ended without a report),
    child_blocked (it has waited for a person for a minute), task_finished (of a task that you gave
    with delegate_task: task_id, state, output), message (call read_messages), timeout.
    Pass the id as `after` in your next call: an event that you do not acknowledge comes again.
    Waiting for hours is fine. After a connection error call again: nothing is lost."""
    caller = caller_of(hub, ctx)
    unknown = sorted({*kinds} - {*KINDS})
    if unknown:
        raise BullpenError(f"no such kind: {', '.join(unknown)}", hint=f"one of {', '.join(KINDS)}")
    to = hub.children.receiver(caller.name)
    if after:
        await hub.queue.acknowledge(to, after)
    with hub.queue.waiting(caller.name):
        await hub.mail_events.look(caller.name)
        event = await hub.queue.next_event(to, kinds)
        if event is None:
            await _show_waiting(hub, caller)
            event = await hub.queue.next_event(to, kinds, timeout_seconds)
    if event is None:
        return _text({"kind": "timeout", "after": after})
    return _text(_shown(event))


async def _show_waiting(hub: Hub, caller: Caller) -> None:
    """For people: it works, and on what. Of a program without hooks nobody would say that the wait
    is over."""
    if not get_engine(caller.live.agent.engine).is_model:
        return
    state = Working(doing="waiting for children")
    report = EngineReport(
        at=max(time.time(), caller.live.view.told_at),
        source="tool wait_for_event",
        says="open",
        state=state,
    )
    await hub.observer.observe(caller.live, report)


def _shown(event: ChildEvent) -> dict[str, Any]:
    return event.model_dump(mode="json", by_alias=True)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


TOOLS = (spawn_subtree, spawn_workers, notify_parent, wait_for_event)
