"""Tools for agents with the capability `delegate`: give tasks to agents that take them. Registered
by `server`. A task runs with the rights of the agent that takes it."""

import asyncio
import json
import time
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field, ValidationError

from bullpen.errors import BullpenError, Kind
from bullpen.home.overrides import load_changed_role
from bullpen.hub.mcp.caller import Caller, caller_of
from bullpen.hub.mcp.landing_tools import show_landing
from bullpen.hub.parts import Hub
from bullpen.hub.tasks import task_changes
from bullpen.hub.tasks.grants import check_task_agent
from bullpen.hub.tasks.run_plan import load_worker
from bullpen.model.event import Draft
from bullpen.model.landing import Landing, Refused
from bullpen.model.landing_rules import Strategy
from bullpen.model.rights import limited
from bullpen.model.role import Budget, Role
from bullpen.model.task import Giver, QueuedTaskRequest, Task
from bullpen.model.task_shown import show
from bullpen.model.usage import is_set

MOST_OUTPUT = 20_000
MOST_PATCH = 100 << 10

TaskId = Annotated[str, Field(description="The task_id that delegate_task returned.")]
NO_MONEY = "nothing of your budget is left to give: it is spent, or your tasks and children have it"


async def delegate_task(
    hub: Hub,
    ctx: Context[Any],
    prompt: Annotated[str, Field(description="The whole task.")],
    agent: Annotated[str, Field(description="The agent that is to do it, when it is free.")] = "",
    role: Annotated[str, Field(description="Or: any free agent of this role.")] = "",
    branch_name: Annotated[
        str,
        Field(
            description="For work on the repository that you work in: the branch that it is to be"
            " on, e.g. csv-export, in a worktree that is made for your tasks. A new one begins at"
            " your own branch as it is when the task begins. Left out: an empty directory."
        ),
    ] = "",
    continue_task: Annotated[
        str,
        Field(
            description="Or, instead of all of these: the task_id of an earlier task of yours,"
            " whose agent goes on in the same conversation and directory."
        ),
    ] = "",
) -> str:
    """Give a task to an agent that takes tasks: name the agent, or a role.

    Returns its task_id at once; it waits in the queue until somebody is free. Call wait_for_event:
    it returns task_finished when the task is over. task_diff shows what it changed, task_status
    its whole output; merge_task takes what it committed into your branch. What it costs is part of
    your budget."""
    caller = caller_of(hub, ctx)
    own_role = await _check_capability(hub, caller)
    hub.quotas.spend(caller.name, {"messages": 1, "message_bytes": len(prompt.encode())})
    fields: dict[str, Any] = {"prompt": prompt, "request": caller.key("task", 32)}
    if continue_task:
        if agent or role or branch_name:
            raise BullpenError("continue_task says who goes on, and where: nothing beside it")
        earlier = await _own_task(hub, caller, continue_task)
        agent = earlier.agent
        fields["session_id"] = earlier.session_id
    elif bool(agent) == bool(role):
        raise BullpenError("name either the agent or the role", hint="list_agents shows both")
    giver = _giver(hub, caller, own_role)
    await asyncio.to_thread(_check_taker, hub, giver, agent, role)
    if branch_name:
        fields |= {"repo": _repository_of(hub, caller), "worktree": branch_name}
        own = await hub.task_merger.find_branch(caller.live)
        giver = giver.model_copy(update={"branch": own})
    if caller.live.agent.is_sandboxed:  # else it could leave its sandbox
        fields["sandboxed"] = "required"
    fields |= {"agent": agent or None, "role": role or None, "keep_open": False}
    task = await _offer(hub, caller, giver, fields)
    data = {"run": caller.live.agent.run, "task": task.id}
    note = Draft(time.time(), "child.delegated", caller.name, data, f"delegated:{task.id}")
    await hub.store.append(note)
    return json.dumps({"task_id": task.id, "state": task.state})


async def _offer(hub: Hub, caller: Caller, giver: Giver, fields: dict[str, Any]) -> Task:
    """With its part of the caller's budget. One at a time: a part that was given is no longer there
    for the next."""
    agent = caller.live.agent
    async with hub.delegating:
        known = await hub.tasks.board.rows.find_request(fields["request"])
        part = hub.budgets.share(agent, 1) if known is None else Budget()
        if part is None:
            raise BullpenError(NO_MONEY, hint="report what is done and left", kind=Kind.DENIED)
        try:
            request = QueuedTaskRequest(**fields, budget=part if is_set(part) else None)
        except ValidationError as error:
            raise BullpenError(f"that is no task: {error.errors()[0]['msg']}") from error
        return await hub.tasks.offer(request, giver=giver)


def _repository_of(hub: Hub, caller: Caller) -> str:
    """That the caller works in: its own worktree's, or that of its present task."""
    common = caller.live.agent.worktree.repo if caller.live.agent.worktree else ""
    task = hub.tasks.current(caller.name)
    if task is not None:
        session = hub.tasks.board.live[task.id].session
        common = session.repo or session.common_dir
    if not common:
        raise BullpenError(
            "you do not work in a git repository, so there is nothing to branch from",
            hint="leave out branch_name, or ask for a goal with a repository",
            kind=Kind.CONFLICT,
        )
    return common.removesuffix("/.git")


async def task_status(hub: Hub, ctx: Context[Any], task_id: TaskId) -> str:
    """Say how far a task is that you delegated, and what it came to."""
    caller = caller_of(hub, ctx)
    task = await _own_task(hub, caller, task_id)
    shown = show(task, time.time())
    fields = {
        "task_id": task_id,
        "state": shown.state,
        "agent": shown.agent,
        "output": (shown.output or "")[-MOST_OUTPUT:],
        "error": shown.error.model_dump(mode="json") if shown.error else None,
        "cost_usd": shown.cost_usd,
    }
    return json.dumps(fields, ensure_ascii=False)


async def task_diff(hub: Hub, ctx: Context[Any], task_id: TaskId) -> str:
    """Show what a task that you delegated changed in its repository: commits, and the patches of
    what is committed and of what is not. Look at it before you use the work."""
    caller = caller_of(hub, ctx)
    task = await _own_task(hub, caller, task_id)
    changes, older = await asyncio.to_thread(task_changes.find, hub.home, task)
    if changes is None:
        return (
            older or "nothing is known of changes: it works in no git repository, or has not begun"
        )
    parts = (
        ("commits", changes.log),
        ("committed", changes.committed),
        ("staged", changes.staged),
        ("not committed", changes.uncommitted),
    )
    return "\n\n".join(f"{name}:\n{text[:MOST_PATCH]}" for name, text in parts if text.strip()) or (
        "it changed nothing"
    )


async def cancel_task(hub: Hub, ctx: Context[Any], task_id: TaskId) -> str:
    """Cancel a task that you delegated. One that is over stays as it is."""
    caller = caller_of(hub, ctx)
    await _own_task(hub, caller, task_id)
    task = await hub.tasks.cancel(task_id)
    return json.dumps({"task_id": task_id, "state": task.state})


async def merge_task(
    hub: Hub,
    ctx: Context[Any],
    task_id: TaskId,
    strategy: Annotated[
        Strategy | None, Field(description="Left out: as the project has it, else merge.")
    ] = None,
) -> str:
    """Merge what a task that you delegated has committed on its branch into your own branch and
    files.

    Look at task_diff first. The task must be over, and nothing of it uncommitted. If it does not
    fit, nothing of yours changes, and the result says what to do: have the same agent solve it
    (continue_task), and call merge_task with that task. Tasks that you delegate afterwards begin
    with what has landed. When your own task is over, worktrees and branches of tasks that have
    landed are removed."""
    caller = caller_of(hub, ctx)
    task = await _own_task(hub, caller, task_id)
    landing = await hub.task_merger.merge_task(caller.live, task, strategy)
    return json.dumps(_show_merged(landing), ensure_ascii=False)


def _show_merged(landing: Landing) -> dict[str, Any]:
    shown = show_landing(landing)
    status = landing.status
    if "hint" in shown:
        shown["hint"] = shown["hint"].replace("merge_child", "merge_task")
    if isinstance(status, Refused) and status.why:
        how = "solve it" if status.why == "conflict" else "mend it"
        shown |= {
            "why": status.why,
            "hint": f"delegate_task with continue_task {landing.task} and a prompt that says: git"
            f" merge {status.base}, {how}, commit. Then merge_task with the new task.",
        }
    return shown


async def _check_capability(hub: Hub, caller: Caller) -> Role:
    """Its role, which lets it delegate."""
    agent = caller.live.agent
    role = None
    if agent.role:
        role = await asyncio.to_thread(
            load_changed_role, hub.home, agent.role, agent.pod, agent.overrides
        )
    if role is None or "delegate" not in limited(role, agent.ceiling).capabilities:
        raise BullpenError(
            f"{caller.name} may not delegate: its role has no capabilities: [delegate]",
            hint="do it yourself, or start an agent with spawn_subtree",
            kind=Kind.DENIED,
        )
    task = hub.tasks.current(caller.name)
    if task is not None and (task.giver or task.wish.budget):
        # What it gave would be in no budget of those above it.
        raise BullpenError(
            "a task that an agent gave, or that has a budget of its own, gives no others",
            hint="do it yourself, or report what others have to do",
            kind=Kind.DENIED,
        )
    return role


def _giver(hub: Hub, caller: Caller, role: Role | None = None) -> Giver:
    agent, task = caller.live.agent, hub.tasks.current(caller.name)
    return Giver(
        name=agent.name,
        born=agent.created,
        task=task.id if task else "",
        may_grant=(role.may_grant if role else None) or "",
        pod=agent.pod,
    )


def _check_taker(hub: Hub, giver: Giver, agent: str, role: str) -> None:
    """An agent is more than its role: its file and its overrides count."""
    if agent:
        target = hub.registry.get(agent).agent
        check_task_agent(hub.home, giver, agent, load_worker(hub.home, target).role)
    else:
        wanted = load_changed_role(hub.home, role, "", ())
        check_task_agent(hub.home, giver, f"an agent of role {role}", wanted)


async def _own_task(hub: Hub, caller: Caller, task_id: str) -> Task:
    """Of another task of the caller it knows nothing: that may be about another repository."""
    task = await hub.tasks.board.rows.find(task_id)
    if task is None or task.giver is None or not task.giver.is_same(_giver(hub, caller)):
        raise BullpenError(
            f"{task_id} is no task that you delegated",
            hint="use a task_id that delegate_task returned to you",
            kind=Kind.DENIED,
        )
    return await hub.tasks.board.get(task_id)


TOOLS = (delegate_task, task_status, task_diff, merge_task, cancel_task)
