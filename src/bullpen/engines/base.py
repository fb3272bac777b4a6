"""What an engine is: the one module that knows one agent program.

Engines decide, they do not act: a start becomes a command line with files and variables, what
the program reports becomes observations. The two exceptions are `find` and `make_ready`, which
look at and write to the program's own configuration. The hub does the rest.
"""

import json
import os
import re
import shutil
import signal as signals
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

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
    run: Path = Path()  # a directory of this headless run alone; in a terminal there is none
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
    max_turns: int = 0  # of a headless run; 0: no limit
    max_usd: float = 0.0  # what a headless run may cost; 0: no limit
    rules: tuple[str, ...] = ()  # what a person allowed this agent for good, beyond its role
    # Servers of tools, by name: their addresses. They take the agent's token.
    servers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Prepared:
    """What the program needs. `files` are of the session directory, `run_files` of `Start.run`; a
    value of the role's `env` wins over the same in `env`."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    run_files: Mapping[str, str] = field(default_factory=dict)
    conversation: str = ""  # its id, where we choose it; else a hook will tell
    state_files: str = ""
    message_socket: str = ""  # where it listens for messages, if it can
    first_input: bytes = b""  # typed into its terminal; a headless run reads a file


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
    """The model said something. `is_line`: a line of a longer text, not a text of its own."""

    text: str
    is_line: bool = False


@dataclass(frozen=True)
class Used:
    """The model uses a tool. `detail` says on what: a command, a path; one line, not redacted."""

    tool: str
    detail: str = ""


@dataclass(frozen=True)
class Spent:
    """What one answer of the model used. Several lines may tell of the same answer: `Reader`
    passes on the first. Output may be counted only in part until the run ends (`Outcome`)."""

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
class Denied:
    """A tool was not allowed to run."""

    tool: str


Fault = Literal["", "claude_error", "rate_limit", "budget", "cancelled"]


@dataclass(frozen=True)
class Outcome:
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


Line = Begun | Said | Used | Spent | Retrying | Denied | Outcome


def cost_of_run(before_usd: float, outcome: Outcome) -> float:
    """What this run cost, from the conversation's cost before it and after it."""
    return max(0.0, outcome.conversation_usd - before_usd)


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
COMPLAINT = re.compile(r"^\W*(?:\w*error\b|fatal\b|unknown\b|invalid\b|bwrap:)", re.IGNORECASE)


def outcome_of_exit(code: int | None, signal: int | None, stderr_tail: str) -> Outcome:
    """The outcome of a run that ended without telling one. Pure. Signals of our own are not for
    this: whoever sent one knows what the end means."""
    lines = [line for line in map(one_line, stderr_tail.splitlines()) if line]
    complaint = next((line for line in lines if COMPLAINT.match(line)), lines[-1] if lines else "")
    if signal is None and code in ENDED:
        signal = code - 128
    if signal is not None:
        name = signals.Signals(signal).name if signal in set(signals.Signals) else str(signal)
        why, is_retryable = f"ended by signal {name}", True
    else:
        why = f"exit code {code} without a result"
        is_retryable = code != 0 and NETWORK.search(complaint) is not None
    shown = f"{complaint[:WHY_CHARACTERS]} ({why})" if complaint else why
    return Outcome("claude_error", "", "", shown, is_retryable=is_retryable)


def one_line(text: str) -> str:
    """A text without line breaks, control characters and half surrogates."""
    plain = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]", "", text)
    shown = "".join(char if char.isprintable() else " " for char in plain)
    return " ".join(shown.split())


def detail_of(arguments: object, names: tuple[str, ...]) -> str:
    """On what a tool is used: the first of these arguments that is there."""
    fields = arguments if isinstance(arguments, dict) else {}
    for name in names:
        value = fields.get(name)
        if isinstance(value, list):
            value = " ".join(str(word) for word in value[:50])
        if isinstance(value, str) and value.strip():
            return one_line(value[: DETAIL_CHARACTERS * 4])[:DETAIL_CHARACTERS]
    return ""


def sound(text: str) -> str:
    """Without half surrogates, which JSON can hold and no file could."""
    return text.encode("utf-8", "replace").decode()


class Engine(Protocol):
    """One agent program."""

    name: str
    # What is not known of a program that has said nothing; empty when it will say so itself.
    missing: str
    # What it cannot do that others can; for `bullpen doctor`.
    lacks: tuple[str, ...]
    # Tools by which it asks the person something that is no permission.
    questions: frozenset[str]
    # Whether it understands instructions; else a task is told to it as it is.
    is_model: bool

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
        """How to run one prompt headless, on pipes. It reads the prompt from a file in
        `Start.run`: without that it does not start, and it ends by itself."""
        ...

    def read_line(self, line: bytes) -> tuple[Line, ...]:
        """What one line of a headless run's output says; nothing for what nobody needs. `Reader`
        reads a whole run."""
        ...

    def outcome_of_exit(self, code: int | None, signal: int | None, stderr_tail: str) -> Outcome:
        """What a run came to that ended without telling."""
        ...

    def writable(self, start: Start) -> tuple[Path, ...]:
        """The directories of its own that it writes to in a sandbox; `make_ready` makes them."""
        ...

    def hosts(self, start: Start) -> tuple[str, ...]:
        """`host:port` of the model's API, without which it is of no use."""
        ...

    def programs(self, start: Start) -> tuple[Path, ...]:
        """What has to be there, readable, for the program itself to run: see `install_roots`."""
        ...


class Reader:
    """Reads the lines of one run, and counts what an answer used once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._counted: set[str] = set()

    def read(self, line: bytes) -> tuple[Line, ...]:
        return tuple(said for said in self._engine.read_line(line) if not self._is_known(said))

    def _is_known(self, said: Line) -> bool:
        if not isinstance(said, Spent) or not said.answer:
            return False
        is_known = said.answer in self._counted
        self._counted.add(said.answer)
        return is_known


def run_file(start: Start, name: str) -> Path:
    """Where a file of this run goes; never among those of the agent's other runs."""
    if not start.run.is_absolute():
        raise BullpenError("a run needs a directory of its own", kind=Kind.INVALID)
    return start.run / name


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


# Visible in every sandbox.
OF_THE_SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")))
MOST_PROGRAMS = 8  # links and interpreters, each leading to the next


def install_roots(argv0: str, env: Mapping[str, str]) -> tuple[Path, ...]:
    """The directories (or files) that a program is installed in, so that it runs where only they
    can be seen: where each link on the way lies, where the last one leads to, and the same for the
    interpreter that a script names. Never a home directory as a whole, or what is above one."""
    person = Path(env.get("HOME") or "/nonexistent")
    wide = {Path("/"), person, person.resolve(), *person.parents, *person.resolve().parents}
    wide |= {person / ".local", person.resolve() / ".local"}
    found: list[Path] = []
    names = [argv0]
    for _ in range(MOST_PROGRAMS):
        if not names:
            break
        path = shutil.which(names.pop(0), path=env.get("PATH", os.defpath))
        if path is None:
            continue
        place = Path(path).absolute()
        for _ in range(MOST_PROGRAMS):
            found.append(_root_of(place, wide))
            if not place.is_symlink():
                break
            place = _next(place)
        names += _interpreter(place)
    kept = [path for path in found if not any(path.is_relative_to(s) for s in OF_THE_SYSTEM)]
    return tuple(
        path
        for path in dict.fromkeys(kept)
        if not any(path != other and path.is_relative_to(other) for other in kept)
    )


def _next(link: Path) -> Path:
    """Where it leads to, by the names of the directories as they are on the way: where these are
    themselves links, it leads there also where only what was found is to be seen."""
    by_name = Path(os.path.normpath(link.parent / link.readlink()))
    if os.path.lexists(by_name):
        return by_name
    return Path(os.path.normpath(link.parent.resolve() / link.readlink()))


def _root_of(file: Path, wide: set[Path]) -> Path:
    """What of an installation that file belongs to."""
    parts = file.parts
    if "node_modules" in parts:  # packages lie beside those that they need
        return Path(*parts[: parts.index("node_modules") + 1])
    directory = file.parent
    if directory.name == "bin" and not file.is_symlink() and directory.parent not in wide:
        return directory.parent
    return file if directory in wide else directory


def _interpreter(file: Path) -> list[str]:
    """The program that a script names in its first line."""
    try:
        with file.open("rb") as text:
            first = text.readline(512)
    except OSError:
        return []
    if not first.startswith(b"#!"):
        return []
    words = first[2:].decode("utf-8", "replace").split()
    if words and Path(words[0]).name == "env":
        rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return [words[0], *rest[:1]]
    return words[:1]


def host_of(url: str) -> str:
    """`host:port` of an address; empty if it names none."""
    try:
        found = urlsplit(url if "//" in url else f"//{url}")
        port = found.port or (80 if found.scheme == "http" else 443)
    except ValueError:
        return ""
    host = found.hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if host else ""


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
    is_model = True
    interrupt = b"\x03"

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

    def outcome_of_exit(self, code: int | None, signal: int | None, stderr_tail: str) -> Outcome:
        return outcome_of_exit(code, signal, stderr_tail)

    def writable(self, start: Start) -> tuple[Path, ...]:
        return ()

    def hosts(self, start: Start) -> tuple[str, ...]:
        return ()

    def programs(self, start: Start) -> tuple[Path, ...]:
        words = (start.role.command if start.role else ()) or start.words
        return install_roots(words[0], start.env) if words else ()
