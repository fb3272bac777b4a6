"""What a person sees of a task that runs: the events folded into one value, and its line. Pure."""

from dataclasses import dataclass, replace
from typing import Any

from bullpen.client.tasks import Event
from bullpen.model.usage import short_count, short_seconds, short_usd
from bullpen.text import printable, width

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_A_SECOND = 10
DOING_COLUMNS = 80  # so that the figures stay in sight


@dataclass(frozen=True)
class Seen:
    """A turn so far."""

    state: str = "queued"
    doing: str = ""
    approval: int = 0  # that it waits for
    tokens: int = 0
    usd: float = 0.0
    text: str = ""  # what was said last
    is_answered: bool = False  # its last run has come to a good end
    is_over: bool = False


def see(seen: Seen, event: Event) -> Seen:
    """The next value."""
    data = event.data
    change: dict[str, Any] = {}
    match event.name:
        case "state":
            change = {"state": str(data.get("state", ""))}
        case "begun" | "text":
            change = {"doing": "", "text": str(data.get("text", seen.text))}
        case "tool":
            change = {"doing": _tool(str(data.get("tool")), str(data.get("detail") or ""))}
        case "usage":
            # It comes first of an answer, so the tool before it has ended.
            tokens = _count(data.get("input_tokens")) + _count(data.get("output_tokens"))
            change = {"doing": "", "tokens": seen.tokens + tokens}
        case "retry":
            change = {"doing": f"tries again ({data.get('why') or 'the model failed'})"}
        case "denied":
            change = {"doing": f"{data.get('tool')} was denied"}
        case "approval":
            change = {"approval": _count(data.get("id"))}
        case "turn":
            change = {"doing": "", "is_answered": not data.get("fault")}
        case "end":
            change = {"is_over": True}
    return replace(seen, **change)


def line(seen: Seen, name: str, seconds: float, columns: int) -> str:
    """`⠹ amy · Bash (pytest -x) · 1m12s · 18.4k tokens · $0.15`, no wider than that."""
    frame = FRAMES[int(seconds * FRAMES_A_SECOND) % len(FRAMES)]
    parts = [name, cut(printable(_doing(seen)), DOING_COLUMNS), _elapsed(seconds)]
    if seen.tokens:
        parts.append(f"{short_count(seen.tokens)} tokens")
    if seen.usd:
        parts.append(short_usd(seen.usd))
    return cut(f"{frame} {printable(' · '.join(parts))}", columns)


def cut(text: str, columns: int) -> str:
    """As much as fits; `…` says that there was more."""
    if width(text) <= columns:
        return text
    kept, used = [], 0
    for char in text:
        used += width(char)
        if used > columns - 1:
            break
        kept.append(char)
    return "".join(kept) + "…" if columns > 0 else ""


def unsaid(seen: Seen, output: str | None) -> str:
    """What is left to print of the output for somebody who has read every text."""
    return "" if output is None or output.strip() == seen.text.strip() else output


def _doing(seen: Seen) -> str:
    match seen.state:
        case "queued":
            return "waits"
        case "cancelling":
            return "is being cancelled"
    if seen.approval:
        return f"{seen.doing or 'it'} waits for you: bullpen approve {seen.approval}"
    return seen.doing or "thinks"


def _elapsed(seconds: float) -> str:
    return short_seconds(seconds) if seconds >= 10 else f"{int(seconds)}s"


def _tool(tool: str, detail: str) -> str:
    return f"{tool} ({detail})" if detail else tool


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
