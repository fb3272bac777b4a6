"""`/agents/{name}/messages`: write to an agent, read what was written to it."""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import PlainTextResponse

from bullpen.errors import BullpenError, Kind
from bullpen.hub import render
from bullpen.hub.guard import actor_of, owner_or_self
from bullpen.hub.http.agents import TEXT, AsText, Name
from bullpen.hub.http.state import Hub, HubPart
from bullpen.model.message import ROOT, TEXT_BYTES, Asked, Message, Status, new_id
from bullpen.model.state import Value, words

router = APIRouter(tags=["messages"])
itself = Depends(owner_or_self)


class Sent(Message):
    """A message with how far it got, and why it waits."""

    text: str
    status: Status
    why: str = ""


class Inbox(Value):
    """The newest last."""

    messages: tuple[Sent, ...]


@router.post("/agents/{name}/messages", status_code=201, response_model=Sent, responses=TEXT)
async def send_message(
    hub: HubPart, name: Name, asked: Asked, request: Request, text: AsText = False
) -> Any:
    """Write to an agent, or to `root`, the person. Answered when it is on disk; it arrives when
    that agent can take it. Who writes is the token's agent; the owner may say another `sender`."""
    actor = actor_of(request)
    if asked.sender is not None and not actor.is_owner:
        raise BullpenError("only the owner says who writes", kind=Kind.DENIED)
    if len(asked.text.encode("utf-8", "surrogatepass")) > TEXT_BYTES:
        raise BullpenError(f"a message has at most {TEXT_BYTES >> 10} KiB")
    if name != ROOT:
        hub.registry.get(name)
    sender = actor.agent or asked.sender or ROOT
    try:
        asked.text.encode()
    except UnicodeEncodeError as error:
        raise BullpenError("half a surrogate is no text") from error
    message = Message(
        id=asked.id or new_id(),
        sender=sender,
        to=name,
        text=asked.text,
        priority=asked.priority,
        created=time.time(),
    )
    kept = shown(hub, await hub.delivery.send(message))
    return PlainTextResponse(sent_text(hub, kept)) if text else kept


@router.get(
    "/agents/{name}/messages", response_model=Inbox, responses=TEXT, dependencies=[itself]
)
async def list_messages(
    hub: HubPart,
    name: Name,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000, description="so many of the newest")] = 50,
    text: AsText = False,
) -> Any:
    """What was written to it, the newest last. Fetched by the receiver itself they are read."""
    if name != ROOT:
        hub.registry.get(name)
    found = await hub.messages.inbox(name, limit)
    if actor_of(request).agent == (name if name != ROOT else ""):
        await hub.messages.mark_read(found)
    all_of_them = [shown(hub, message) for message in found]
    if text:
        return PlainTextResponse(render.inbox_text(all_of_them))
    return Inbox(messages=tuple(all_of_them))


def shown(hub: Hub, message: Message) -> Sent:
    """With its status."""
    is_open = message.status in ("queued", "sent")
    why = hub.delivery.why(message.to) if is_open else ""
    return Sent(**message.model_dump(), status=message.status, why=why)


def sent_text(hub: Hub, message: Sent) -> str:
    """What `bullpen send` prints."""
    live = hub.registry.find(message.to)
    what = f" ({message.to} is {words(live.view.state)})" if live else ""
    return f"{message.status}{what} · {message.id}\n"
