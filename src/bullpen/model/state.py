"""What an agent is doing: states, and the observations that they rest on.

Pure. Every state comes from `fold` (`model/fold.py`). Where evidence is missing the state is
`unknown` and says what is missing.
"""

from typing import Annotated, Literal, assert_never

from pydantic import Field, TypeAdapter

from bullpen.clock import local_time
from bullpen.model.value import Value


class Starting(Value):
    """Asked for; its program has not shown itself yet."""

    state: Literal["starting"] = "starting"


class Idle(Value):
    """Waits for input or, with `limited_until`, for its rate limit to be reset. `failed`: why its
    last turn did not get an answer; until the next begins."""

    state: Literal["idle"] = "idle"
    limited_until: float | None = None
    failed: str = ""


# What a working agent does while no tool runs; `review`: its tool waits for the reviewer.
Doing = Literal[
    "",
    "thinking",
    "review",
    "compacting",
    "retrying",
    "rate-limited",
    "waiting for children",
]


class Working(Value):
    """Does something; perhaps with a tool."""

    state: Literal["working"] = "working"
    tool: str = ""
    doing: Doing = ""
    until: float | None = None  # for how long it is rate-limited, if that is known


class Blocked(Value):
    """Cannot go on without a person. `dialog`: one of the program's own, at its start; `tool` is
    then what that is about."""

    state: Literal["blocked"] = "blocked"
    on: Literal["permission", "question", "dialog"]
    tool: str = ""


class Errored(Value):
    """A task agent that cannot work, and why. Until it is started again."""

    state: Literal["error"] = "error"
    reason: str


class Draining(Value):
    """A task agent that takes no more tasks. It leaves when the task it has is over."""

    state: Literal["draining"] = "draining"


class Exited(Value):
    """Its program has ended, with a code or by a signal. `unasked`: by one that came from
    elsewhere, as when memory ran out; nobody had stopped it here."""

    state: Literal["exited"] = "exited"
    code: int | None = None
    signal: int | None = None
    unasked: bool = False


class Lost(Value):
    """Proved gone without a record of its end."""

    state: Literal["lost"] = "lost"
    reason: str


# `terminated`: its holder was told to end, as by a machine that goes down. `killed`: with its home.
CutBy = Literal["reboot", "terminated", "killed"]


class Interrupted(Value):
    """Ended from outside, by nothing that it did and by no `stop`."""

    state: Literal["ended"] = "ended"
    reason: CutBy


class Unknown(Value):
    """Not known, and why not."""

    state: Literal["unknown"] = "unknown"
    missing: str


State = Annotated[
    Starting
    | Idle
    | Working
    | Blocked
    | Errored
    | Draining
    | Exited
    | Lost
    | Interrupted
    | Unknown,
    Field(discriminator="state"),
]
Ended = Exited | Lost | Interrupted
# How far a task agent is; `Idle`: it takes tasks.
Stage = Annotated[Starting | Idle | Errored | Draining, Field(discriminator="state")]


class Evidence(Value):
    """The latest report of one source, and its time."""

    source: str
    says: str
    at: float


class View(Value):
    """A state, its evidence, and the latest report of each kind of source (rung): the engine's
    state file (`filed`), its hooks (`told`), its telemetry (`hint`). Of a task agent also its
    stage, which the hub decides; of others that is None. Stored with events: the names of fields
    stay."""

    run: str
    state: State
    since: float
    decided_by: str
    evidence: tuple[Evidence, ...] = ()
    filed: State | None = None
    filed_at: float = 0.0
    told: State | None = None
    told_at: float = 0.0
    hint: State | None = None
    hint_at: float = 0.0
    stage: Stage | None = None
    idle_since: float = 0.0  # while the next hub looks for the engine of one that was idle
    is_prompt_due: bool = False  # it was started with a prompt, and has told of no turn yet

    @property
    def is_over(self) -> bool:
        return isinstance(self.state, Ended)

    @property
    def has_reported(self) -> bool:
        """Whether its engine has said anything of itself in this run."""
        return self.told is not None or self.filed is not None

    @property
    def is_ready(self) -> bool:
        """Whether it is a task agent that takes tasks."""
        return isinstance(self.stage, Idle) and not self.is_over

    @property
    def is_working(self) -> bool:
        """Also while its stage hides that: a task agent that drains works on its last task."""
        if self.stage is None or self.is_over:
            return isinstance(self.state, Working)
        return isinstance(self.told, Working)


VIEW = TypeAdapter(View)

# ── observations ─────────────────────────────────────────────────────────────


class Launched(Value):
    """A new run was asked for. `has_prompt`: with a prompt that begins a turn."""

    at: float
    run: str
    has_prompt: bool = False


class HolderRunning(Value):
    """A holder runs the program. `missing`: what is unknown until the engine reports; empty if
    the engine reports by itself when it is ready."""

    at: float
    holder: int
    child: int
    missing: str = ""


class ScreenSeen(Value):
    """What the program's screen shows: a dialog of its own, or none (empty). `missing`: as of
    `HolderRunning`."""

    at: float
    dialog: str = ""
    missing: str = ""


Rung = Literal["file", "hook", "telemetry"]


class EngineReport(Value):
    """The engine itself reported a state, by `source`. Of a state file only the newest content
    is read."""

    at: float
    source: str
    says: str
    state: State
    rung: Rung = "hook"


class Staged(Value):
    """The hub says how far a task agent is."""

    at: float
    says: str
    stage: Stage


class ProgramEnded(Value):
    """The program ended. `unasked`: as of `Exited`."""

    at: float
    code: int | None = None
    signal: int | None = None
    unasked: bool = False


class HolderGone(Value):
    """The holder is proved gone, and left no record."""

    at: float
    reason: str


class RunCut(Value):
    """The holder is proved gone, left no record, and what ended it is known."""

    at: float
    reason: CutBy


class HolderSilent(Value):
    """The holder cannot be asked, and is not proved gone."""

    at: float
    reason: str


Later = (
    HolderRunning
    | EngineReport
    | ScreenSeen
    | Staged
    | ProgramEnded
    | HolderGone
    | RunCut
    | HolderSilent
)
Observation = Launched | Later

CUT_BY: dict[CutBy, str] = {
    "reboot": "a restart of the machine",
    "terminated": "SIGTERM to its holder: a shutdown, a log-out, or a person",
    "killed": "bullpen kill --all",
}
HUB = "hub"
PROCESS = "process"
STATE_FILE = "engine state file"
TELEMETRY = "telemetry"
SCREEN = "screen"
OTHERS = (HUB, PROCESS, STATE_FILE, TELEMETRY, SCREEN)


def was_interrupted(state: State) -> bool:
    """Whether it ended by nothing that it did, and by nobody here."""
    match state:
        case Interrupted(reason=reason):
            return reason != "killed"
        case Exited(unasked=unasked):
            return unasked
        case _:
            return isinstance(state, Lost)


def words(state: State) -> str:
    """The state as a list shows it: `blocked (permission: Bash)`."""
    detail = _detail(state)
    return f"{state.state} ({detail})" if detail else state.state


def _detail(state: State) -> str:
    match state:
        case Working():
            return _doing(state)
        case Idle():
            return _resting(state)
        case Blocked(on=on, tool=tool):
            return f"{on}: {tool}" if tool else on
        case Exited(code=code, signal=signal):
            return f"signal {signal}" if signal else str(code)
        case (
            Errored(reason=why) | Lost(reason=why) | Interrupted(reason=why) | Unknown(missing=why)
        ):
            return " · ".join(why.splitlines())  # a row is one line
        case Starting() | Draining():
            return ""
        case _:
            assert_never(state)


def _resting(state: Idle) -> str:
    if state.limited_until is not None:
        return f"rate-limited until {local_time(state.limited_until)}"
    return f"failed: {state.failed}" if state.failed else ""


def _doing(state: Working) -> str:
    if state.doing == "review":
        return f"review: {state.tool}"
    if state.doing == "rate-limited" and state.until is not None:
        return f"rate-limited until {local_time(state.until)}"
    return state.tool or state.doing
