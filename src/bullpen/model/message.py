"""A message: what somebody wrote to an agent, and how far it got; when it may be handed over. Pure.

It is queued, sent (handed to the engine), delivered (the engine's own prompt or transcript showed
its id), read (the receiver fetched it). `next_step` decides what is to be done for an agent's
queue; nothing is ever typed into a dialog, and nobody who types is interrupted.
"""

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from bullpen.model.state import Idle, State, Unknown, Value, Working

Priority = Literal["normal", "urgent", "interrupt"]
Status = Literal["queued", "sent", "delivered", "read"]

ROOT = "root"  # the person at the top
BULLPEN = "bullpen"  # what nobody wrote: heartbeats, the end of a limit
TEXT_BYTES = 256 << 10
TYPING_SECONDS = 2.0
ORDER: dict[str, int] = {"interrupt": 0, "urgent": 1, "normal": 2}
HEAD = re.compile(r"\[message from [^\]\s]+ · (m-[0-9a-f]{12})\]")


class Asked(BaseModel):
    """A message to be sent. The same `id` sent twice is one message. `sender` is the owner's to
    say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=TEXT_BYTES)]
    priority: Priority = "normal"
    id: Annotated[str, Field(pattern=r"^m-[0-9a-f]{12}$")] | None = None
    sender: Annotated[str, Field(max_length=80)] | None = None


class Message(Value):
    """One message. `channel` is how it was handed over last."""

    id: str
    sender: str
    to: str
    text: str
    priority: Priority = "normal"
    created: float
    sent: float | None = None
    channel: str = ""
    delivered: float | None = None
    read: float | None = None

    @property
    def status(self) -> Status:
        if self.read is not None:
            return "read"
        if self.delivered is not None:
            return "delivered"
        return "queued" if self.sent is None else "sent"


def new_id() -> str:
    """Nobody can know it before the message is there."""
    return f"m-{secrets.token_hex(6)}"


def envelope(message: Message) -> str:
    """What the receiver sees: who wrote, the id that proves the receipt, the text as it is."""
    return f"[message from {message.sender} · {message.id}]\n{message.text}"


def joined(messages: Iterable[Message]) -> str:
    """Several, handed over at once."""
    return "\n\n".join(map(envelope, messages))


def ids_in(text: str) -> set[str]:
    """The ids of messages that stand in a text; one that is only mentioned does not count."""
    return set(HEAD.findall(text))


def in_order(queue: Iterable[Message]) -> list[Message]:
    """By priority, and within one as they were sent."""
    return sorted(queue, key=lambda message: ORDER[message.priority])  # stable


# ── when ─────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Wait:
    """Not now, and why."""

    why: str


@dataclass(frozen=True)
class HandOver:
    """These, now."""

    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Interrupt:
    """End its turn first."""


Step = Wait | HandOver | Interrupt


def next_step(state: State, queue: Sequence[Message], idle_input_seconds: float) -> Step | None:
    """What is to be done for an agent with that queue, of which nothing is under way; None:
    nothing waits. `idle_input_seconds`: for how long nobody has typed into its terminal."""
    if not queue:
        return None
    waiting = in_order(queue)
    match state:
        case Idle(limited_until=None) if idle_input_seconds >= TYPING_SECONDS:
            return HandOver(_batch(waiting))
        case Working() if waiting[0].priority == "interrupt":
            return Interrupt()
        case _:
            return Wait(_why_not(state, waiting[0].priority))


def _why_not(state: State, priority: Priority) -> str:
    match state:
        case Idle(limited_until=None):
            return "somebody is typing in its terminal"
        case Idle():
            return "it waits for its rate limit to be reset"
        case Working():
            at_tools = "at its next tool, or " if priority == "urgent" else ""
            return f"it is working: {at_tools}at the end of its turn"
        case Unknown(missing=missing):
            return f"its state is not known: {missing}"
        case _:
            return OTHER_REASONS.get(state.state, "it is not running")


OTHER_REASONS = {"blocked": "it is blocked: when it goes on", "starting": "it is starting"}


def at_a_tool(queue: Sequence[Message], most_bytes: int) -> tuple[Message, ...]:
    """The urgent ones that may go in between two tools; nothing while others are under way."""
    if any(message.status == "sent" for message in queue):
        return ()
    urgent = [message for message in in_order(queue) if message.priority != "normal"]
    return _batch(urgent, most_bytes) if urgent else ()


def _batch(waiting: Sequence[Message], most_bytes: int = TEXT_BYTES) -> tuple[Message, ...]:
    """The first, and as many as go with it."""
    found: list[Message] = []
    size = 0
    for message in waiting:
        size += len(message.text.encode()) + 100
        if size > most_bytes and (found or most_bytes < TEXT_BYTES):
            break
        found.append(message)
    return tuple(found)
