"""`/agents/{name}/messages`: write to an agent, read what was written to it."""

import asyncio
import re
import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import computed_field
from starlette.responses import PlainTextResponse

from bullpen.engines import ENGINES
from bullpen.errors import BullpenError, Kind
from bullpen.hub.guard import actor_of, owner_or_self
from bullpen.hub.http.agents import TEXT, AsText, Name
from bullpen.hub.http.state import HubPart
from bullpen.hub.registry import Live
from bullpen.hub.render.messages import inbox_text, sent_text, sent_when
from bullpen.model.message import ROOT, TEXT_BYTES, Asked, Message, Status, new_id
from bullpen.model.state import Value

router = APIRouter(tags=["messages"])
itself = Depends(owner_or_self)

SENDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~@:+-]*")


class Sent(Message):
    """A message with how far it got, and why it waits."""

    why: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def status(self) -> Status:
        return super().status


class Inbox(Value):
    """The newest last."""

    messages: tuple[Sent, ...]


@router.post(
    "/agents/{name}/messages", status_code=201, response_model=Sent, responses={201: TEXT[200]}
)
async def send_message(
    hub: HubPart, name: Name, asked: Asked, request: Request, text: AsText = False
) -> Any:
    """Write to an agent, or to `root`, the person. Answered when it is on disk; it arrives when
    that agent can take it. Who writes is the token's agent; the owner may say another `sender`."""
    actor = actor_of(request)
    if asked.sender is not None and not actor.is_owner:
        raise BullpenError("only the owner says who writes", kind=Kind.DENIED)
    live = None if name == ROOT else hub.registry.get(name)
    message = Message(
        id=asked.id or new_id(),
        sender=actor.agent or _checked_sender(asked.sender or ROOT),
        to=name,
        text=_checked_text(asked.text),
        priority=asked.priority,
        created=time.time(),
    )
    kept = await hub.delivery.send(message)
    takes = live is not None and _takes_messages(live)
    if text:
        return PlainTextResponse(sent_text(kept, live, takes), 201)
    why = sent_when(kept, live, takes).lstrip(" :")
    return Sent(**dict(kept), why=why)


@router.get("/agents/{name}/messages", response_model=Inbox, responses=TEXT, dependencies=[itself])
async def list_messages(
    hub: HubPart,
    name: Name,
    request: Request,
    limit: Annotated[
        int,
        Query(ge=1, le=1000, description="so many of the newest, and all that are new to you"),
    ] = 50,
    text: AsText = False,
    columns: Annotated[int, Query(ge=0, le=9999, description="of the text; 0: no limit")] = 0,
    full: Annotated[bool, Query(description="text with the messages as a whole")] = False,
) -> Any:
    """What was written to it, the newest last. Fetched by the receiver itself they are read from
    then on: the answer says what they were before."""
    if name != ROOT:
        hub.registry.get(name)
    actor = actor_of(request)
    is_own = actor.agent == ("" if name == ROOT else name)
    if is_own:
        # Else those beyond the limit would be new for ever.
        limit = max(limit, len(hub.messages.queue(name)))
    found = await hub.messages.inbox(name, limit)
    if is_own:
        await hub.messages.mark_read(found)
    why = "" if name == ROOT else hub.delivery.why(name)
    if text:
        # In a thread: a thousand messages may be 256 MB.
        shown = await asyncio.to_thread(
            inbox_text,
            found,
            is_own=is_own,
            for_owner=actor.is_owner,
            why=why,
            columns=columns,
            full=full,
        )
        return PlainTextResponse(shown)
    return Inbox(messages=tuple(_with_why(message, why) for message in found))


def _with_why(message: Message, why: str) -> Sent:
    is_open = message.status in ("queued", "sent")
    return Sent(**dict(message), why=why if is_open else "")


def _checked_text(text: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise BullpenError("half a surrogate is no text") from error
    if size > TEXT_BYTES:
        raise BullpenError(
            f"a message has at most {TEXT_BYTES >> 10} KiB, this one has {size} bytes",
            hint="put it into a file, and send where that is",
        )
    if "\0" in text:
        # Neither a terminal nor a prompt can carry it.
        raise BullpenError("a message cannot hold the character NUL")
    return text


def _checked_sender(sender: str) -> str:
    """It stands before the text that the receiver sees, and must not pass for more than a name."""
    if SENDER.fullmatch(sender) is None:
        raise BullpenError(
            f"{sender!r} is no name of a sender", hint="letters, digits and . _ ~ @ : + -"
        )
    return sender


def _takes_messages(live: Live) -> bool:
    """Whether any can be handed to its program; else it has to fetch them."""
    engine, agent = ENGINES.get(live.agent.engine), live.agent
    return bool(agent.deliver) or (
        engine is not None and bool(agent.message_socket or engine.typed("x"))
    )
