"""A message to an agent: its status, and when it may be delivered. Pure.

Queued, sent (given to the engine; of one for another machine: stored there), delivered (the
engine's own prompt or transcript shows its id), read (the receiver fetched it); or refused: by
another machine, or because its receiver was removed. `next_step` decides what to do for an agent's
queue. Nothing is typed into a dialog, and nobody who types is interrupted.
"""

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field

from bullpen import clock
from bullpen.errors import BullpenError
from bullpen.model.state import Idle, State, Unknown, Working
from bullpen.model.value import Value

Priority = Literal["normal", "urgent", "interrupt"]
Status = Literal["queued", "sent", "delivered", "read", "refused"]

LINES = "lines"  # the channel of what is typed: nobody shows that it arrived
FLEET = "fleet"  # of what another machine's hub has
LINES_FROM_AGENTS = "lines-from-agents"
ROOT = "root"  # the person at the top
BULLPEN = "bullpen"  # what nobody wrote: heartbeats, the end of a limit
TEXT_BYTES = 256 << 10
ENVELOPE_BYTES = 100  # what one is given besides its text, at most
TYPING_SECONDS = 2.0
ORDER: dict[str, int] = {"interrupt": 0, "urgent": 1, "normal": 2}
SENDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~@:+-]*")
HEAD = re.compile(r"\[message from [^\]\s]+ · (m-[0-9a-f]{12})\]")


class MessageRequest(BaseModel):
    """A message to be sent. The same `id` sent twice is one message. `sender` is the owner's to
    say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=TEXT_BYTES)]
    priority: Priority = "normal"
    id: Annotated[str, Field(pattern=r"^m-[0-9a-f]{12}$")] | None = None
    sender: Annotated[str, Field(max_length=80)] | None = None


class Message(Value):
    """One message. `channel` is how it was handed over last; `quotes`: its text holds words of
    others than its sender, such as the output of a program. `origin` is `host/id` of one that came
    from another machine; `reason`: why it was refused."""

    id: str
    sender: str
    to: str
    text: str
    priority: Priority = "normal"
    created: float
    quotes: bool = False
    sent: float | None = None
    channel: str = ""
    delivered: float | None = None
    read: float | None = None
    origin: str = ""
    refused: float | None = None
    reason: str = ""

    @property
    def status(self) -> Status:
        if self.refused is not None:
            return "refused"
        if self.read is not None:
            return "read"
        if self.delivered is not None:
            return "delivered"
        return "queued" if self.sent is None else "sent"


class SentMessage(Message):
    """A message with how far it got, and why it waits."""

    why: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def status(self) -> Status:
        return super().status


class MessageList(Value):
    """The newest last; `more` that are new to who asks come with the next question."""

    messages: tuple[SentMessage, ...]
    more: int = 0


def check_text(text: str) -> str:
    """BullpenError for what cannot be a message."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise BullpenError("half a surrogate is no text") from error
    if size > TEXT_BYTES:
        raise BullpenError(
            f"a message has at most {TEXT_BYTES >> 10} KiB, this one has {size} bytes",
            hint="put it into a file, and send where that is",
        )
    if not text:
        raise BullpenError("a message cannot be empty")
    if "\0" in text:  # neither a terminal nor a prompt can carry it
        raise BullpenError("a message cannot hold the character NUL")
    return text


def check_sender(sender: str) -> str:
    """It stands before the text that the receiver sees, and must not pass for more than a name."""
    if SENDER.fullmatch(sender) is None:
        raise BullpenError(
            f"{sender!r} is no name of a sender", hint="letters, digits and . _ ~ @ : + -"
        )
    return sender


def new_id() -> str:
    """A random id, which nobody can guess before the message exists."""
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


def is_open(message: Message) -> bool:
    """Whether somebody has yet to see to it that it arrives."""
    is_under_way = message.status == "sent" and message.channel not in (LINES, FLEET)
    return message.status == "queued" or is_under_way


def is_for(message: Message, born: str) -> bool:
    """Whether it is for the agent that was first started at that time: what earlier agents of its
    name got, or never got, is not. What is on its way is: what they left was refused."""
    written = clock.to_exact_text(datetime.fromtimestamp(message.created, UTC))
    return message.status != "refused" and (is_open(message) or written >= born)


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


OTHER_REASONS = {
    "blocked": "it is blocked: when it goes on",
    "starting": "it is starting",
    "error": "it cannot work",
    "draining": "it is about to leave",
}


def may_be_typed(deliver: str, message: Message) -> bool:
    """Whether it may be a line of a program that takes lines. A line of a shell is a command: what
    another agent wrote is one only if the role says so. Else it waits in the inbox."""
    is_own = message.sender == ROOT or (message.sender == BULLPEN and not message.quotes)
    return deliver == LINES_FROM_AGENTS or is_own


def at_a_tool(queue: Sequence[Message], most_bytes: int) -> tuple[Message, ...]:
    """The urgent ones that may go in between two tools; nothing while others are under way."""
    if any(message.status == "sent" for message in queue):
        return ()
    urgent = [message for message in in_order(queue) if message.priority != "normal"]
    return _batch(urgent, most_bytes) if urgent else ()


def _batch(waiting: Sequence[Message], most_bytes: int = TEXT_BYTES) -> tuple[Message, ...]:
    """The first, and as many as go with it."""
    batch: list[Message] = []
    size = 0
    for message in waiting:
        size += len(message.text.encode()) + ENVELOPE_BYTES
        if size > most_bytes and (batch or most_bytes < TEXT_BYTES):
            break
        batch.append(message)
    return tuple(batch)
