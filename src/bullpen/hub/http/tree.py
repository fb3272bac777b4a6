"""`/tree`: who descends from whom; queues of events; waiting for agents; ending a whole tree."""

import asyncio
import time
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import PlainTextResponse

from bullpen.errors import BullpenError, Kind
from bullpen.hub.fleet_children.states import Hosts, read_hosts, state_of
from bullpen.hub.http.agents import shown
from bullpen.hub.http.guard import actor_of, owner_only, owner_or_self
from bullpen.hub.http.parameters import TEXT, AsText, Columns, Grace, Iso, Name, as_json
from bullpen.hub.http.state import HubPart
from bullpen.hub.parts import Hub
from bullpen.hub.render.tree import tree_text
from bullpen.model.agent_shown import StoppedTree
from bullpen.model.child_event import ChildEvents
from bullpen.model.fleet_child import RemoteChild
from bullpen.model.message import ROOT
from bullpen.model.state import words
from bullpen.model.tree import OVER, Family, kind_of, outcome_of
from bullpen.model.tree_shown import Tree, TreeNode, Waited, Waiting

router = APIRouter(tags=["tree"])
owner = Depends(owner_only)
itself = Depends(owner_or_self)

MOST_WAIT_SECONDS = 60.0
LARGEST = 1 << 62
Seconds = Annotated[
    float,
    Query(ge=0, le=MOST_WAIT_SECONDS, allow_inf_nan=False, description="how long to wait for it"),
]


@router.get("/tree", response_model=Tree, responses=TEXT)
async def get_tree(
    request: Request,
    hub: HubPart,
    text: AsText = False,
    colour: Annotated[bool, Query(description="text with colours for a terminal")] = False,
    columns: Columns = 0,
    iso: Iso = False,
) -> Any:
    """Every agent under the one that started it. Who started whom is in their sessions; a child
    whose parent is gone stands under the person."""
    hosts = await read_hosts(hub.fleet.show, hub.child_rows.remote.values())
    tree = _tree(hub, hub.landings.notes() if actor_of(request).is_owner else {}, hosts)
    if text:
        return PlainTextResponse(tree_text(tree, now=time.time(), colour=colour, columns=columns))
    return as_json(tree, iso)


def _tree(hub: Hub, landing: Mapping[str, str], hosts: Hosts) -> Tree:
    family = hub.children.family()
    here = [_node(hub, family, landing, hosts, name) for name in family.children(ROOT)]
    there = [
        _node_elsewhere(child, landing, hosts)
        for child in hub.child_rows.remote.values()
        if child.parent not in family.by_name and child.state != "refused"
    ]
    return Tree(agents=tuple(here + there))


def _node_elsewhere(child: RemoteChild, landing: Mapping[str, str], hosts: Hosts) -> TreeNode:
    there = state_of(child, hosts)
    return TreeNode(
        name=child.full_name,
        kind="subtree",
        role=child.role,
        branch=child.branch,
        state=there.state,
        words=there.words,
        since=there.since,
        running=there.running,
        reported=child.reported,
        reported_at=child.reported_at or None,
        landing=landing.get(child.full_name, ""),
        usd=child.used.usd,
        budget_usd=child.ceiling.budget.usd,
    )


def _node(
    hub: Hub, family: Family, landing: Mapping[str, str], hosts: Hosts, name: str
) -> TreeNode:
    live = hub.registry.get(name)
    agent, duty = live.agent, hub.children.duty(live.agent)
    return TreeNode(
        name=name,
        kind=kind_of(agent),
        role=agent.role,
        engine=agent.engine,
        branch=agent.birth_branch,
        state=live.view.state,
        words=words(live.view.state),
        since=live.view.since,
        running=live.is_running,
        reported=duty.reported,
        reported_at=duty.reported_at or None,
        landing=landing.get(name, ""),
        usd=hub.usage.of(agent).usd,
        budget_usd=agent.budget.usd,
        children=(
            *(_node(hub, family, landing, hosts, child) for child in family.children(name)),
            *(_node_elsewhere(child, landing, hosts) for child in hub.child_rows.list_of(name)),
        ),
    )


@router.get("/agents/{name}/queue", response_model=ChildEvents, dependencies=[itself])
async def list_queue(
    hub: HubPart,
    name: Name,
    after: Annotated[int, Query(ge=0, le=LARGEST, description="the `last` of the page before")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    seconds: Seconds = 0.0,
) -> Any:
    """What reached the queue of an agent, or of `root`, the oldest first: reports and ends of its
    children. Reading acknowledges nothing. Agents see their own only."""
    if name != ROOT:
        hub.registry.get(name)
    to = hub.children.receiver(name)
    events = await hub.queue.list_events(to, after, limit, seconds)
    return ChildEvents(events=tuple(events), last=events[-1].id if events else after)


@router.get("/wait", response_model=Waiting, dependencies=[owner])
async def wait_for_agents(
    hub: HubPart,
    names: Annotated[str, Query(max_length=10_000, description="of agents, with commas between")],
    any: Annotated[bool, Query(description="until one of them is over; else all")] = False,
    seconds: Seconds = 0.0,
) -> Any:
    """Whether agents are idle, finished, blocked or gone; answered when that is so, or after
    `seconds`."""
    wanted = [name for name in names.split(",") if name]
    if not wanted:
        raise BullpenError("wait for which agents?", kind=Kind.INVALID)
    deadline = time.monotonic() + seconds
    while True:
        changed = hub.children.changed()
        waited = tuple(_waited(hub, name) for name in wanted)
        are_over = [each.outcome in OVER for each in waited]
        is_over = True in are_over if any else all(are_over)
        left = deadline - time.monotonic()
        if is_over or left <= 0:
            return Waiting(over=is_over, agents=waited)
        try:
            async with asyncio.timeout(left):
                await changed.wait()
        except TimeoutError:
            continue


def _waited(hub: Hub, name: str) -> Waited:
    live = hub.registry.get(name)
    # One that takes tasks reads its messages with the next of them, whenever that comes.
    has_mail = not live.agent.takes_tasks and hub.messages.count_open(name) > 0
    outcome = outcome_of(live.view, hub.children.duty(live.agent).reported, has_mail=has_mail)
    if hub.queue.is_waiting(name):
        outcome = "working"
    return Waited(name=name, outcome=outcome, words=words(live.view.state))


@router.delete("/tree/{name}", response_model=StoppedTree, dependencies=[owner])
async def stop_tree(hub: HubPart, name: Name, grace: Grace = None) -> Any:
    """End an agent and all that descend from it, leaves first. Answered when all are over."""
    hub.registry.get(name)
    family = hub.children.family()
    ended = []
    for each in [*family.under(name), name]:
        live = hub.registry.find(each)
        if live is not None and (live.is_running or each == name):
            ended.append(shown(await hub.stopper.stop(each, grace)))
    return StoppedTree(agents=tuple(ended))
