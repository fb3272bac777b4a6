"""What an engine is: the one part of Bullpen that knows one agent program.

Engines decide, they do not act: a start becomes a command line with files and variables, what
the program reports becomes observations. They look at the program's own configuration for that;
only `make_ready` writes to it. The hub does the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from bullpen.engines.lines import Line, Outcome, Spent, outcome_of_exit
from bullpen.engines.programs import install_roots
from bullpen.errors import BullpenError, Kind
from bullpen.model.agent import Agent
from bullpen.model.role import Role
from bullpen.model.state import Told


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
    # How the variables begin that are its own; those of others are not for it to see in a sandbox.
    variables: tuple[str, ...]

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

    def find_reset(self, words: str, now: float) -> float | None:
        """When a limit that a run ended at will be over, if its words name that."""
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


def host_of(url: str) -> str:
    """`host:port` of an address; empty if it names none."""
    try:
        found = urlsplit(url if "//" in url else f"//{url}")
        port = found.port or (80 if found.scheme == "http" else 443)
    except ValueError:
        return ""
    host = found.hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if host else ""


class NoConversation:
    """The defaults of an engine without conversations, headless runs or state files."""

    lacks: tuple[str, ...] = ()
    questions: frozenset[str] = frozenset()
    is_model = True
    variables: tuple[str, ...] = ()
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

    def find_reset(self, words: str, now: float) -> float | None:
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
