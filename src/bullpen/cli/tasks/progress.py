"""What a person sees of a task that runs: the events folded into one value, and its line. Pure."""

from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias, assert_never

from bullpen.client.task_events import (
    BegunEvent,
    DeniedEvent,
    EndEvent,
    EventData,
    OtherEvent,
    PartialEvent,
    RetryEvent,
    StateEvent,
    TaskEvent,
    TextEvent,
    ToolEvent,
    TurnEvent,
    UsageEvent,
)
from bullpen.model.usage import short_count, short_seconds, short_usd
from bullpen.text import cut_to, printable

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_A_SECOND = 10
DOING_COLUMNS = 80  # so that the figures stay in sight


@dataclass(frozen=True)
class TurnProgress:
    """What is shown of a turn so far."""

    state: str = "queued"
    doing: str = ""
    limited_until: float | None = None  # it waits in the queue for that
    approval: int = 0  # that it waits for
    tokens: int = 0
    usd: float = 0.0
    text: str = ""  # what was said last
    written: str = ""  # of a text that is not whole yet
    is_answered: bool = False  # its last run has come to a good end
    is_over: bool = False


@dataclass(frozen=True)
class TakenBy:
    """The agent that has the task, as a look at the task says; empty: nobody has it yet."""

    agent: str
    name: ClassVar[str] = "taken"

    @property
    def fields(self) -> dict[str, object]:
        """As `--json` prints it."""
        return {"agent": self.agent}


@dataclass(frozen=True)
class ApprovalAwaited:
    """The approval that its agent waits for, as a look at the inbox says; 0: none."""

    id: int
    tool: str = ""
    name: ClassVar[str] = "approval"

    @property
    def fields(self) -> dict[str, object]:
        """As `--json` prints it."""
        return {"id": self.id, "tool": self.tool}


SeenEvent: TypeAlias = TaskEvent | TakenBy | ApprovalAwaited


def see(seen: TurnProgress, event: SeenEvent) -> TurnProgress:
    """The next value."""
    match event:
        case TaskEvent(data=data):
            return _see_data(seen, data)
        case ApprovalAwaited(id=number):
            return replace(seen, approval=number)
        case TakenBy():
            return seen
        case _:
            assert_never(event)


def _see_data(seen: TurnProgress, data: EventData) -> TurnProgress:
    match data:
        case BegunEvent() | TextEvent() | PartialEvent():
            seen = _see_text(seen, data)
        case ToolEvent() | RetryEvent() | DeniedEvent():
            seen = replace(seen, doing=_doing_now(data))
        case StateEvent(state=state, limited_until=limit):
            seen = replace(seen, state=state, limited_until=limit)
        case UsageEvent():
            # It comes first of an answer, so the tool before it has ended.
            tokens = data.input_tokens + data.output_tokens
            seen = replace(seen, doing="", tokens=seen.tokens + tokens)
        case TurnEvent(fault=fault):
            seen = replace(seen, doing="", is_answered=not fault)
        case EndEvent():
            seen = replace(seen, is_over=True)
        case OtherEvent():
            pass
        case _:
            assert_never(data)
    return seen


def _see_text(seen: TurnProgress, data: BegunEvent | TextEvent | PartialEvent) -> TurnProgress:
    match data:
        case PartialEvent(text=text, is_first=is_first):
            before = "" if is_first else seen.written
            return replace(seen, doing="writes", written=before + text)
        case TextEvent(text=text):
            return replace(seen, doing="", text=text, written="")
        case _:
            return replace(seen, doing="", written="")


def _doing_now(data: ToolEvent | RetryEvent | DeniedEvent) -> str:
    match data:
        case ToolEvent(tool=tool, detail=detail):
            return _tool(tool, detail)
        case RetryEvent(why=why):
            return f"tries again ({why or 'the model failed'})"
        case DeniedEvent(tool=tool):
            return f"{tool} was denied"


def line(seen: TurnProgress, name: str, seconds: float, columns: int) -> str:
    """`⠹ amy · Bash (pytest -x) · 1m12s · 18.4k tokens · $0.15`, no wider than that."""
    frame = FRAMES[int(seconds * FRAMES_A_SECOND) % len(FRAMES)]
    parts = [name, cut_to(printable(_doing(seen, name)), DOING_COLUMNS), _elapsed(seconds)]
    if seen.tokens:
        parts.append(f"{short_count(seen.tokens)} tokens")
    if seen.usd:
        parts.append(short_usd(seen.usd))
    return cut_to(f"{frame} {printable(' · '.join(parts))}", columns)


def unwritten(seen: TurnProgress, text: str) -> str:
    """What is left to print of a text for somebody who has read the pieces of it until now."""
    if not seen.written:
        return text
    if not text.startswith(seen.written):
        return f"\n{text}"
    return text.removeprefix(seen.written) or ("" if text.endswith("\n") else "\n")


def unsaid(seen: TurnProgress, output: str | None) -> str:
    """What is left to print of the output for somebody who has read every text."""
    if output is not None and seen.written and output.endswith(seen.written):
        return "\n"  # it ended in the middle of a text: that is not a line yet
    return "" if output is None or output.strip() == seen.text.strip() else output


def _doing(seen: TurnProgress, name: str) -> str:
    match seen.state:
        case "queued":
            return "waits for its rate limit" if seen.limited_until else "waits"
        case "cancelling":
            return "is being cancelled"
    if seen.approval:
        host, slash, _ = name.rpartition("/")
        return f"{seen.doing or 'it'} waits for you: bullpen approve {host}{slash}{seen.approval}"
    return seen.doing or "thinks"


def _elapsed(seconds: float) -> str:
    return short_seconds(seconds) if seconds >= 10 else f"{int(seconds)}s"


def _tool(tool: str, detail: str) -> str:
    return f"{tool} ({detail})" if detail else tool
