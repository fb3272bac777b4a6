"""`/agents`: list, start, look at, type into, stop, start again."""

import asyncio
import os
import time
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import PlainTextResponse

from bullpen import worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.agents.worktrees import find_base, site_of
from bullpen.hub.holders import link as holder_link
from bullpen.hub.http.guard import Actor, actor_of, owner_only, owner_or_self
from bullpen.hub.http.parameters import (
    TEXT,
    AsText,
    Colour,
    Columns,
    Grace,
    Iso,
    Name,
    as_json,
)
from bullpen.hub.http.state import HubPart
from bullpen.hub.parts import Hub
from bullpen.hub.render.agents import agent_text, explain_text, list_text, summary_text
from bullpen.hub.tree_threads import LOOK_SECONDS
from bullpen.model.agent import Agent
from bullpen.model.agent_shown import (
    AgentList,
    AgentRemoved,
    AgentShown,
    AgentStarted,
    AgentWithUsage,
    Diff,
    DiffCounts,
    Explained,
    Position,
    Screenful,
    Typed,
    listed_only,
)
from bullpen.model.event import Draft
from bullpen.model.launch import Launch
from bullpen.model.message import ROOT
from bullpen.model.state import Blocked, Evidence, words
from bullpen.terminal.screen import Screen
from bullpen.text import printable

router = APIRouter(tags=["agents"])
owner = Depends(owner_only)
itself = Depends(owner_or_self)


def shown(live: LiveAgent, *, for_peer: bool = False) -> AgentShown:
    """The agent with its state; for another agent what a list needs."""
    agent = listed_only(live.agent) if for_peer else live.agent
    return AgentShown(
        **agent.model_dump(),
        state=live.view.state,
        words=words(live.view.state),
        since=live.view.since,
        running=live.is_running,
    )


def with_usage(hub: Hub, live: LiveAgent, actor: Actor) -> AgentWithUsage:
    """The agent with its state and its figures, as far as the actor may know them."""
    used, messages = hub.usage.of(live.agent), waiting(hub, live.agent.name)
    is_peer = _is_peer(actor, live)
    return AgentWithUsage(
        **dict(shown(live, for_peer=is_peer)),
        tokens=used.tokens,
        usd=used.usd,
        messages=messages,
        summary=summary_text(used, messages),
        branch=hub.task_branches.find(live.agent),
        port=None if is_peer else hub.task_agents.ports.number(live.agent.name),
    )


def _answered_in_terminal(hub: Hub, lives: Iterable[LiveAgent]) -> tuple[str, ...]:
    """Whose engine asks for something in its own terminal alone: nothing is in the inbox for it."""
    runs = {approval.run for approval in hub.permissions.approvals.waiting()}
    return tuple(
        live.agent.name
        for live in lives
        if isinstance(live.view.state, Blocked)
        and live.view.state.on != "dialog"
        and live.agent.run not in runs
    )


def _is_peer(actor: Actor, live: LiveAgent) -> bool:
    return not actor.is_owner and actor.agent != live.agent.name


def waiting(hub: Hub, name: str) -> int:
    """How many messages are not delivered to it."""
    return hub.messages.count_open(name)


@router.get("/agents", response_model=AgentList, responses=TEXT)
async def list_agents(
    hub: HubPart,
    request: Request,
    pod: Annotated[
        str | None, Query(max_length=80, description="only this pod's; `*`: all pods'")
    ] = None,
    own_pod: Annotated[
        str, Query(max_length=80, description="the pod to take when `pod` is not given")
    ] = "",
    text: AsText = False,
    colour: Colour = False,
    columns: Columns = 0,
    iso: Iso = False,
) -> Any:
    """All agents with their states, those that have ended too, in the order of names. As text it
    is what `bullpen list` prints: pods apart, directors and bridges last."""
    wanted = pod if pod is not None else own_pod
    one_pod = "" if wanted == "*" else wanted
    lives = [live for live in hub.registry if not one_pod or live.agent.pod == one_pod]
    # Of which pod those are that cannot be read, nobody knows.
    broken = {} if one_pod else dict(hub.registry.broken)
    is_owner = actor_of(request).is_owner
    directors = await hub.directors.notable() if is_owner else ()
    if text:
        bridges = [one for one in await hub.components.living() if one.kind == "bridge"]
        now = time.time()
        used = hub.usage.by_name()
        # For the owner's eyes: an agent cannot answer them.
        approvals = hub.permissions.approvals.for_person() if is_owner else []
        body = list_text(
            lives,
            broken,
            bridges,
            directors,
            pod=one_pod,
            usage=used,
            waiting={name: waiting(hub, name) for name in hub.messages.receivers()},
            latest_words=hub.last_answers.by_name() if is_owner else {},
            landing=hub.landings.notes() if is_owner else {},
            branches={live.agent.name: hub.task_branches.find(live.agent) for live in lives},
            approvals=len(approvals),
            in_terminal=_answered_in_terminal(hub, lives) if is_owner else (),
            unread=waiting(hub, ROOT) if is_owner else 0,
            note=hub.settings_watch.note if is_owner else "",
            colour=colour,
            now=now,
            columns=columns,
        )
        return PlainTextResponse(body)
    actor = actor_of(request)
    agents = tuple(with_usage(hub, live, actor) for live in lives)
    return as_json(AgentList(agents=agents, broken=broken, directors=directors), iso)


@router.post("/agents", status_code=201, response_model=AgentStarted, dependencies=[owner])
async def start_agent(hub: HubPart, body: Launch, request: Request) -> Any:
    """Start an agent; answered when its program runs. A role says what it is; without one, `words`
    are the program and its arguments. Asked twice with the same `run`, it starts once."""
    if actor_of(request).host:  # what a shell of another machine has is not for this one
        body = body.model_copy(update={"env": {**os.environ, **body.env}})
    return await started(hub, await hub.launcher.launch(body))


async def started(hub: Hub, live: LiveAgent) -> AgentStarted:
    """The agent, with where its work begins."""
    return AgentStarted(
        **dict(shown(live)),
        left_conversation=live.left_conversation,
        branched_from=await asyncio.to_thread(find_base, hub.home, hub.settings, live.agent),
        branch_was_there=live.branch_was_there,
    )


@router.get("/agents/{name}", response_model=AgentWithUsage, responses=TEXT)
async def get_agent(
    hub: HubPart, name: Name, request: Request, text: AsText = False, iso: Iso = False
) -> Any:
    """One agent, running or ended. Of another agent an agent sees what the list shows: the other
    fields are empty."""
    live, actor = hub.registry.get(name), actor_of(request)
    if text:
        used, why = hub.usage.of(live.agent), hub.delivery.why(name)
        is_peer = _is_peer(actor, live)
        branch = hub.task_branches.find(live.agent)
        messages = waiting(hub, name)
        return PlainTextResponse(
            agent_text(live, used, messages, why, branch=branch, for_peer=is_peer)
        )
    return as_json(with_usage(hub, live, actor), iso)


@router.delete("/agents/{name}", response_model=AgentShown, dependencies=[owner])
async def stop_agent(hub: HubPart, name: Name, grace: Grace = None) -> Any:
    """End its program: SIGTERM, after the grace SIGKILL. Answered when it is over, also if it was
    over before. Its session stays until `gc`."""
    return shown(await hub.stopper.stop(name, grace))


@router.post("/agents/{name}/restart", response_model=AgentStarted, dependencies=[owner])
async def restart_agent(hub: HubPart, name: Name, grace: Grace = None) -> Any:
    """Start it again with the same identity; stopped first if it runs."""
    return await started(hub, await hub.launcher.restart(name, grace))


@router.post("/agents/{name}/resume", response_model=AgentStarted, dependencies=[owner])
async def resume_agent(hub: HubPart, name: Name) -> Any:
    """Start an agent that has ended again: same identity and worktree, its conversation goes on.
    One that runs is refused, never stopped."""
    return await started(hub, await hub.launcher.resume(name))


Keys = Annotated[str, Field(min_length=1, max_length=1 << 20)]
MOST_PARTS = 100
STATUS_SECONDS = 1.0
PART_SECONDS = 0.1  # between two parts: programs take what comes at once for a paste


KeepBranch = Annotated[bool, Query(description="also one that is merged")]
Discard = Annotated[bool, Query(description="drop what is not committed, too")]


@router.get("/agents/{name}/removal", response_model=AgentRemoved, dependencies=[owner])
async def plan_removal(
    hub: HubPart, name: Name, keep_branch: KeepBranch = False, discard: Discard = False
) -> Any:
    """What removing it would do now, or the same refusal. Nothing is stopped or changed."""
    return await hub.remover.plan(name, keep_branch, discard)


@router.post("/agents/{name}/remove", response_model=AgentRemoved, dependencies=[owner])
async def remove_agent(
    hub: HubPart,
    name: Name,
    grace: Grace = None,
    keep_branch: KeepBranch = False,
    discard: Discard = False,
) -> Any:
    """End it, and remove its session and its worktree. Refused while it has work that exists
    nowhere else; then nothing is stopped. A branch with such commits stays. With `discard` it is
    not refused, and what is dropped is kept aside for 30 days: `bullpen worktree restore`."""
    return await hub.remover.remove(name, grace, keep_branch, discard)


class Input(BaseModel):
    """What is typed."""

    model_config = ConfigDict(extra="forbid")

    text: Keys | Annotated[list[Keys], Field(min_length=1, max_length=MOST_PARTS)]

    @property
    def parts(self) -> list[bytes]:
        try:
            return [
                each.encode() for each in ([self.text] if isinstance(self.text, str) else self.text)
            ]
        except UnicodeEncodeError as error:
            raise BullpenError("half a surrogate is no text") from error


@router.post("/agents/{name}/input", response_model=Typed, dependencies=[owner])
async def type_into(hub: HubPart, name: Name, given: Input) -> Any:
    """Type into its terminal, as it is: a line ends with a carriage return. Several texts are typed
    one after the other, as a person would: the text, then Enter."""
    live = in_terminal(hub, name)
    for number, part in enumerate(parts := given.parts):
        if number:
            await asyncio.sleep(PART_SECONDS)
        await holder_answer(name, holder_link.type_into(hub.home.socket(name), part))
    count = sum(map(len, parts))
    await hub.observer.observe(
        live,
        None,
        Draft(time=time.time(), kind="input.typed", agent=name, data={"bytes": count}),
    )
    return Typed(bytes=count)


@router.get(
    "/agents/{name}/screen", response_model=Screenful, responses=TEXT, dependencies=[itself]
)
async def get_screen(hub: HubPart, name: Name, text: AsText = False, iso: Iso = False) -> Any:
    """What its terminal shows now, as text with the cursor. Agents see their own only."""
    in_terminal(hub, name)
    greeting, data = await holder_answer(name, holder_link.replay(hub.home.socket(name)))
    screen = await asyncio.to_thread(_screen, greeting["rows"], greeting["cols"], data)
    return PlainTextResponse(_screen_text(screen)) if text else as_json(screen, iso)


def _screen_text(screen: Screenful) -> str:
    """`bullpen peek`: without the empty lines at its end."""
    lines = [printable(line.rstrip()) for line in screen.lines]
    while lines and not lines[-1]:
        lines.pop()
    return "".join(f"{line}\n" for line in lines)


def _screen(rows: int, cols: int, data: bytes) -> Screenful:
    screen = Screen(rows, cols)
    screen.feed(data)
    return Screenful(
        rows=rows,
        cols=cols,
        lines=tuple(screen.lines()),
        cursor=Position(row=screen.cursor.row, col=screen.cursor.col),
    )


@router.get(
    "/agents/{name}/explain", response_model=Explained, responses=TEXT, dependencies=[itself]
)
async def explain(
    hub: HubPart,
    name: Name,
    request: Request,
    text: AsText = False,
    columns: Columns = 0,
    iso: Iso = False,
) -> Any:
    """Its state, and all the evidence that it rests on; and why messages wait. Agents see their
    own only."""
    live = hub.registry.get(name)
    count, why = waiting(hub, name), hub.delivery.why(name)
    evidence = live.view.evidence + await _of_terminal(hub, live)
    if text:
        host = hub.fleet.name if actor_of(request).host else ""
        return PlainTextResponse(explain_text(live, count, why, evidence, columns, host))
    view = live.view
    explained = Explained(
        state=view.state,
        words=words(view.state),
        since=view.since,
        decided_by=view.decided_by,
        evidence=evidence,
        messages=count,
        messages_wait=why,
    )
    return as_json(explained, iso)


async def _of_terminal(hub: Hub, live: LiveAgent) -> tuple[Evidence, ...]:
    """That its holder woke it, if it did; a holder that does not answer at once is not asked on."""
    if live.link is None or not live.is_running:
        return ()
    try:
        status = await holder_link.ask_status(hub.home.socket(live.agent.name), STATUS_SECONDS)
    except (OSError, TimeoutError):
        return ()
    at = status.get("continued")
    return (Evidence(source="terminal", says="slept at Ctrl-Z, was woken", at=at),) if at else ()


@router.get("/agents/{name}/diff", response_model=Diff, dependencies=[itself])
async def get_diff(hub: HubPart, name: Name) -> Any:
    """What it has committed in its worktree since that was made, and what it has not. Agents see
    their own only."""
    live = hub.registry.get(name)
    if live.agent.worktree is None:
        raise BullpenError(f"{name} has no worktree of its own", kind=Kind.CONFLICT)
    await hub.private_gits.bring_over(live)
    where = live.private_git.where if live.private_git else ""
    return await hub.context.trees.look(name, "diff", lambda: _diff(hub, live.agent, where))


def _diff(hub: Hub, agent: Agent, where: str) -> Diff:
    assert agent.worktree is not None
    site = site_of(hub.home, hub.settings, agent.worktree)
    stat = worktrees.diff_stat(site, agent.worktree.name, seconds=LOOK_SECONDS)
    return Diff(
        where=printable(where),
        commits=stat.commits.subjects,
        commit_count=stat.commits.count,
        committed=_counts(stat.committed),
        uncommitted=_counts(stat.uncommitted),
        uncommitted_files=tuple(map(printable, stat.names)),  # that an agent chose
    )


def _counts(stat: worktrees.Stat) -> DiffCounts:
    return DiffCounts(files=stat.files, added=stat.insertions, deleted=stat.deletions)


def running(hub: Hub, name: str) -> LiveAgent:
    """The agent, which has to run."""
    live = hub.registry.get(name)
    if not live.is_running:
        raise BullpenError(
            f"{name} is not running: {words(live.view.state)}",
            hint=f"bullpen restart {name}",
            kind=Kind.CONFLICT,
        )
    return live


def in_terminal(hub: Hub, name: str) -> LiveAgent:
    """The agent, which has to run in a terminal."""
    live = running(hub, name)
    if live.agent.takes_tasks:
        raise BullpenError(
            f"{name} has no terminal: it takes tasks",
            hint=f"bullpen transcript {name} · bullpen logs {name} · bullpen tasks",
            kind=Kind.CONFLICT,
        )
    return live


async def holder_answer(name: str, question: Any) -> Any:
    """The holder's answer; a holder that gives none is no failure of the hub."""
    try:
        return await question
    except (OSError, TimeoutError) as error:
        raise BullpenError(
            f"the holder of {name} does not answer: {error}",
            hint=f"bullpen explain {name}",
            kind=Kind.CONFLICT,
        ) from error
