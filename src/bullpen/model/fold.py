"""How a state follows from observations. Pure.

`fold` is the only source of states; `hub/agents/observe` calls it. Silence and time prove nothing.
An end is final for its run; a new run begins with `Launched`.
"""

from typing import Literal, assert_never

from bullpen.model.state import (
    CUT_BY,
    HUB,
    OTHERS,
    PROCESS,
    SCREEN,
    STATE_FILE,
    TELEMETRY,
    Blocked,
    Draining,
    EngineReport,
    Errored,
    Evidence,
    Exited,
    HolderGone,
    HolderRunning,
    HolderSilent,
    Idle,
    Interrupted,
    Later,
    Launched,
    Lost,
    Observation,
    ProgramEnded,
    RunCut,
    Rung,
    ScreenSeen,
    Staged,
    Starting,
    State,
    Unknown,
    View,
    Working,
)

# What says that an engine is idle before it has begun with the prompt of its start.
BEFORE_TURNS = ("hook SessionStart", STATE_FILE)


def fold(view: View | None, observation: Observation) -> View:
    """The view after one more observation."""
    if isinstance(observation, Launched):
        note = Evidence(source=HUB, says="asked to start", at=observation.at)
        return View(
            run=observation.run,
            state=Starting(),
            since=observation.at,
            decided_by=HUB,
            evidence=(note,),
            is_prompt_due=observation.has_prompt,
        )
    if view is None:
        raise ValueError("the first observation of a run is that it was launched")
    if view.is_over and not _explains(observation, view.state):
        return view  # a late hook of a dead program changes nothing
    return _after(view, observation)


def _explains(observation: Observation, end: State) -> bool:
    """Whether it says why a run was terminated: that it was a reboot shows in the next boot."""
    return isinstance(observation, RunCut) and end == Interrupted(reason="terminated")


def _after(view: View, observation: Later) -> View:
    match observation:
        case EngineReport():
            return _after_report(view, observation)
        case HolderRunning():
            return _after_holder(view, observation)
        case ScreenSeen():
            return _after_screen(view, observation)
        case Staged():
            return _after_staged(view, observation)
        case _:
            state, says = _fate(observation)
            noted = _noted(view, PROCESS, says, observation.at)
            return _moved(noted, state, PROCESS, observation.at)


def _after_report(view: View, report: EngineReport) -> View:
    match report.rung:
        case "file":
            update = {"filed": report.state, "filed_at": report.at}
            if isinstance(report.state, Working) and report.at > view.told_at:
                update |= _forgiven(view.told)
        case "hook":
            if report.at < view.told_at:
                return view  # overtaken by a newer fact on its way here
            update = {"told": report.state, "told_at": report.at}
        case "telemetry":
            if report.at < view.hint_at:
                return view
            update = {"hint": report.state, "hint_at": report.at}
        case _:
            assert_never(report.rung)
    if report.state != Idle() or report.source not in BEFORE_TURNS:
        update["is_prompt_due"] = False
    noted = _noted(view, report.source, report.says, report.at).model_copy(update=update)
    return _weighed(noted, report.at)


def _forgiven(state: State | None) -> dict[str, State]:
    """A new turn began, of which no hook told: that the last one failed is over."""
    is_failed = isinstance(state, Idle) and bool(state.failed)
    return {"told": Idle()} if is_failed else {}


def _after_holder(view: View, holder: HolderRunning) -> View:
    says = f"alive, pid {holder.child} in holder {holder.holder}"
    noted = _noted(view, PROCESS, says, holder.at)
    if view.has_reported:  # and was out of reach meanwhile
        return _weighed(noted, max(view.told_at, view.filed_at))
    state = Unknown(missing=holder.missing) if holder.missing else Starting()
    return _moved(noted, state, PROCESS, holder.at)


def _after_screen(view: View, screen: ScreenSeen) -> View:
    """A screen counts until the engine itself says something."""
    if view.has_reported:
        return view
    if screen.dialog:
        state: State = Blocked(on="dialog", tool=screen.dialog)
    else:
        state = Unknown(missing=screen.missing) if screen.missing else Starting()
    if state == view.state:
        return view
    says = f"dialog: {screen.dialog}" if screen.dialog else "no dialog"
    return _moved(_noted(view, SCREEN, says, screen.at), state, SCREEN, screen.at)


def _after_staged(view: View, observation: Staged) -> View:
    if isinstance(view.stage, Draining):
        return view  # that is final for its run, also when the next hub looks for its engine
    update: dict[str, object] = {"stage": observation.stage}
    at = observation.at
    match observation.stage:
        case Starting():
            update["told"] = None  # what its task does now is not known to this hub yet
            if not isinstance(view.state, Starting) or view.told is not None:
                update["idle_since"] = view.since if isinstance(view.state, Idle) else 0.0
        case Idle() if view.told is None:
            update["idle_since"] = 0.0
            at = view.idle_since or at  # what only a hub did is no work of the agent's
    noted = _noted(view, HUB, observation.says, observation.at).model_copy(update=update)
    return _weighed(noted, at)


def _weighed(view: View, at: float) -> View:
    """The view with the state that follows from all reports of the engine, and which rung
    decides it."""
    state, decides = weigh(view)
    if state is None:
        return view
    sources = {
        "hub": HUB,
        "file": STATE_FILE,
        "hook": _last_hook(view.evidence, view.told_at),
        "telemetry": TELEMETRY,
    }
    return _moved(view, state, sources[decides], at)


def weigh(view: View) -> tuple[State | None, Rung | Literal["hub"]]:
    """Of the three rungs, the one that decides. The state file is right after an interrupt and
    a refusal, which fire no hook; hooks know the tool, and are the first to know of a question;
    telemetry only says more about work that the others agree on. A task agent that does not take
    tasks is in its stage, whatever its task does."""
    match view.stage:
        case Starting() | Errored() | Draining():
            return view.stage, "hub"
        case Idle() if view.told is None:
            return view.stage, "hub"
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


def _while_busy(filed: Working, hooked: State | None, is_told_later: bool) -> tuple[State, Rung]:
    match hooked:
        case Blocked() if is_told_later:
            # The file says it a moment later; in a headless run it never does.
            return hooked, "hook"
        case Blocked(tool=tool):
            return Working(tool=tool), "file"  # answered in the terminal
        case Working(doing="review", tool=tool) if not is_told_later:
            return Working(tool=tool), "file"
        case Working():
            return hooked, "file"
        case _:
            return filed, "file"


def _while_waiting(filed: Blocked, hooked: State | None) -> tuple[State, Rung]:
    match hooked:
        case Working(doing="review"):
            return hooked, "hook"  # its dialog is open, but nobody has to answer yet
        case Working(tool=tool) | Blocked(tool=tool):
            return filed.model_copy(update={"tool": tool}), "file"
        case _:
            return filed, "file"


def _fate(observation: ProgramEnded | HolderGone | RunCut | HolderSilent) -> tuple[State, str]:
    """What became of the process, and the words for it."""
    match observation:
        case ProgramEnded(code=code, signal=signal, unasked=unasked):
            says = f"ended by signal {signal}" if signal else f"ended with {code}"
            return Exited(code=code, signal=signal, unasked=unasked), says
        case HolderGone(reason=reason):
            return Lost(reason=reason), f"gone: {reason}"
        case RunCut(reason=cut):
            return Interrupted(reason=cut), f"gone by {CUT_BY[cut]}"
        case HolderSilent(reason=reason):
            return Unknown(missing=reason), reason
        case _:
            assert_never(observation)


def _noted(view: View, source: str, says: str, at: float) -> View:
    """The view with this evidence instead of the source's earlier one."""
    others = tuple(item for item in view.evidence if item.source != source)
    return view.model_copy(
        update={"evidence": (*others, Evidence(source=source, says=says, at=at))}
    )


def _moved(view: View, state: State, decided_by: str, at: float) -> View:
    since = view.since if state == view.state else at
    return view.model_copy(update={"state": state, "since": since, "decided_by": decided_by})


def _last_hook(evidence: tuple[Evidence, ...], at: float) -> str:
    """The source of the latest report by a hook."""
    reports = [item for item in evidence if item.at == at and item.source not in OTHERS]
    return reports[-1].source if reports else PROCESS
