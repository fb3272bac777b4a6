"""`/agents/{name}/messages`: write to an agent, read what was written to it."""

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import PlainTextResponse

from bullpen.engines import ENGINES
from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.http.errors import TOO_MUCH
from bullpen.hub.http.fleet_routes import TO_HOST
from bullpen.hub.http.guard import actor_of, note_refusal, owner_only, owner_or_self
from bullpen.hub.http.parameters import TEXT, AsText, Columns, Name
from bullpen.hub.http.state import HubPart
from bullpen.hub.render.messages import inbox_text, sent_text, sent_when
from bullpen.model.message import (
    ROOT,
    Message,
    MessageList,
    MessageRequest,
    SentMessage,
    check_sender,
    check_text,
    is_for,
    is_open,
    new_id,
)

router = APIRouter(tags=["messages"])
itself = Depends(owner_or_self)


@router.post(
    "/agents/{name}/messages",
    status_code=201,
    response_model=SentMessage,
    responses={201: TEXT[200], 429: TOO_MUCH},
)
async def send_message(
    hub: HubPart, name: Name, body: MessageRequest, request: Request, text: AsText = False
) -> Any:
    """Write to an agent, or to `root`, the person. Answered when it is on disk; it arrives when
    that agent can take it. Who writes is the token's agent; the owner may say another `sender`. For
    `HOST%2FAGENT` it is on the disk of this machine, and goes there by itself."""
    actor = actor_of(request)
    if body.sender is not None and not actor.is_owner:
        note_refusal(request.scope, actor)
        raise BullpenError("only the owner says who writes", kind=Kind.DENIED)
    host = request.scope["state"].get(TO_HOST, "")
    live = None
    if host:
        await hub.fleet.check_host(host)
    elif name != ROOT:
        live = hub.registry.get(name)
    written = check_text(body.text)
    hub.quotas.spend(actor.agent, {"messages": 1, "message_bytes": len(written.encode())})
    message = Message(
        id=body.id or new_id(),
        sender=actor.agent or check_sender(body.sender or ROOT),
        to=f"{host}/{name}" if host else name,
        text=written,
        priority=body.priority,
        created=time.time(),
    )
    if host:
        stored = await hub.fleet.mail.send(message, actor.agent)
    else:
        stored = await hub.delivery.send(message)
    takes = live is not None and _takes_messages(live)
    if text:
        return PlainTextResponse(sent_text(stored, live, takes), 201)
    why = sent_when(stored, live, takes).lstrip(" :")
    return SentMessage(**dict(stored), why=why)


@router.get(
    "/agents/{name}/messages", response_model=MessageList, responses=TEXT, dependencies=[itself]
)
async def list_messages(
    hub: HubPart,
    name: Name,
    request: Request,
    limit: Annotated[
        int,
        Query(ge=1, le=1000, description="so many of the newest; of more new ones the oldest"),
    ] = 50,
    text: AsText = False,
    columns: Columns = 0,
    full: Annotated[bool, Query(description="text with the messages as a whole")] = False,
) -> Any:
    """What was written to it, the newest last. Fetched by the receiver itself they are read from
    then on: the answer says what they were before. More new ones than the limit come in pages, the
    oldest first, and `more` says how many are left. Of `HOST%2FAGENT` it is what was written to it
    from this machine."""
    actor, host = actor_of(request), request.scope["state"].get(TO_HOST, "")
    if host:
        await owner_only(request)  # an agent here may be called as that one
        name = f"{host}/{name}"
    elif name != ROOT and not await hub.messages.inbox(name, 1):
        hub.registry.get(name)  # of one that was removed there is still what was written to it
    live = hub.registry.find(name)
    is_own = actor.agent == ("" if name == ROOT else name)
    more = max(0, hub.messages.count_open(name) - limit) if is_own else 0
    if more:  # by the newest, those beyond the limit would be new for ever
        messages = hub.messages.oldest_open(name, limit)
    else:
        messages = await hub.messages.inbox(name, limit)
    if is_own and live is not None:
        messages = [message for message in messages if is_for(message, live.agent.created)]
    if is_own:
        await hub.messages.mark_read(messages)
    why = "" if name == ROOT else hub.delivery.why(name)
    if host and hub.messages.count_open(name):
        why = f"{host} has not taken it yet"
    if text:
        # In a thread: a thousand messages may be 256 MB.
        lines = await asyncio.to_thread(
            inbox_text,
            messages,
            is_own=is_own,
            for_owner=actor.is_owner,
            why=why,
            columns=columns,
            full=full,
            more=more,
        )
        return PlainTextResponse(lines)
    shown = tuple(_with_why(message, why) for message in messages)
    return MessageList(messages=shown, more=more)


def _with_why(message: Message, why: str) -> SentMessage:
    return SentMessage(**dict(message), why=why if is_open(message) else message.reason)


def _takes_messages(live: LiveAgent) -> bool:
    """Whether any can be handed to its program; else it has to fetch them."""
    engine, agent = ENGINES.get(live.agent.engine), live.agent
    return bool(agent.deliver) or (
        engine is not None and bool(agent.message_socket or engine.typed("x"))
    )
