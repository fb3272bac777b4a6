"""What an engine is: the one module that knows one agent program.

Engines decide, they do not act: a start becomes a command line with files and variables, what
the program reports becomes observations. The two exceptions are `find` and `make_ready`, which
look at and write to the program's own configuration. The hub does the rest.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from bullpen.errors import BullpenError, Kind
from bullpen.model.agent import Agent
from bullpen.model.role import Role
from bullpen.model.state import Blocked, Idle, State, Told, Working


@dataclass(frozen=True)
class Start:
    """What one start asks for, and where it takes place."""

    role: Role | None  # None: a program held as it is
    words: tuple[str, ...]
    prompt: str = ""
    agent: str = ""
    cwd: str = "/"
    session: Path = Path()  # the agent's session directory
    home: Path = Path()  # of Bullpen
    person: Path = Path()  # the person's home directory
    env: Mapping[str, str] = field(default_factory=dict)  # what the program gets anyway
    url: str = ""  # of the hub
    hook: tuple[str, ...] = ()  # the command that hands an event to the hub
    socket: Path = Path()  # where its program may listen for messages
    ask: tuple[str, ...] = ()  # the command that asks the hub for a permission, and waits
    conversation: str = ""  # to be continued; empty: a new one
    is_trusted: bool = False  # whether the repository's own settings and hooks may be used
    is_sandboxed: bool = False
    rules: tuple[str, ...] = ()  # what a person allowed this agent for good, beyond its role
    # Servers of tools, by name: their addresses. They take the agent's token.
    servers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Prepared:
    """What the program needs. `files` are of the session directory; a value of the role's `env`
    wins over the same in `env`."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    conversation: str = ""  # its id, where we choose it; else a hook will tell
    state_files: str = ""
    message_socket: str = ""  # where it listens for messages, if it can
    first_input: bytes = b""


@dataclass(frozen=True)
class StateFile:
    """What a program wrote about itself; matched to an agent by the conversation, not the pid."""

    conversation: str
    pid: int
    told: Told | None  # None: nothing yet
    started: str = ""  # when the process began, in the kernel's ticks; empty: not known


@dataclass(frozen=True)
class Limited:
    """The model's API refused to go on, for a while; `reset` is when it will, if that was told."""

    reset: float | None


# ── what a headless run says, line by line ───────────────────────────────────


@dataclass(frozen=True)
class Begun:
    """A turn begins. `problems`: what the run goes on without, such as a server of tools."""

    conversation: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Said:
    """The model said something."""

    text: str


@dataclass(frozen=True)
class Used:
    """The model uses a tool."""

    tool: str


@dataclass(frozen=True)
class Retrying:
    """The model's API refused; asked again after so many seconds."""

    attempt: int
    seconds: float
    why: str


@dataclass(frozen=True)
class Denied:
    """A tool was not allowed to run."""

    tool: str


Fault = Literal["", "claude_error", "rate_limit", "budget", "cancelled"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `fault` is empty for a success, and says what kind of failure it was.

    Tokens are of this run; the cost is of the whole conversation so far (`cost_of_run`).
    """

    fault: Fault
    text: str
    conversation: str
    why: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    conversation_usd: float = 0.0
    denied: tuple[str, ...] = ()


Line = Begun | Said | Used | Retrying | Denied | Outcome


def cost_of_run(before_usd: float, outcome: Outcome) -> float:
    """What this run cost, from the conversation's cost before it and after it."""
    return max(0.0, outcome.conversation_usd - before_usd)


class Engine(Protocol):
    """One agent program."""

    name: str
    # What is not known of a program that has said nothing; empty when it will say so itself.
    missing: str
    # What it cannot do that others can; for `bullpen doctor`.
    lacks: tuple[str, ...]
    # Tools by which it asks the person something that is no permission.
    questions: frozenset[str]

    def prepare(self, start: Start) -> Prepared:
        """How to start it in a terminal; refuses what the program cannot do."""
        ...

    def make_ready(self, start: Start, prepared: Prepared) -> None:
        """Write into the program's own configuration what a start without questions needs."""
        ...

    def observe(self, hook: Mapping[str, Any], at: float) -> Told | None:
        """What a hook says of its state; None: nothing."""
        ...

    def conversation(self, hook: Mapping[str, Any]) -> str:
        """The conversation that a hook names; empty: none."""
        ...

    def read_state_file(self, text: bytes) -> StateFile | None:
        """What a file in `state_files` says; None if it is none of these."""
        ...

    def typed(self, text: str) -> tuple[bytes, ...]:
        """The keys that give a prompt to a program that waits for one, in parts between which
        `typing_seconds` have to pass; empty: it takes none."""
        ...

    typing_seconds: float

    def message_line(self, text: str) -> bytes:
        """What is written to `message_socket` to give it a prompt; empty: it has no such."""
        ...

    # The hook that shows that a prompt was taken; empty: it has none.
    taken: str

    def prompt_of(self, hook: Mapping[str, Any]) -> str:
        """The prompt that a hook shows to have been taken; empty: none."""
        ...

    def add(self, event: str, text: str) -> str:
        """What the hook of a tool is answered to show the model a text; empty for hooks that
        cannot."""
        ...

    def find_shown(self, agent: Agent, ids: set[str], since: float) -> set[str]:
        """Which of these ids of messages are in its transcripts written since then."""
        ...

    # The keys that end what it is doing; empty: it has none.
    interrupt: bytes

    def refuse(self, event: str, reason: str) -> str:
        """What the hook of a tool or a prompt is answered so that it does not go on; empty for
        hooks that cannot say no."""
        ...

    def limited(self, hook: Mapping[str, Any], now: float) -> Limited | None:
        """Whether a hook says that the turn ended at a limit of the model's API."""
        ...

    def prepare_run(self, start: Start) -> Prepared:
        """How to run one prompt headless, on pipes; `first_input` is what it reads."""
        ...

    def read_line(self, line: bytes) -> tuple[Line, ...]:
        """What one line of a headless run's output says; nothing for what nobody needs."""
        ...

    # What ends the turn of a headless run when it is written to it; empty: only a signal does.
    interrupt_line: bytes


def find_program(env: Mapping[str, str], variable: str, name: str, package: str) -> str:
    """The program: what the variable names, else the first on the agent's own PATH."""
    wanted = env.get(variable) or os.environ.get(variable) or name
    found = shutil.which(wanted, path=env.get("PATH", os.defpath))
    if found is None:
        raise BullpenError(
            f"{wanted} is not installed" if wanted == name else f"no program {wanted}",
            hint=f"npm install -g {package} · or set {variable}",
            kind=Kind.UNAVAILABLE,
        )
    return str(Path(found).absolute())


# What a paste cannot hold, as pictures of it: it would end the paste, or be a key.
PICTURES = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
MOST_LINES = 100


def plain(text: str) -> str:
    """As a paste can hold it."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(PICTURES)


def pasted(text: str) -> bytes:
    """A prompt as a paste, and Enter: line breaks in it do not send it off in pieces."""
    return b"\x1b[200~" + plain(text).encode("utf-8", "replace") + b"\x1b[201~\r"


def clearing(text: str) -> bytes:
    """The keys that take away what an earlier try left of a text in a prompt, line by line."""
    return b"\x15\x7f" * min(plain(text).count("\n") + 4, MOST_LINES)


def state_of_hook(event: str, tool: str) -> State | None:
    """The state that a hook of the common names proves."""
    match event:
        case "SessionStart" | "Stop" | "StopFailure":
            return Idle()
        case "UserPromptSubmit" | "PostToolUse" | "PostToolUseFailure":
            return Working()
        case "PreToolUse":
            return Working(tool=tool)
        case "PermissionRequest":
            return Blocked(on="permission", tool=tool)
        case _:
            return None


def observe_hook(hook: Mapping[str, Any], at: float) -> Told | None:
    """`observe` of every engine whose hooks have the common names and keys."""
    event, tool = str(hook.get("hook_event_name", "")), str(hook.get("tool_name", ""))[:80]
    state = state_of_hook(event, tool)
    if state is None:
        return None
    return Told(at=at, source=f"hook {event}", says=tool or "received", state=state)


def refusal(event: str, reason: str) -> str:
    """`refuse` of every engine whose hooks have the common names and answers."""
    match event:
        case "PreToolUse":
            decision = {
                "hookEventName": event,
                "permissionDecision": "deny",
                "permissionDecisionReason": reason,
            }
            return json.dumps({"hookSpecificOutput": decision})
        case "UserPromptSubmit":
            return json.dumps({"decision": "block", "reason": reason})
        case _:
            return ""


class NoConversation:
    """The defaults of an engine without conversations, headless runs or state files."""

    lacks: tuple[str, ...] = ()
    questions: frozenset[str] = frozenset()
    interrupt = b"\x03"
    interrupt_line = b""

    def make_ready(self, start: Start, prepared: Prepared) -> None:
        """Nothing to write."""

    def conversation(self, hook: Mapping[str, Any]) -> str:
        return ""

    def read_state_file(self, text: bytes) -> StateFile | None:
        return None

    taken = ""
    typing_seconds = 0.0

    def typed(self, text: str) -> tuple[bytes, ...]:
        return ()

    def message_line(self, text: str) -> bytes:
        return b""

    def prompt_of(self, hook: Mapping[str, Any]) -> str:
        return ""

    def add(self, event: str, text: str) -> str:
        return ""

    def find_shown(self, agent: Agent, ids: set[str], since: float) -> set[str]:
        return set()

    def refuse(self, event: str, reason: str) -> str:
        return ""

    def limited(self, hook: Mapping[str, Any], now: float) -> Limited | None:
        return None

    def prepare_run(self, start: Start) -> Prepared:
        raise BullpenError("a plain program takes no tasks", kind=Kind.UNSUPPORTED)

    def read_line(self, line: bytes) -> tuple[Line, ...]:
        return ()
