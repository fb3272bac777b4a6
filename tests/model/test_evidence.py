"""How the rungs of evidence are weighed: the state file, hooks, telemetry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.engines.claude import observe
from bullpen.model.fold import fold
from bullpen.model.state import (
    STATE_FILE,
    TELEMETRY,
    Blocked,
    EngineReport,
    HolderRunning,
    Idle,
    Launched,
    ProgramEnded,
    ScreenSeen,
    State,
    View,
    Working,
    words,
)

IDLE, BUSY = Idle(), Working()
FAILED = Idle(failed="no")
WAITING = Blocked(on="permission")
THINKING, BASH = Working(doing="thinking"), Working(tool="Bash")
ASKED = Blocked(on="permission", tool="Bash")
REVIEW = Working(doing="review", tool="Bash")


def filed(state: State, at: float) -> EngineReport:
    return EngineReport(at=at, source=STATE_FILE, says="x", state=state, rung="file")


def hooked(state: State, at: float, name: str = "PreToolUse") -> EngineReport:
    return EngineReport(at=at, source=f"hook {name}", says="x", state=state)


def hinted(state: State, at: float) -> EngineReport:
    return EngineReport(at=at, source=TELEMETRY, says="x", state=state, rung="telemetry")


def seen(*all_of_it: EngineReport) -> View:
    view = fold(fold(None, Launched(at=0, run="r")), HolderRunning(at=0.5, holder=1, child=2))
    for one in all_of_it:
        view = fold(view, one)
    return view


@pytest.mark.parametrize(
    ("told", "shown", "decides"),
    [
        # Hooks alone, as long as there is no file.
        ([hooked(THINKING, 1)], "working (thinking)", "hook PreToolUse"),
        # An interrupt and a refusal: the file goes to idle, and no hook comes.
        ([hooked(BASH, 1), filed(BUSY, 1.1), filed(IDLE, 2)], "idle", STATE_FILE),
        ([hooked(ASKED, 1), filed(WAITING, 1.1), filed(IDLE, 2)], "idle", STATE_FILE),
        # A turn that failed shows until the next begins, also if no hook tells of that.
        (
            [filed(BUSY, 1), hooked(FAILED, 2), filed(IDLE, 3)],
            "idle (failed: no)",
            STATE_FILE,
        ),
        ([hooked(FAILED, 2), filed(BUSY, 3)], "working", STATE_FILE),
        ([hooked(FAILED, 2), filed(BUSY, 3), filed(IDLE, 4)], "idle", STATE_FILE),
        ([hooked(FAILED, 2), hooked(THINKING, 3), filed(IDLE, 4)], "idle", STATE_FILE),
        # The file says what, hooks say which tool.
        ([filed(BUSY, 1), hooked(BASH, 2)], "working (Bash)", STATE_FILE),
        ([hooked(BASH, 1), filed(WAITING, 2)], "blocked (permission: Bash)", STATE_FILE),
        # Asked at once, although the file still says busy; in a headless run it always does.
        ([filed(BUSY, 1), hooked(ASKED, 2)], "blocked (permission: Bash)", "hook PreToolUse"),
        # Answered in the terminal: nothing but the file changes, and the tool runs.
        ([hooked(ASKED, 1), filed(WAITING, 2), filed(BUSY, 3)], "working (Bash)", STATE_FILE),
        # A queued prompt was announced early, its turn began without a hook.
        ([filed(BUSY, 1), hooked(IDLE, 2, "Stop"), filed(BUSY, 3)], "working", STATE_FILE),
        # Stop comes a moment before the file changes: still as it was.
        ([filed(BUSY, 1), hooked(IDLE, 2, "Stop")], "working", STATE_FILE),
        # Under review it is not blocked yet, although its dialog is open; until that is answered.
        ([filed(BUSY, 1), hooked(REVIEW, 2)], "working (review: Bash)", STATE_FILE),
        ([hooked(REVIEW, 1), filed(WAITING, 2)], "working (review: Bash)", "hook PreToolUse"),
        ([hooked(REVIEW, 1), filed(WAITING, 2), filed(BUSY, 3)], "working (Bash)", STATE_FILE),
        ([hooked(REVIEW, 1), filed(WAITING, 2), filed(IDLE, 3)], "idle", STATE_FILE),
        # A limit is known to hooks alone.
        ([filed(IDLE, 1), hooked(Idle(limited_until=60), 2)], None, STATE_FILE),
        ([hooked(Idle(limited_until=60), 2), filed(BUSY, 3)], "working", STATE_FILE),
        # Telemetry only says more about work.
        (
            [filed(BUSY, 1), hinted(Working(doing="retrying"), 2)],
            "working (retrying)",
            TELEMETRY,
        ),
        ([filed(IDLE, 1), hinted(Working(doing="retrying"), 2)], "idle", STATE_FILE),
        (
            [hinted(Working(doing="retrying"), 2), filed(BUSY, 1), hooked(BASH, 3)],
            "working (Bash)",
            STATE_FILE,
        ),
        ([hinted(Working(doing="retrying"), 1)], "starting", "process"),
    ],
)
def test_s1_the_ladder(told: list[EngineReport], shown: str | None, decides: str) -> None:
    view = seen(*told)
    if shown is not None:
        assert words(view.state) == shown
    else:
        assert words(view.state).startswith("idle (rate-limited until ")
    assert view.decided_by == decides


STATES = st.sampled_from([IDLE, THINKING, BASH, ASKED, REVIEW, Blocked(on="question")])
TOLDS = st.lists(
    st.one_of(
        st.builds(filed, st.sampled_from([IDLE, BUSY, WAITING]), st.floats(1, 100)),
        st.builds(hooked, STATES, st.floats(1, 100)),
        st.builds(hinted, st.just(Working(doing="retrying")), st.floats(1, 100)),
    ),
    max_size=12,
)


@given(TOLDS)
def test_s1_what_the_file_says_holds_for_the_kind_of_state(told: list[EngineReport]) -> None:
    view = seen(*told)
    if view.filed is None:
        return
    asked_later = isinstance(view.told, Blocked) and view.told_at > view.filed_at
    if asked_later and isinstance(view.filed, Working):
        assert view.state == view.told
    elif isinstance(view.filed, Blocked) and view.told == REVIEW:
        assert view.state.state == "working"
    else:
        assert view.state.state == view.filed.state


@given(TOLDS)
def test_s1_nothing_is_heard_after_the_end(told: list[EngineReport]) -> None:
    ended = fold(seen(), ProgramEnded(at=0.7, code=0))
    view = ended
    for one in told:
        view = fold(view, one)
    assert view == ended


@given(TOLDS)
def test_s1_being_found_again_changes_nothing(told: list[EngineReport]) -> None:
    view = seen(*told)
    again = fold(view, HolderRunning(at=200, holder=1, child=2))
    if told and view.state.state != "starting":
        assert again.state == view.state


@given(TOLDS)
def test_s1_what_decides_is_among_the_evidence(told: list[EngineReport]) -> None:
    view = seen(*told)
    assert view.decided_by in {item.source for item in view.evidence}


@pytest.mark.parametrize(
    "hook",
    [
        {"hook_event_name": "Notification", "notification_type": "idle_prompt"},
        {"hook_event_name": "Notification", "notification_type": "permission_prompt"},
        {"hook_event_name": "SubagentStop"},
        {"hook_event_name": "SessionStart", "source": "compact"},
        {"hook_event_name": "SessionEnd", "reason": "other"},
        {"hook_event_name": ["Stop"]},
        {},
    ],
)
def test_s1_late_and_empty_hooks_say_nothing(hook: dict[str, object]) -> None:
    assert observe.observe(hook, 1.0) is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"pid": 1}',
        b'{"sessionId": "../../x", "pid": 1, "status": "idle", "statusUpdatedAt": 1}',
        b'{"sessionId": 7, "pid": 1}',
        b"\xff\xfe",
    ],
)
def test_s1_a_file_that_is_none_says_nothing(text: bytes) -> None:
    assert observe.read_state_file(text) is None


def test_s1_a_file_before_the_first_turn_says_whose_it_is_only() -> None:
    id = "073bb442-5768-404a-830f-83efa4e769a9"
    found = observe.read_state_file(f'{{"sessionId": "{id}", "pid": 7}}'.encode())
    assert found is not None
    assert (found.conversation, found.pid, found.told) == (id, 7, None)


def test_s3_a_dialog_on_the_screen_counts_until_the_engine_reports() -> None:
    view = fold(seen(), ScreenSeen(at=2, dialog="trust"))
    assert (words(view.state), view.decided_by) == ("blocked (dialog: trust)", "screen")
    assert words(fold(view, ScreenSeen(at=3)).state) == "starting"
    assert words(fold(view, ScreenSeen(at=3, missing="a word")).state) == "unknown (a word)"
    told = fold(view, hooked(IDLE, 3, "SessionStart"))
    assert words(told.state) == "idle"
    assert fold(told, ScreenSeen(at=4, dialog="trust")) == told
