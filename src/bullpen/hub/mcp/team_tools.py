"""Tools of everybody: write, read, see who there is and what they did. Registered by `server`."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field

from bullpen import worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.agents.worktrees import site_of
from bullpen.hub.fleet_children.states import Hosts, read_hosts, state_of
from bullpen.hub.mcp.caller import Caller, caller_of
from bullpen.hub.parts import Hub
from bullpen.hub.tree_threads import LOOK_SECONDS
from bullpen.model.fleet_child import RemoteChild
from bullpen.model.message import ROOT, TEXT_BYTES, Message, Priority, is_for
from bullpen.model.state import words
from bullpen.model.tree import is_elsewhere, kind_of
from bullpen.text import printable
from bullpen.worktrees.changes import VerifiedCheckout, changes_since
from bullpen.worktrees.git import git
from bullpen.worktrees.state import get_checkout

SHOWN_AGAIN_SECONDS = 60.0
MOST_MESSAGES = 50
MOST_PATCH = 100 << 10

Name = Annotated[str, Field(description="An agent's name, as list_agents shows it.")]


async def send_message(
    hub: Hub,
    ctx: Context[Any],
    to: Annotated[str, Field(description="An agent's name, `parent`, or `root` for the person.")],
    text: str,
    priority: Annotated[
        Priority,
        Field(description="normal: after its turn. urgent: at its next tool. interrupt: now."),
    ] = "normal",
) -> str:
    """Write to another agent, to the agent that started you, or to the person.

    Stored when this returns; it arrives when that agent can take it. To end your own task use
    notify_parent instead."""
    caller = caller_of(hub, ctx)
    name = hub.children.family().parent(caller.name) if to == "parent" else to
    host, slash, _ = name.partition("/")
    is_elsewhere = bool(slash) and host != hub.fleet.name
    if is_elsewhere:
        await hub.fleet.check_host(host)
    elif name != ROOT:
        name = name.removeprefix(f"{host}/")
        hub.registry.get(name)
    size = len(text.encode("utf-8", "replace"))
    if not text or size > TEXT_BYTES or "\0" in text:
        raise BullpenError(
            f"a message has 1 to {TEXT_BYTES} bytes and no NUL", hint="put it into a file"
        )
    hub.quotas.spend(caller.name, {"messages": 1, "message_bytes": size})
    message = Message(
        id=f"m-{caller.key('message', 12)}",
        sender=caller.name,
        to=name,
        text=text,
        priority=priority,
        created=time.time(),
    )
    if is_elsewhere:
        stored = await hub.fleet.mail.send(message, caller.name)
    else:
        stored = await hub.delivery.send(message)
    return json.dumps({"id": stored.id, "to": name, "status": stored.status})


async def read_messages(hub: Hub, ctx: Context[Any]) -> str:
    """Read what others wrote to you and you have not seen yet, the oldest first.

    They count as read from then on. You need not ask again and again: messages are also shown to
    you by themselves between two turns, and wait_for_event returns when one comes."""
    caller = caller_of(hub, ctx)
    since = time.time() - SHOWN_AGAIN_SECONDS
    born = caller.live.agent.created
    inbox = [one for one in await hub.messages.inbox(caller.name, 1000) if is_for(one, born)]
    # Also what was just read: the answer to the first call may have been lost with a hub.
    new = [one for one in inbox if one.read is None or one.read > since][:MOST_MESSAGES]
    await hub.messages.mark_read(new)
    if not new:
        return "no new messages"
    return "\n\n".join(f"[message from {one.sender} · {one.id}]\n{one.text}" for one in new)


async def list_agents(hub: Hub, ctx: Context[Any]) -> str:
    """List the agents of this home, and yours on other machines (HOST/NAME): name, role, state,
    parent, and how each is related to you."""
    caller = caller_of(hub, ctx)
    rows = [
        _row(hub, caller, live)
        for live in hub.registry
        if live.is_running or _is_under(hub, caller, live)
    ]
    away = [child for child in hub.child_rows.remote.values() if _is_yours(hub, caller, child)]
    hosts = await read_hosts(hub.fleet.show, away)
    rows += [_row_elsewhere(caller, child, hosts) for child in away]
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


async def agent_status(hub: Hub, ctx: Context[Any], name: Name) -> str:
    """Say what one agent is doing, since when, on which branch, and what it reported last."""
    caller = caller_of(hub, ctx)
    if is_elsewhere(name):
        return await _status_elsewhere(hub, caller, name)
    live = hub.registry.get(name)
    row = _row(hub, caller, live)
    row["since_seconds"] = round(time.time() - live.view.since)
    if _is_under(hub, caller, live):
        duty = hub.children.duty(live.agent)
        row["reported"] = duty.reported or None
        row["report"] = duty.message
        row["said"] = hub.last_answers.by_name().get(name, "")
        row["path"] = live.agent.cwd
    return json.dumps(row, ensure_ascii=False)


async def agent_diff(hub: Hub, ctx: Context[Any], name: Name) -> str:
    """Show what one of your agents, or you yourself, changed since its branch began: commits,
    files, and the patch of what is committed. Look at it before you use the work. Of an agent on
    another machine: what it had committed when it last reported."""
    caller = caller_of(hub, ctx)
    if is_elsewhere(name):
        child = await hub.asked_children.fetch_late(_find_yours(hub, caller, name))
        return await hub.context.trees.look(name, "tool diff", lambda: _diff_elsewhere(child))
    live = hub.registry.get(name)
    if name != caller.name and not _is_under(hub, caller, live):
        raise BullpenError(
            f"{name} is no agent of yours: you see the work of those that you started",
            hint=f"ask it with send_message to {name}",
            kind=Kind.DENIED,
        )
    if live.agent.worktree is None:
        raise BullpenError(
            f"{name} has no worktree of its own: what it changed is in {live.agent.cwd}",
            hint="look there with git diff",
            kind=Kind.CONFLICT,
        )
    await hub.private_gits.bring_over(live)
    return await hub.context.trees.look(name, "tool diff", lambda: _diff_text(hub, live))


def _diff_text(hub: Hub, live: LiveAgent) -> str:
    worktree = live.agent.worktree
    assert worktree is not None
    site = site_of(hub.home, hub.settings, worktree)
    stat = worktrees.diff_stat(site, worktree.name, seconds=LOOK_SECONDS)
    lines = [
        f"{stat.commits.count} commits on {live.agent.birth_branch}",
        *(f"  {subject}" for subject in stat.commits.subjects),
        f"committed: {_counts(stat.committed)}",
        f"not committed: {_counts(stat.uncommitted)}",
        *(f"  {printable(each)}" for each in stat.names),
    ]
    record = worktrees.find_record(site, worktree.name)
    if record is None:
        return "\n".join(lines)
    checkout = get_checkout(site, worktree.name)
    repo = replace(site.repo, git_dir=checkout.admin, root=checkout.path)
    patch = changes_since(VerifiedCheckout(repo, checkout.path), record.base_commit)
    return "\n".join([*lines, "", patch.committed[:MOST_PATCH], patch.uncommitted[:MOST_PATCH]])


# ── on other machines ──


def _is_yours(hub: Hub, caller: Caller, child: RemoteChild) -> bool:
    is_above = hub.children.family().is_above(caller.name, child.parent)
    return child.state == "started" and (child.parent == caller.name or is_above)


def _find_yours(hub: Hub, caller: Caller, name: str) -> RemoteChild:
    child = hub.child_rows.find_named(name)
    if child is None or not _is_yours(hub, caller, child):
        raise BullpenError(
            f"{name} is no agent of yours: of other machines you see those that you started",
            hint=f"ask it with send_message to {name}",
            kind=Kind.NOT_FOUND,
        )
    return child


def _row_elsewhere(caller: Caller, child: RemoteChild, hosts: Hosts) -> dict[str, Any]:
    there = state_of(child, hosts)
    return {
        "name": child.full_name,
        "role": child.role,
        "state": printable(there.words),
        "kind": "subtree",
        "parent": child.parent,
        "relation": "your child" if child.parent == caller.name else "below you",
        "branch": child.branch,
    }


async def _status_elsewhere(hub: Hub, caller: Caller, name: str) -> str:
    child = _find_yours(hub, caller, name)
    hosts = await read_hosts(hub.fleet.show, [child])
    row = _row_elsewhere(caller, child, hosts)
    row["since_seconds"] = round(time.time() - state_of(child, hosts).since)
    row["reported"] = child.reported or None
    row["report"] = child.message
    row["path"] = child.path
    return json.dumps(row, ensure_ascii=False)


def _diff_elsewhere(child: RemoteChild) -> str:
    """Of what came with its last report; its branch is a plain one here."""
    if child.problem or not child.tip:
        return child.problem or f"{child.full_name} has not reported yet: nothing of it is here"
    repo = worktrees.open_repository(Path(child.repo))
    between = f"{child.base}..{child.tip}"
    lines = git(repo, "log", "--reverse", "--format=%s", between).text.splitlines()
    files = [f"  {printable(each)}" for each in child.uncommitted]
    patch = git(repo, "diff", "--no-ext-diff", "--no-textconv", child.base, child.tip).text
    return "\n".join(
        [
            f"{len(lines)} commits on {child.home_branch or child.branch}",
            *(f"  {printable(line)}" for line in lines[:MOST_MESSAGES]),
            f"not committed there: {len(files)} files",
            *files,
            "",
            patch[:MOST_PATCH],
        ]
    )


def _counts(stat: worktrees.Stat) -> str:
    return f"{stat.files} files, +{stat.insertions} −{stat.deletions}"


def _is_under(hub: Hub, caller: Caller, live: LiveAgent) -> bool:
    return hub.children.family().is_above(caller.name, live.agent.name)


def _row(hub: Hub, caller: Caller, live: LiveAgent) -> dict[str, Any]:
    agent = live.agent
    family = hub.children.family()
    parent = family.parent(agent.name)
    relation = "peer"
    if agent.name == caller.name:
        relation = "you"
    elif parent == caller.name:
        relation = "your child"
    elif family.parent(caller.name) == agent.name:
        relation = "your parent"
    elif family.is_above(caller.name, agent.name):
        relation = "below you"
    return {
        "name": agent.name,
        "role": agent.role,
        "engine": agent.engine,
        "state": printable(words(live.view.state)),
        "kind": kind_of(agent),
        "parent": parent,
        "relation": relation,
        "branch": agent.birth_branch,
    }


TOOLS = (send_message, read_messages, list_agents, agent_status, agent_diff)
