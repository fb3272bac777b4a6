"""What a task's stream tells: one type per event, read from the JSON that the hub sends. No I/O.

Used by `client/tasks.py`. A hub of another version may leave fields out, or send events that are
not known here: what is missing is empty, what is unknown is `OtherEvent`. `TaskEvent.fields` has
the JSON as it was sent.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class StateEvent:
    """The task has moved. `limited_until`: it waits for the end of a rate limit."""

    state: str = ""
    limited_until: float | None = None


@dataclass(frozen=True)
class TurnEvent:
    """A turn has ended; `fault` is empty if it came to a good end."""

    fault: str = ""
    why: str = ""


@dataclass(frozen=True)
class BegunEvent:
    """A turn begins. `problems`: what the run goes on without."""

    conversation: str = ""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextEvent:
    """The model said something. `is_line`: a line of a longer text."""

    text: str = ""
    is_line: bool = False


@dataclass(frozen=True)
class PartialEvent:
    """A piece of a text; the whole follows as `TextEvent`. `is_first`: it begins a text."""

    text: str = ""
    is_first: bool = False


@dataclass(frozen=True)
class ToolEvent:
    """The model uses a tool. `detail` says on what."""

    tool: str = ""
    detail: str = ""


@dataclass(frozen=True)
class UsageEvent:
    """What one answer of the model used."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True)
class RetryEvent:
    """The model's API refused; asked again after so many seconds."""

    attempt: int = 0
    seconds: float = 0.0
    why: str = ""


@dataclass(frozen=True)
class DeniedEvent:
    """A tool was not allowed to run."""

    tool: str = ""


@dataclass(frozen=True)
class EndEvent:
    """The task is over. `output` is what it came to; `get_task` has the rest."""

    task_id: str = ""
    state: str = ""
    output: str = ""


@dataclass(frozen=True)
class OtherEvent:
    """A sign of life, or an event of a later version."""


EventData: TypeAlias = (
    StateEvent
    | TurnEvent
    | BegunEvent
    | TextEvent
    | PartialEvent
    | ToolEvent
    | UsageEvent
    | RetryEvent
    | DeniedEvent
    | EndEvent
    | OtherEvent
)
Json: TypeAlias = Mapping[str, object]


@dataclass(frozen=True)
class TaskEvent:
    """One event of a task's stream. Its `name` is `state`, `begun`, `text`, `tool`, …, at last
    `end`; without one it is a sign of life. A stream that broke off goes on after `mark`."""

    name: str
    data: EventData = field(default_factory=OtherEvent)
    mark: str = ""
    fields: Json = field(default_factory=dict)

    @property
    def run(self) -> int:
        """The run that said it, 0 if none did."""
        number = self.mark.partition(".")[0]
        return int(number) if number.isdecimal() else 0


def read_event(name: str, fields: Json, mark: str = "") -> TaskEvent:
    """The event of that name, with its data."""
    read = READERS.get(name)
    return TaskEvent(name, read(fields) if read else OtherEvent(), mark, fields)


def _text(fields: Json, name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _number(fields: Json, name: str) -> float:
    value = fields.get(name)
    return value if isinstance(value, int | float) else 0


def _texts(fields: Json, name: str) -> tuple[str, ...]:
    value = fields.get(name)
    return tuple(map(str, value)) if isinstance(value, list) else ()


READERS: dict[str, Callable[[Json], EventData]] = {
    "state": lambda j: StateEvent(_text(j, "state"), _number(j, "limited_until") or None),
    "turn": lambda j: TurnEvent(_text(j, "fault"), _text(j, "why")),
    "begun": lambda j: BegunEvent(_text(j, "conversation"), _texts(j, "problems")),
    "text": lambda j: TextEvent(_text(j, "text"), bool(j.get("is_line"))),
    "partial": lambda j: PartialEvent(_text(j, "text"), bool(j.get("is_first"))),
    "tool": lambda j: ToolEvent(_text(j, "tool"), _text(j, "detail")),
    "usage": lambda j: UsageEvent(
        int(_number(j, "input_tokens")), int(_number(j, "output_tokens"))
    ),
    "retry": lambda j: RetryEvent(
        int(_number(j, "attempt")), _number(j, "seconds"), _text(j, "why")
    ),
    "denied": lambda j: DeniedEvent(_text(j, "tool")),
    "end": lambda j: EndEvent(_text(j, "task_id"), _text(j, "state"), _text(j, "output")),
}
