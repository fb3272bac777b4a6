"""`/agents`: list, start, look at, type into, stop, start again."""

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import PlainTextResponse

from bullpen import worktrees
from bullpen.engines import get_engine
from bullpen.errors import BullpenError, Kind
from bullpen.hub import holders, hooks
from bullpen.hub.guard import actor_of, owner_only, owner_or_self
from bullpen.hub.http.state import Hub, HubPart
from bullpen.hub.registry import Live
from bullpen.hub.render.agents import agent_text, explain_text, list_text, summary_text
from bullpen.hub.trees import open_site
from bullpen.model.agent import Agent
from bullpen.model.event import Draft
from bullpen.model.launch import Launch
from bullpen.model.message import ROOT
from bullpen.model.state import Evidence, State, Value, words
from bullpen.terminal.screen import Screen
from bullpen.text import printable

router = APIRouter(tags=["agents"])
owner = Depends(owner_only)
itself = Depends(owner_or_self)

Name = Annotated[
    str,
    Path(max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9._~-]*$", description="an agent's name"),
]
Grace = Annotated[
    float | None,
    Query(
        ge=0,
        le=86400,
        allow_inf_nan=False,
        description="seconds between SIGTERM and SIGKILL; else the setting `stop_grace`",
    ),
]
AsText = Annotated[bool, Query(description="plain text for people, not JSON")]
TEXT: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/plain": {"schema": {"type": "string"}}},
        "description": "JSON; with `text` plain text",
    }
}


class Shown(Agent):
    """An agent as the API shows it: its identity and what it is doing."""

    token_hash: str = Field(default="", exclude=True)
    state: State
    words: str
    since: float
    running: bool


def shown(live: Live) -> Shown:
    """The agent with its state."""
    return Shown(
        **live.agent.model_dump(),
        state=live.view.state,
        words=words(live.view.state),
        since=live.view.since,
        running=live.is_running,
    )


class Counted(Shown):
    """The same with what it has used, and how many messages are not delivered to it; `summary`
    is both for people."""

    tokens: int
    usd: float
    messages: int
    summary: str


def counted(hub: Hub, live: Live) -> Counted:
    """The agent with its state and its figures."""
    used, messages = hub.usage.of(live.agent), waiting(hub, live.agent.name)
    return Counted(
        **dict(shown(live)),
        tokens=used.tokens,
        usd=used.usd,
        messages=messages,
        summary=summary_text(used, messages),
    )


def waiting(hub: Hub, name: str) -> int:
    """How many messages are not delivered to it."""
    return len(hub.messages.queue(name))


class Agents(Value):
    """All of them, and session directories that cannot be read."""

    agents: tuple[Counted, ...]
    broken: dict[str, str]


@router.get("/agents", response_model=Agents, responses=TEXT)
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
    colour: Annotated[bool, Query(description="text with colours for a terminal")] = False,
) -> Any:
    """All agents with their states, those that have ended too, in the order of names. As text it
    is what `bullpen list` prints: pods apart, bridges last."""
    wanted = pod if pod is not None else own_pod
    one_pod = "" if wanted == "*" else wanted
    lives = [live for live in hub.registry if not one_pod or live.agent.pod == one_pod]
    # Of which pod those are that cannot be read, nobody knows.
    broken = {} if one_pod else hub.registry.broken
    if text:
        bridges = [one for one in await hub.components.living() if one.kind == "bridge"]
        now = time.time()
        used = hub.usage.by_name()
        # For the owner's eyes: an agent cannot answer them.
        is_owner = actor_of(request).is_owner
        approvals = hub.permissions.approvals.waiting() if is_owner else []
        body = list_text(
            lives,
            broken,
            bridges,
            pod=one_pod,
            usage=used,
            waiting={name: waiting(hub, name) for name in hub.messages.receivers()},
            approvals=len(approvals),
            unread=waiting(hub, ROOT) if is_owner else 0,
            colour=colour,
            now=now,
        )
        return PlainTextResponse(body)
    return Agents(agents=tuple(counted(hub, live) for live in lives), broken=broken)


@router.post("/agents", status_code=201, response_model=Shown, dependencies=[owner])
async def start_agent(hub: HubPart, asked: Launch) -> Any:
    """Start an agent; answered when its program runs. A role says what it is; without one, `words`
    are the program and its arguments. Asked twice with the same `run`, it starts once."""
    return shown(await hub.supervisor.launch(asked))


@router.get("/agents/{name}", response_model=Counted, responses=TEXT)
async def get_agent(hub: HubPart, name: Name, text: AsText = False) -> Any:
    """One agent, running or ended."""
    live = hub.registry.get(name)
    if text:
        used, why = hub.usage.of(live.agent), hub.delivery.why(name)
        return PlainTextResponse(agent_text(live, used, waiting(hub, name), why))
    return counted(hub, live)


@router.delete("/agents/{name}", response_model=Shown, dependencies=[owner])
async def stop_agent(hub: HubPart, name: Name, grace: Grace = None) -> Any:
    """End its program: SIGTERM, after the grace SIGKILL. Answered when it is over, also if it was
    over before. Its session stays until `gc`."""
    return shown(await hub.supervisor.stop(name, grace))


@router.post("/agents/{name}/restart", response_model=Shown, dependencies=[owner])
async def restart_agent(hub: HubPart, name: Name, grace: Grace = None) -> Any:
    """Start it again with the same identity; stopped first if it runs."""
    return shown(await hub.supervisor.restart(name, grace))


class Input(BaseModel):
    """What is typed."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=1 << 20)]


class Typed(Value):
    """How many bytes were taken."""

    bytes: int


@router.post("/agents/{name}/input", response_model=Typed, dependencies=[owner])
async def type_into(hub: HubPart, name: Name, given: Input) -> Any:
    """Type into its terminal, as it is: a line ends with a carriage return."""
    live = running(hub, name)
    try:
        data = given.text.encode()
    except UnicodeEncodeError as error:
        raise BullpenError("half a surrogate is no text") from error
    await asked(name, holders.type_into(hub.home.socket(name), data))
    await hub.supervisor.record.observe(
        live,
        None,
        Draft(time=time.time(), kind="input.typed", agent=name, data={"bytes": len(data)}),
    )
    return Typed(bytes=len(data))


class Position(Value):
    """On the screen, from 0."""

    row: int
    col: int


class Screenful(Value):
    """What the terminal shows now."""

    rows: int
    cols: int
    lines: tuple[str, ...]
    cursor: Position


@router.get(
    "/agents/{name}/screen", response_model=Screenful, responses=TEXT, dependencies=[itself]
)
async def get_screen(hub: HubPart, name: Name, text: AsText = False) -> Any:
    """What its terminal shows now, as text with the cursor. Agents see their own only."""
    running(hub, name)
    greeting, data = await asked(name, holders.replay(hub.home.socket(name)))
    found = await asyncio.to_thread(_screen, greeting["rows"], greeting["cols"], data)
    return PlainTextResponse("\n".join(found.lines) + "\n") if text else found


def _screen(rows: int, cols: int, data: bytes) -> Screenful:
    screen = Screen(rows, cols)
    screen.feed(data)
    return Screenful(
        rows=rows,
        cols=cols,
        lines=tuple(screen.lines()),
        cursor=Position(row=screen.cursor.row, col=screen.cursor.col),
    )


class Explained(Value):
    """A state, with what it rests on."""

    state: State
    words: str
    since: float
    decided_by: str
    evidence: tuple[Evidence, ...]
    messages: int  # that are not delivered
    messages_wait: str  # why; empty if none does


@router.get("/agents/{name}/explain", response_model=Explained, responses=TEXT)
async def explain(hub: HubPart, name: Name, text: AsText = False) -> Any:
    """Its state, and all the evidence that it rests on; and why messages wait."""
    live = hub.registry.get(name)
    count, why = waiting(hub, name), hub.delivery.why(name)
    if text:
        return PlainTextResponse(explain_text(live, count, why))
    view = live.view
    return Explained(
        state=view.state,
        words=words(view.state),
        since=view.since,
        decided_by=view.decided_by,
        evidence=view.evidence,
        messages=count,
        messages_wait=why,
    )


class Diff(Value):
    """How far an agent's worktree is from where it began."""

    files: int
    added: int
    deleted: int
    uncommitted: tuple[str, ...]


@router.get("/agents/{name}/diff", response_model=Diff, dependencies=[itself])
async def get_diff(hub: HubPart, name: Name) -> Any:
    """What it has changed in its worktree since that was made. Agents see their own only."""
    agent = hub.registry.get(name).agent
    if agent.worktree is None:
        raise BullpenError(f"{name} has no worktree of its own", kind=Kind.CONFLICT)
    return await asyncio.to_thread(_diff, hub, agent)


def _diff(hub: Hub, agent: Agent) -> Diff:
    from pathlib import Path as FilePath

    assert agent.worktree is not None
    site = open_site(hub.home, hub.settings, FilePath(agent.worktree.repo))
    stat = worktrees.diff_stat(site, agent.worktree.name)
    changed = worktrees.changes(site, agent.worktree.name)
    return Diff(
        files=stat.files,
        added=stat.insertions,
        deleted=stat.deletions,
        uncommitted=tuple(map(printable, changed)),  # names that an agent chose
    )


@router.post(
    "/agents/{name}/hooks",
    dependencies=[itself],
    response_class=PlainTextResponse,
    openapi_extra={
        "requestBody": {
            "description": "what the engine hands to its hook, unchanged",
            "content": {"application/json": {"schema": {}}},
        }
    },
)
async def receive_hook(hub: HubPart, name: Name, request: Request) -> str:
    """A hook of its engine. Never an error for what is in it: a body that is no JSON is noted as
    such. Of its contents only names, ids and 200 characters of text are kept."""
    live = hub.registry.get(name)
    hook = await hooks.receive(hub.supervisor, live, await request.body())
    await hub.parking.hooked(live, hook)
    reason = hub.budgets.refusal(name)
    if reason:
        event = str(hook.get("hook_event_name", ""))
        return get_engine(live.agent.engine).refuse(event, reason)
    return await hub.delivery.hooked(live, hook)


def running(hub: Hub, name: str) -> Live:
    """The agent, which has to run."""
    live = hub.registry.get(name)
    if not live.is_running:
        raise BullpenError(
            f"{name} is not running: {words(live.view.state)}",
            hint=f"bullpen restart {name}",
            kind=Kind.CONFLICT,
        )
    return live


async def asked(name: str, question: Any) -> Any:
    """The holder's answer; a holder that gives none is no failure of the hub."""
    try:
        return await question
    except (OSError, TimeoutError) as error:
        raise BullpenError(
            f"the holder of {name} does not answer: {error}",
            hint=f"bullpen explain {name}",
            kind=Kind.CONFLICT,
        ) from error
