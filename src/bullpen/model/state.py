"""What an agent is doing: the states, what was observed, and how one follows from the other.

Pure. `fold` is the only place where a state comes from. Nothing follows from silence or
from time that passed: where evidence is missing the state is `unknown` and says what is
missing. An end is final for its run; a new run begins with `launched`.
"""

from typing import Annotated, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class Value(BaseModel):
    """Immutable; keys of a later version are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Starting(Value):
    """Asked for; its program has not shown itself yet."""

    state: Literal["starting"] = "starting"


class Idle(Value):
    """Waits for something to do."""

    state: Literal["idle"] = "idle"


class Working(Value):
    """Does something; perhaps with a tool."""

    state: Literal["working"] = "working"
    tool: str = ""


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
    """A state with what it rests on. `told` is what the engine itself said last."""

    run: str
    state: State
    since: float
    decided_by: str
    evidence: tuple[Evidence, ...] = ()
    told: State | None = None
    told_at: float = 0.0

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


class Told(Value):
    """The engine said so itself, by `source`."""

    at: float
    source: str
    says: str
    state: State


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
    if seen.at < view.told_at:
        return view  # overtaken by a newer fact on its way here
    noted = _noted(view, seen.source, seen.says, seen.at)
    noted = noted.model_copy(update={"told": seen.state, "told_at": seen.at})
    return _moved(noted, seen.state, seen.source, seen.at)


def _after_held(view: View, seen: Held) -> View:
    says = f"alive, pid {seen.child} in holder {seen.holder}"
    noted = _noted(view, PROCESS, says, seen.at)
    if view.told is not None:  # and was out of reach meanwhile
        return _moved(noted, view.told, _teller(view), view.told_at)
    state = Unknown(missing=seen.missing) if seen.missing else Starting()
    return _moved(noted, state, PROCESS, seen.at)


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
        case Working(tool=tool):
            return tool
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


def _noted(view: View, source: str, says: str, at: float) -> View:
    """With that evidence in place of what the same source said before."""
    others = tuple(item for item in view.evidence if item.source != source)
    return view.model_copy(
        update={"evidence": (*others, Evidence(source=source, says=says, at=at))}
    )


def _moved(view: View, state: State, decided_by: str, at: float) -> View:
    since = view.since if state == view.state else at
    return view.model_copy(update={"state": state, "since": since, "decided_by": decided_by})


def _teller(view: View) -> str:
    told = [item for item in view.evidence if item.at == view.told_at and item.source != PROCESS]
    return told[-1].source if told else PROCESS
