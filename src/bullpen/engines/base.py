"""What an engine is: the code that knows one agent program. Values and Protocols only.

An engine does three things: `Prepare` (how the program is started), `Observe` (what it says of
itself) and `Converse` (how it is given text). Used by the hub; implemented by one package per
program, from the parts in `parts` and `home_prepare`. Engines read the program's configuration;
only `make_ready` writes to it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from bullpen.engines.lines import Line, RunOutcome, TokensSpent
from bullpen.engines.repository import list_directories
from bullpen.errors import BullpenError, Kind
from bullpen.model.agent import Agent
from bullpen.model.role import Role
from bullpen.model.state import EngineReport
from bullpen.model.transcript import Entry


@dataclass(frozen=True)
class Start:
    """What one start asks for, and where it takes place."""

    role: Role | None  # None: a program held as it is
    words: tuple[str, ...]
    prompt: str = ""
    agent: str = ""
    cwd: str = "/"
    top: str = ""  # of the checkout that holds it; empty: there is none
    session: Path = Path()  # the agent's session directory
    run: Path = Path()  # a directory of this headless run alone; in a terminal there is none
    home: Path = Path()  # of Bullpen
    person: Path = Path()  # the person's home directory
    env: Mapping[str, str] = field(default_factory=dict)  # what the program gets anyway
    url: str = ""  # of the hub
    hook: tuple[str, ...] = ()  # the command that hands an event to the hub
    socket: Path = Path()  # where its program may listen for messages
    ask: tuple[str, ...] = ()  # the command that asks the hub for a permission, and waits
    conversation: str = ""  # that goes on (`has_conversation`); empty: a new one begins
    is_trusted: bool = False  # whether the repository's own settings and hooks may be used
    is_sandboxed: bool = False
    max_turns: int = 0  # of a headless run; 0: no limit
    max_usd: float = 0.0  # what a headless run may cost; 0: no limit
    rules: tuple[str, ...] = ()  # what a person allowed this agent for good, beyond its role
    # Servers of tools, by name: their addresses. They take the agent's token.
    servers: Mapping[str, str] = field(default_factory=dict)
    relay: tuple[str, ...] = ()  # the command that offers the hub's tools; empty: it has none


@dataclass(frozen=True)
class Prepared:
    """What the program needs. `files` are of the session directory, `run_files` of `Start.run`; a
    value of the role's `env` wins over the same in `env`."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    run_files: Mapping[str, str] = field(default_factory=dict)
    conversation: str = ""  # its id, where we choose it; else a hook will tell
    message_socket: str = ""  # where it listens for messages, if it can
    first_input: bytes = b""  # typed into its terminal; a headless run reads a file


@dataclass(frozen=True)
class StateFile:
    """What a program wrote about itself; matched to an agent by the conversation, not the pid."""

    conversation: str
    pid: int
    told: EngineReport | None  # None: nothing yet
    started: str = ""  # when the process began, in the kernel's ticks; empty: not known


@dataclass(frozen=True)
class RateLimited:
    """The model's API refused to go on, for a while; `reset` is when it will, if that was told."""

    reset: float | None


class Prepare(Protocol):
    """How the program is started: command line, files, variables, and what a sandbox must show."""

    # Whether it understands instructions; else a task is told to it as it is.
    is_model: bool
    # What of a repository is code to it: used only if the repository is trusted.
    code: tuple[str, ...]
    # How the variables begin that are its own; those of others are not for it to see in a sandbox.
    variables: tuple[str, ...]

    def trusts(self, start: Start) -> bool:
        """Whether the person told the program to trust `Start.cwd` or what holds it, up to
        `Start.top`."""
        ...

    def check_login(self, start: Start) -> None:
        """Refuses a start for which the program would have to be logged in first. Of one that is
        not even installed, that is said."""
        ...

    def has_conversation(self, start: Start) -> bool:
        """Whether `Start.conversation` is there to go on with. Called before it is prepared."""
        ...

    def prepare(self, start: Start) -> Prepared:
        """How to start it in a terminal; refuses what the program cannot do."""
        ...

    def prepare_run(self, start: Start) -> Prepared:
        """How to run one prompt headless, on pipes. It reads the prompt from a file in
        `Start.run`: without that it does not start, and it ends by itself."""
        ...

    def make_ready(self, start: Start, prepared: Prepared) -> None:
        """Write into the program's own configuration what a start without questions needs."""
        ...

    def keep_ready(self, start: Start, prepared: Prepared) -> None:
        """The same once more, when it was started in a terminal and has yet to read it: other
        programs that share the configuration may have written it anew without that."""
        ...

    def state_files(self, start: Start) -> str:
        """The directory where it writes what it does: state files, or transcripts; empty: none."""
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


class Observe(Protocol):
    """What the program says of itself, by hooks, files, lines of a run and its exit. Pure."""

    # What is not known of a program that has said nothing; empty when it will say so itself.
    missing: str
    # Tools by which it asks the person something that is no permission.
    questions: frozenset[str]
    # What its dialogs at a start are about, by words that each shows; `find_dialog` knows them.
    dialogs: Mapping[str, str]

    def observe(self, hook: Mapping[str, Any], at: float) -> EngineReport | None:
        """What a hook says of its state; None: nothing."""
        ...

    def find_dialog(self, lines: Sequence[str]) -> str:
        """What the dialog on its screen is about, if one of `dialogs` is there; empty: none is."""
        ...

    def conversation(self, hook: Mapping[str, Any]) -> str:
        """The conversation that a hook names; empty: none."""
        ...

    def read_state_file(self, text: bytes) -> StateFile | None:
        """What a file in `state_files` says; None if it is none of these."""
        ...

    def limited(self, hook: Mapping[str, Any], now: float) -> RateLimited | None:
        """Whether a hook says that the turn ended at a limit of the model's API."""
        ...

    def find_reset(self, words: str, now: float) -> float | None:
        """When a limit that a run ended at will be over, if its words name that."""
        ...

    def read_line(self, line: bytes) -> tuple[Line, ...]:
        """What one line of a headless run's output says; nothing for what nobody needs. `Reader`
        reads a whole run."""
        ...

    def outcome_of_exit(self, code: int | None, signal: int | None, stderr_tail: str) -> RunOutcome:
        """What a run came to that ended without telling."""
        ...


class Converse(Protocol):
    """How the program is given prompts and messages, and how its hooks are answered."""

    # The hook that shows that a prompt was taken; empty: it has none.
    taken: str
    # The keys that end what it is doing; empty: it has none.
    interrupt: bytes
    typing_seconds: float
    # It may ask the model before its servers of tools are connected: for so long the answer to the
    # hook of its first prompt waits for them. 0: it waits for them itself.
    tools_seconds: float

    def typed(self, text: str) -> tuple[bytes, ...]:
        """The keys that give a prompt to a program that waits for one, in parts between which
        `typing_seconds` have to pass; empty: it takes none."""
        ...

    def message_line(self, text: str) -> bytes:
        """What is written to `message_socket` to give it a prompt; empty: it has no such."""
        ...

    def prompt_of(self, hook: Mapping[str, Any]) -> str:
        """The prompt that a hook shows to have been taken; empty: none."""
        ...

    def find_shown(self, agent: Agent, ids: set[str], since: float) -> set[str]:
        """Which of these ids of messages are in its transcripts written since then."""
        ...

    def conversation_files(self, agent: Agent, conversation: str) -> Iterable[Path]:
        """The files of its transcript."""
        ...

    def read_entries(self, line: bytes) -> tuple[Entry, ...]:
        """What a line of a transcript says; nothing for what nobody said or did."""
        ...

    def add(self, event: str, text: str) -> str:
        """What the hook of a tool is answered to show the model a text; empty for hooks that
        cannot."""
        ...

    def add_to_prompt(self, event: str, text: str) -> str:
        """The same for the hook that shows that a prompt was taken (`taken`): the model reads the
        text with that prompt."""
        ...

    def hold(self, hook: Mapping[str, Any], reason: str) -> str:
        """What the hook at the end of a turn is answered so that the model goes on, with that
        reason; empty for other hooks, and where there is no such answer."""
        ...

    def refuse(self, event: str, reason: str) -> str:
        """What the hook of a tool or a prompt is answered so that it does not go on; empty for
        hooks that cannot say no."""
        ...


class Engine(Prepare, Observe, Converse, Protocol):
    """One agent program: the three together. Who needs one of them asks for that one."""

    name: str
    # What it cannot do that others can; for `bullpen doctor`.
    lacks: tuple[str, ...]


class Reader:
    """Reads the lines of one run, and counts what an answer used once."""

    def __init__(self, engine: Observe) -> None:
        self._engine = engine
        self._counted: set[str] = set()

    def read(self, line: bytes) -> tuple[Line, ...]:
        return tuple(fact for fact in self._engine.read_line(line) if not self._is_known(fact))

    def _is_known(self, fact: Line) -> bool:
        if not isinstance(fact, TokensSpent) or not fact.answer:
            return False
        is_known = fact.answer in self._counted
        self._counted.add(fact.answer)
        return is_known


def directories_of(start: Start) -> tuple[Path, ...]:
    """From the top of its checkout down to where it starts. Pure."""
    return list_directories(Path(start.top or start.cwd), Path(start.cwd))


def run_file(start: Start, name: str) -> Path:
    """Where a file of this run goes; never among those of the agent's other runs."""
    if not start.run.is_absolute():
        raise BullpenError("a run needs a directory of its own", kind=Kind.INVALID)
    return start.run / name


def role_of(start: Start) -> Role:
    """The role of a headless run: there is none without."""
    if start.role is None:
        raise BullpenError("a run needs a role", kind=Kind.INVALID)
    return start.role


def fed(file: Path, argv: Iterable[str]) -> tuple[str, ...]:
    """The command with that file as its standard input; without the file it does not run. These
    programs wait for the end of a pipe before they begin; and a prompt may be longer than one
    argument can be."""
    return ("/bin/sh", "-c", 'exec <"$1"; shift; exec "$@"', "sh", str(file), *argv)


def host_of(url: str) -> str:
    """`host:port` of an address; empty if it names none."""
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        return ""
    host = parts.hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if host else ""
