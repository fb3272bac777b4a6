"""What hubs send each other about messages: the messages themselves, and how far they got; and
about children of agents (`child_letter`). Pure.

Letters of one hub to another are a line: numbered, taken in order, each once. A hub keeps each
until the other has said that it is taken; whatever happens between, it sends them again.
"""

import hashlib
from typing import Annotated, Literal

from pydantic import Field

from bullpen.model.child_letter import AboutChild
from bullpen.model.letter_fields import AgentName, Id, Moment, Number
from bullpen.model.message import BULLPEN, ROOT, Message, Priority
from bullpen.model.value import Value


class Written(Value):
    """A message. `agent` wrote it, or the owner if that is empty, who may have said a `sender`. The
    text goes beside it."""

    kind: Literal["written"] = "written"
    id: Id
    agent: AgentName | Literal[""] = ""
    sender: Annotated[str, Field(max_length=80)] = ""
    to: AgentName
    priority: Priority
    created: Moment


class Receipt(Value):
    """How far a message of the other's got, or why it was refused."""

    kind: Literal["receipt"] = "receipt"
    id: Id
    step: Literal["delivered", "read", "refused"]
    at: Moment
    reason: Annotated[str, Field(max_length=2000)] = ""


About = Annotated[Written | Receipt | AboutChild, Field(discriminator="kind")]


class Letter(Value):
    """One of a line. `taken`: the other has said that it has all up to this number."""

    line: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    number: Annotated[Number, Field(ge=1)]
    taken: Number
    about: About


class Heard(Value):
    """What a hub has taken of another's line. `is_missing`: one came before its turn."""

    line: str
    number: Number
    is_missing: bool = False


def place_in_line(letter: Letter, last: int | None) -> Literal["next", "before", "too soon"]:
    """Where it stands if `last` was the last one that was taken of that line; None: there was none.
    A hub whose database was lost is told by `taken` where to go on."""
    if last is not None and letter.number <= last:
        return "before"
    is_first = letter.number == letter.taken + 1 and letter.taken >= (last or 0)
    return "next" if is_first or letter.number == (last or 0) + 1 else "too soon"


def message_of(host: str, written: Written, text: str, now: float) -> Message:
    """As it is stored by the hub that takes it. Whose it is follows from the host that has signed
    it; the same letter is the same row."""
    made_from = f"{host}\0{written.id}".encode()
    return Message(
        id=f"m-{hashlib.sha256(made_from).hexdigest()[:12]}",
        sender=f"{host}/{written.agent}" if written.agent else written.sender or ROOT,
        to=written.to,
        text=text,
        priority=written.priority,
        created=min(written.created, now),
        origin=f"{host}/{written.id}",
    )


def refusal_of(message: Message, reason: str, to: str, id: str, now: float) -> Message:
    """What the writer of a message that was refused is told, under a new id: one that follows from
    the message's, which an agent may choose, could be there already as another message."""
    text = f"{message.to} did not get your message {message.id}: {reason}"
    return Message(id=id, sender=BULLPEN, to=to, text=text, created=now, quotes=True)
