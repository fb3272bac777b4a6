"""The reducer: what follows from what was observed, and what does not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.fold import fold
from bullpen.model.state import (
    STATE_FILE,
    TELEMETRY,
    VIEW,
    Blocked,
    Draining,
    EngineReport,
    Errored,
    Exited,
    HolderGone,
    HolderRunning,
    HolderSilent,
    Idle,
    Interrupted,
    Launched,
    Lost,
    Observation,
    ProgramEnded,
    Staged,
    Starting,
    Unknown,
    View,
    Working,
    words,
)

RUN = Launched(at=1.0, run="r1")
BLOCKED = Blocked(on="permission", tool="Bash")
SILENT = HolderSilent(at=4, reason="no answer")
HELD = HolderRunning(at=2.0, holder=10, child=11, missing="it reports no state")


def told(at: float, state: Any, source: str = "hook X") -> EngineReport:
    return EngineReport(at=at, source=source, says="received", state=state)


def after(*seen: Observation) -> View:
    view = None
    for each in seen:
        view = fold(view, each)
    assert view is not None
    return view


def test_i5_the_prompt_of_a_start_is_due_until_a_turn_is_told_of() -> None:
    start = RUN.model_copy(update={"has_prompt": True})
    ready = (start, HELD, told(3, Idle(), "hook SessionStart"), told(4, Idle(), STATE_FILE))
    assert not after(RUN).is_prompt_due
    assert after(*ready).is_prompt_due
    for turn in (Working(), BLOCKED, Idle(failed="API 500")):
        assert not after(*ready, told(5, turn), told(6, Idle(), STATE_FILE)).is_prompt_due
    # A hub that was away may hear of the end of the turn alone.
    assert not after(*ready, told(5, Idle(), "hook Stop")).is_prompt_due


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        ([RUN], Starting()),
        ([RUN, HELD], Unknown(missing="it reports no state")),
        ([RUN, HolderRunning(at=2, holder=1, child=2)], Starting()),
        ([RUN, HELD, told(3, Working(tool="Bash"))], Working(tool="Bash")),
        ([RUN, HELD, told(3, BLOCKED)], BLOCKED),
        # a late notification does not overwrite a newer fact
        ([RUN, HELD, told(5, Idle()), told(4, Working())], Idle()),
        # out of reach: not known; back in reach: what it said last stands
        ([RUN, HELD, told(3, Idle()), SILENT], Unknown(missing="no answer")),
        ([RUN, HELD, told(3, Idle()), SILENT, HELD], Idle()),
        # an end is final
        ([RUN, HELD, ProgramEnded(at=4, code=0), told(5, Working())], Exited(code=0)),
        ([RUN, HELD, HolderGone(at=4, reason="killed"), HELD], Lost(reason="killed")),
        ([RUN, HELD, ProgramEnded(at=4, signal=9), HolderGone(at=5, reason="x")], Exited(signal=9)),
        # until the next run
        ([RUN, HELD, ProgramEnded(at=4, code=0), Launched(at=5, run="r2")], Starting()),
    ],
)  # fmt: skip
def test_b4_state_follows_from_observations(seen: list[Observation], state: object) -> None:
    assert after(*seen).state == state


RETRYING, LIMITED = Working(doing="retrying"), Working(doing="rate-limited")


def filed(at: float, state: Any) -> EngineReport:
    return EngineReport(at=at, source=STATE_FILE, says="busy", state=state, rung="file")


def hinted(at: float, state: Any) -> EngineReport:
    return EngineReport(at=at, source=TELEMETRY, says="x", state=state, rung="telemetry")


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        ([told(3, Working()), hinted(6, RETRYING)], RETRYING),
        # telemetry that was overtaken, by its own kind or by one of the others
        ([told(3, Working()), hinted(6, RETRYING), hinted(5, LIMITED)], RETRYING),
        ([told(6, Working(tool="x")), hinted(5, RETRYING)], Working(tool="x")),
        ([told(3, Working()), filed(7, Working()), hinted(5, RETRYING)], Working()),
        ([told(3, Working()), hinted(5, RETRYING), filed(7, Working())], Working()),
        # the file is later by a moment; of the same moment it is right
        ([filed(4, Working()), told(5, BLOCKED)], BLOCKED),
        ([filed(5, Working()), told(5, BLOCKED)], Working(tool="Bash")),
        ([filed(6, Working()), told(5, BLOCKED)], Working(tool="Bash")),
        # out of reach, and back: also what only the file had said stands
        ([filed(4, Working()), SILENT, HELD], Working()),
    ],
)
def test_s1_the_newer_word_counts(seen: list[Observation], state: object) -> None:
    assert after(RUN, HELD, *seen).state == state


def staged(at: float, stage: Any) -> Staged:
    return Staged(at=at, says="said", stage=stage)


CHECKED, READY, LEAVES = staged(2, Starting()), staged(3, Idle()), staged(5, Draining())
FAILED = staged(3, Errored(reason="no claude"))


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        ([CHECKED], Starting()),
        ([CHECKED, READY], Idle()),
        ([CHECKED, FAILED], Errored(reason="no claude")),
        # only while it takes tasks its task says what it does
        ([CHECKED, READY, told(4, Working())], Working()),
        ([CHECKED, told(4, Working())], Starting()),
        ([CHECKED, told(4, Working()), staged(5, Idle())], Working()),
        ([CHECKED, FAILED, told(4, Working())], Errored(reason="no claude")),
        ([CHECKED, READY, told(4, Working()), LEAVES, told(6, Idle())], Draining()),
        # the next hub looks for the engine again, and does not know yet what its task does
        ([CHECKED, FAILED, staged(4, Starting()), staged(5, Idle())], Idle()),
        ([CHECKED, READY, told(4, Working()), staged(5, Starting()), staged(6, Idle())], Idle()),
        # who was told to leave does
        ([CHECKED, READY, LEAVES, staged(6, Starting()), staged(7, Idle())], Draining()),
        ([CHECKED, READY, LEAVES, ProgramEnded(at=6, code=0)], Exited(code=0)),
        (
            [CHECKED, READY, LEAVES, ProgramEnded(at=6, code=0), Launched(at=7, run="r2")],
            Starting(),
        ),
    ],
)
def test_c1_a_task_agent_is_in_its_stage_unless_it_takes_tasks(
    seen: list[Observation], state: object
) -> None:
    assert after(RUN, *seen).state == state


@pytest.mark.parametrize(
    ("seen", "since"),
    [
        ([CHECKED, READY], 3),
        ([CHECKED, READY, told(4, Working()), told(5, Idle())], 5),
        # The next hub, and the one after that, look for its engine.
        ([CHECKED, READY, staged(9, Starting()), staged(10, Idle())], 3),
        ([CHECKED, READY, staged(9, Starting()), staged(10, Starting()), staged(11, Idle())], 3),
        ([CHECKED, READY, told(4, Working()), told(5, Idle()), staged(9, Starting())], 9),
        (
            [
                *(CHECKED, READY, told(4, Working()), told(5, Idle())),
                *(staged(9, Starting()), staged(10, Idle())),
            ],
            5,
        ),
        # It worked, or failed, or works by now.
        ([CHECKED, READY, told(4, Working()), staged(9, Starting()), staged(10, Idle())], 10),
        ([CHECKED, FAILED, staged(9, Starting()), staged(10, Idle())], 10),
        (
            [
                *(CHECKED, READY, staged(9, Starting()), told(10, Working())),
                *(staged(11, Starting()), staged(12, Idle())),
            ],
            12,
        ),
        ([CHECKED, READY, staged(9, Starting()), staged(10, Idle()), told(11, Working())], 11),
    ],
)
def test_p7_a_task_agent_is_idle_since_its_last_task_whichever_hub_looks(
    seen: list[Observation], since: float
) -> None:
    assert after(RUN, *seen).since == since


def test_c1_the_hub_decides_the_stage() -> None:
    assert after(RUN, CHECKED, READY).decided_by == "hub"
    assert after(RUN, CHECKED, READY, told(4, Working(), "task")).decided_by == "task"
    assert after(RUN, CHECKED, READY, told(4, Working(), "task"), LEAVES).decided_by == "hub"


def test_y1_a_draining_agent_works_on_its_last_task() -> None:
    busy = [CHECKED, READY, told(4, Working()), LEAVES]
    assert after(RUN, *busy).is_working
    assert not after(RUN, *busy, told(6, Idle())).is_working
    assert not after(RUN, *busy, ProgramEnded(at=6, code=0)).is_working


def test_b2_a_view_of_before_stages_loads() -> None:
    fields = after(RUN, told(3, Idle(), "hub")).model_dump(mode="json")
    del fields["stage"]
    view = VIEW.validate_python(fields)
    assert (view.state, view.stage, view.is_ready) == (Idle(), None, False)


def test_b4_a_run_begins_with_its_launch() -> None:
    with pytest.raises(ValueError, match="launched"):
        fold(None, HELD)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (Working(tool="Grep"), "working (Grep)"),
        (Working(), "working"),
        (Blocked(on="permission", tool="Bash"), "blocked (permission: Bash)"),
        (Blocked(on="question"), "blocked (question)"),
        (Exited(code=3), "exited (3)"),
        (Exited(signal=9), "exited (signal 9)"),
        (Lost(reason="its holder was killed"), "lost (its holder was killed)"),
        (Interrupted(reason="reboot"), "ended (reboot)"),
        (Interrupted(reason="killed"), "ended (killed)"),
        (Unknown(missing="it reports no state"), "unknown (it reports no state)"),
        (Starting(), "starting"),
        (Idle(), "idle"),
        (Errored(reason="no claude"), "error (no claude)"),
        (Errored(reason="first line\nsecond"), "error (first line · second)"),
        (Draining(), "draining"),
    ],
)
def test_p7_state_in_words(state: Any, text: str) -> None:
    assert words(state) == text


times = st.floats(2, 100)
states = st.sampled_from([Idle(), Working(), Working(tool="x"), Blocked(on="question")])
observations = st.one_of(
    st.builds(
        HolderRunning,
        at=times,
        holder=st.just(1),
        child=st.just(2),
        missing=st.just("nothing said"),
    ),
    st.builds(
        EngineReport, at=times, source=st.sampled_from(["a", "b"]), says=st.just("s"), state=states
    ),
    st.builds(HolderSilent, at=times, reason=st.just("silent")),
    st.builds(ProgramEnded, at=times, code=st.integers(0, 255)),
    st.builds(HolderGone, at=times, reason=st.just("gone")),
)


@given(st.lists(observations, max_size=12))
def test_b4_properties(seen: list[Observation]) -> None:
    view = after(RUN)
    newest = 0.0
    for each in seen:
        before, view = view, fold(view, each)
        if before.is_over:
            assert view == before
            continue
        if isinstance(each, EngineReport) and each.at >= newest:
            newest = each.at
            assert view.state == each.state
        # what decides is always among the evidence
        assert view.decided_by in {item.source for item in view.evidence}
        # one piece of evidence per source
        assert len({item.source for item in view.evidence}) == len(view.evidence)
        assert (view.since == before.since) or view.state != before.state
        assert VIEW.validate_json(view.model_dump_json()) == view


@given(st.lists(observations, max_size=12), st.floats(0, 1e6))
def test_b4_time_that_passes_changes_nothing(seen: list[Observation], later: float) -> None:
    """The same observations, all of them later: the same states."""
    moved = [each.model_copy(update={"at": each.at + later}) for each in seen]
    assert after(RUN, *seen).state == after(RUN, *moved).state
