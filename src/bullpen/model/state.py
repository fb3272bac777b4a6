"""What an agent is doing: the states, what was observed, and how one follows from the other.

Pure. `fold` is the only place where a state comes from. Nothing follows from silence or
from time that passed: where evidence is missing the state is `unknown` and says what is
missing. An end is final for its run; a new run begins with `launched`.
"""

import time
from typing import Annotated, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class Value(BaseModel):
    """Immutable; keys of a later version are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Starting(Value):
    """Asked for; its program has not shown itself yet."""

    state: Literal["starting"] = "starting"


class Idle(Value):
    """Waits for something to do; or, told so by the model's API, for its limit to be reset."""

    state: Literal["idle"] = "idle"
    limited_until: float | None = None


# What a working agent does while no tool runs; `review`: its tool waits for the reviewer.
Doing = Literal["", "thinking", "review", "compacting", "retrying", "rate-limited"]


class Working(Value):
    """Does something; perhaps with a tool."""

    state: Literal["working"] = "working"
    tool: str = ""
    doing: Doing = ""
    until: float | None = None  # for how long it is rate-limited, if that is known


class Blocked(Value):
    """Cannot go on without a person."""

    state: Literal["blocked"] = "blocked"
    on: Literal["permission", "question"]
    tool: str = ""


class Exited(Value):
    """Its program has ended, with a code or by a signal."""

    state: Literal["exited"] = "exited"
    code: int | None = None
    signal: int | None = None


class Lost(Value):
    """Proved gone without a record of its end."""

    state: Literal["lost"] = "lost"
    reason: str


class Unknown(Value):
    """Not known, and why not."""

    state: Literal["unknown"] = "unknown"
    missing: str


State = Annotated[
    Starting | Idle | Working | Blocked | Exited | Lost | Unknown, Field(discriminator="state")
]
Ended = Exited | Lost


class Evidence(Value):
    """What one source said last, and when."""

    source: str
    says: str
    at: float


class View(Value):
    """A state with what it rests on, and the last word of each rung of evidence: the engine's
    state file, its hooks (`told`), its telemetry (`hint`)."""

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

    @property
    def is_over(self) -> bool:
        return isinstance(self.state, Ended)


VIEW = TypeAdapter(View)

# ── observations ─────────────────────────────────────────────────────────────


class Launched(Value):
    """A new run was asked for."""

    at: float
    run: str


class Held(Value):
    """A holder has the program. `missing`: what is unknown until the engine speaks; empty
    when the engine is going to say by itself when it is ready."""

    at: float
    holder: int
    child: int
    missing: str = ""


Rung = Literal["file", "hook", "telemetry"]


class Told(Value):
    """The engine said so itself, by `source`. Of a state file only the newest is ever read."""

    at: float
    source: str
    says: str
    state: State
    rung: Rung = "hook"


class Ran(Value):
    """The program ended."""

    at: float
    code: int | None = None
    signal: int | None = None


class Gone(Value):
    """The holder is proved gone, and left no record."""

    at: float
    reason: str


class Silent(Value):
    """The holder cannot be asked, and is not proved gone."""

    at: float
    reason: str


Observation = Launched | Held | Told | Ran | Gone | Silent

PROCESS = "process"
STATE_FILE = "engine state file"
TELEMETRY = "telemetry"
OTHERS = (PROCESS, STATE_FILE, TELEMETRY)


def fold(view: View | None, seen: Observation) -> View:
    """The view after one more observation."""
    if isinstance(seen, Launched):
        note = Evidence(source="hub", says="asked to start", at=seen.at)
        return View(
            run=seen.run, state=Starting(), since=seen.at, decided_by="hub", evidence=(note,)
        )
    if view is None:
        raise ValueError("the first observation of a run is that it was launched")
    if view.is_over:
        return view  # a late hook of a dead program changes nothing
    if isinstance(seen, Told):
        return _after_told(view, seen)
    if isinstance(seen, Held):
        return _after_held(view, seen)
    state, says = _fate(seen)
    return _moved(_noted(view, PROCESS, says, seen.at), state, PROCESS, seen.at)


def _after_told(view: View, seen: Told) -> View:
    match seen.rung:
        case "file":
            told = {"filed": seen.state, "filed_at": seen.at}
        case "hook":
            if seen.at < view.told_at:
                return view  # overtaken by a newer fact on its way here
            told = {"told": seen.state, "told_at": seen.at}
        case "telemetry":
            if seen.at < view.hint_at:
                return view
            told = {"hint": seen.state, "hint_at": seen.at}
        case _:
            assert_never(seen.rung)
    noted = _noted(view, seen.source, seen.says, seen.at).model_copy(update=told)
    return _weighed(noted, seen.at)


def _after_held(view: View, seen: Held) -> View:
    says = f"alive, pid {seen.child} in holder {seen.holder}"
    noted = _noted(view, PROCESS, says, seen.at)
    if view.told is not None or view.filed is not None:  # and was out of reach meanwhile
        return _weighed(noted, max(view.told_at, view.filed_at))
    state = Unknown(missing=seen.missing) if seen.missing else Starting()
    return _moved(noted, state, PROCESS, seen.at)


def _weighed(view: View, at: float) -> View:
    """The state that follows from all that the engine said, and the rung that decides it."""
    state, decides = weigh(view)
    if state is None:
        return view
    source = {"file": STATE_FILE, "hook": _teller(view.evidence, view.told_at)}.get(
        decides, TELEMETRY
    )
    return _moved(view, state, source, at)


def weigh(view: View) -> tuple[State | None, Rung]:
    """Of the three rungs, the one that decides. The state file is right after an interrupt and
    a refusal, which fire no hook; hooks know the tool, and are the first to know of a question;
    telemetry only says more about work that the others agree on."""
    state, decides = _file_and_hook(view)
    if (
        isinstance(state, Working)
        and isinstance(view.hint, Working)
        and view.hint_at > max(view.told_at, view.filed_at)
    ):
        return view.hint, "telemetry"
    return state, decides


def _file_and_hook(view: View) -> tuple[State | None, Rung]:
    match view.filed:
        case None:
            return view.told, "hook"
        case Working():
            return _while_busy(view.filed, view.told, view.told_at > view.filed_at)
        case Blocked():
            return _while_waiting(view.filed, view.told)
        case _:
            return (view.told if isinstance(view.told, Idle) else view.filed), "file"


def _while_busy(filed: Working, told: State | None, is_told_later: bool) -> tuple[State, Rung]:
    match told:
        case Blocked() if is_told_later:
            # The file says it a moment later; in a headless run it never does.
            return told, "hook"
        case Blocked(tool=tool):
            return Working(tool=tool), "file"  # answered in the terminal
        case Working(doing="review", tool=tool) if not is_told_later:
            return Working(tool=tool), "file"
        case Working():
            return told, "file"
        case _:
            return filed, "file"


def _while_waiting(filed: Blocked, told: State | None) -> tuple[State, Rung]:
    match told:
        case Working(doing="review"):
            return told, "hook"  # its dialog is open, but nobody has to answer yet
        case Working(tool=tool) | Blocked(tool=tool):
            return filed.model_copy(update={"tool": tool}), "file"
        case _:
            return filed, "file"


def _fate(seen: Ran | Gone | Silent) -> tuple[State, str]:
    """What became of the process, and the words for it."""
    match seen:
        case Ran(code=code, signal=signal):
            says = f"ended by signal {signal}" if signal else f"ended with {code}"
            return Exited(code=code, signal=signal), says
        case Gone(reason=reason):
            return Lost(reason=reason), f"gone: {reason}"
        case Silent(reason=reason):
            return Unknown(missing=reason), reason
        case _:
            assert_never(seen)


def words(state: State) -> str:
    """The state as a list shows it: `blocked (permission: Bash)`."""
    detail = _detail(state)
    return f"{state.state} ({detail})" if detail else state.state


def _detail(state: State) -> str:
    match state:
        case Working():
            return _doing(state)
        case Idle(limited_until=until) if until is not None:
            return f"rate-limited until {_clock(until)}"
        case Blocked(on=on, tool=tool):
            return f"{on}: {tool}" if tool else on
        case Exited(code=code, signal=signal):
            return f"signal {signal}" if signal else str(code)
        case Lost(reason=text) | Unknown(missing=text):
            return text
        case Starting() | Idle():
            return ""
        case _:
            assert_never(state)


def _doing(state: Working) -> str:
    if state.doing == "review":
        return f"review: {state.tool}"
    if state.doing == "rate-limited" and state.until is not None:
        return f"rate-limited until {_clock(state.until)}"
    return state.tool or state.doing


def _noted(view: View, source: str, says: str, at: float) -> View:
    """With that evidence in place of what the same source said before."""
    others = tuple(item for item in view.evidence if item.source != source)
    return view.model_copy(
        update={"evidence": (*others, Evidence(source=source, says=says, at=at))}
    )


def _moved(view: View, state: State, decided_by: str, at: float) -> View:
    since = view.since if state == view.state else at
    return view.model_copy(update={"state": state, "since": since, "decided_by": decided_by})


def _teller(evidence: tuple[Evidence, ...], at: float) -> str:
    """Who said last what hooks say."""
    told = [item for item in evidence if item.at == at and item.source not in OTHERS]
    return told[-1].source if told else PROCESS


def _clock(at: float) -> str:
    return time.strftime("%H:%M", time.localtime(at))
