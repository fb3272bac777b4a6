"""What a headless run says, line by line, and what it came to. Pure.

Engines read the lines of their programs into these; the hub knows no others.
"""

import re
import signal as signals
from dataclasses import dataclass
from typing import Literal

from bullpen.engines import parse

DETAIL_CHARACTERS = 200
WHY_CHARACTERS = 400
# What shells and programs say of the signals that ended them, as an exit code.
ENDED = {
    128 + each
    for each in (
        signals.SIGHUP,
        signals.SIGINT,
        signals.SIGABRT,
        signals.SIGBUS,
        signals.SIGKILL,
        signals.SIGSEGV,
        signals.SIGTERM,
    )
}
NETWORK = re.compile(
    r"\b(?:ECONNREFUSED|ECONNRESET|ECONNABORTED|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|EPIPE"
    r"|EHOSTUNREACH|ENETUNREACH)\b|timed? ?out|socket hang up|fetch failed",
    re.IGNORECASE,
)
LIMIT = re.compile(
    r"\brate.?limit|too many requests|usage limit|\b(?:HTTP|status|code|error)[ :=]{1,3}429\b",
    re.IGNORECASE,
)
COMPLAINT = re.compile(r"^\W*(?:\w*error\b|fatal\b|unknown\b|invalid\b|bwrap:)", re.IGNORECASE)


@dataclass(frozen=True)
class TurnBegun:
    """A turn begins. `problems`: what the run goes on without, such as a server of tools."""

    conversation: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelText:
    """The model said something. `is_line`: a line of a longer text, not a text of its own."""

    text: str
    is_line: bool = False


@dataclass(frozen=True)
class Partial:
    """A piece of a text that the model is writing; the whole follows as `ModelText`, unless the run
    ends before. `is_first`: it begins a text."""

    text: str
    is_first: bool = False


@dataclass(frozen=True)
class ToolUsed:
    """The model uses a tool. `detail` says on what: a command, a path; one line, not redacted."""

    tool: str
    detail: str = ""


@dataclass(frozen=True)
class TokensSpent:
    """What one answer of the model used. Several lines may tell of the same answer: `Reader`
    passes on the first. Output may be counted only in part until the run ends (`RunOutcome`)."""

    input_tokens: int
    output_tokens: int
    answer: str = ""  # its id; empty: told once


@dataclass(frozen=True)
class Retrying:
    """The model's API refused; asked again after so many seconds."""

    attempt: int
    seconds: float
    why: str


@dataclass(frozen=True)
class ToolDenied:
    """A tool was not allowed to run."""

    tool: str


Fault = Literal["", "engine_error", "rate_limit", "budget", "cancelled"]


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended. `fault` is empty for a success, and says what kind of failure it was.

    Tokens are of this run; the cost is of the whole conversation so far (`cost_of_run`). What
    `is_retryable` may be tried again soon; a `rate_limit` only when that is over.
    """

    fault: Fault
    text: str
    conversation: str
    why: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    conversation_usd: float = 0.0
    denied: tuple[str, ...] = ()
    is_retryable: bool = False


Line = TurnBegun | ModelText | Partial | ToolUsed | TokensSpent | Retrying | ToolDenied | RunOutcome


def cost_of_run(before_usd: float, outcome: RunOutcome) -> float:
    """What this run cost, from the conversation's cost before it and after it."""
    return max(0.0, outcome.conversation_usd - before_usd)


def outcome_of_exit(code: int | None, signal: int | None, stderr_tail: str) -> RunOutcome:
    """The outcome of a run that ended without telling one. Pure. Signals of our own are not for
    this: whoever sent one knows what the end means."""
    lines = [line for line in map(_one_line, stderr_tail.splitlines()) if line]
    complaint = next((line for line in lines if COMPLAINT.match(line)), lines[-1] if lines else "")
    if signal is None and code in ENDED:
        signal = code - 128
    if signal is not None:
        name = signals.Signals(signal).name if signal in set(signals.Signals) else str(signal)
        why, is_retryable = f"ended by signal {name}", True
    else:
        why = f"exit code {code} without a result"
        is_retryable = code != 0 and NETWORK.search(complaint) is not None
    last_words = f"{complaint}\n{lines[-1]}" if lines else ""
    is_limit = signal is None and code != 0 and LIMIT.search(last_words) is not None
    shown = f"{complaint[:WHY_CHARACTERS]} ({why})" if complaint else why
    if is_limit:
        return RunOutcome("rate_limit", "", "", shown)
    return RunOutcome("engine_error", "", "", shown, is_retryable=is_retryable)


def _one_line(text: str) -> str:
    """A text without line breaks, control characters and half surrogates."""
    plain = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]", "", text)
    shown = "".join(char if char.isprintable() else " " for char in plain)
    return " ".join(shown.split())


def detail_of(arguments: object, names: tuple[str, ...]) -> str:
    """On what a tool is used: the first of these arguments that is there."""
    fields = parse.fields(arguments)
    for name in names:
        value = fields.get(name)
        if isinstance(value, list):
            value = " ".join(str(word) for word in value[:50])
        if isinstance(value, str) and value.strip():
            return _one_line(value[: DETAIL_CHARACTERS * 4])[:DETAIL_CHARACTERS]
    return ""
