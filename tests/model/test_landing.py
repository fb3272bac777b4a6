"""N3-N5: the states of an entry, their moves, batches, order and halving. Pure."""

import itertools
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.model.landing import (
    MOVES,
    Building,
    CameBack,
    Cancelled,
    Landed,
    Landing,
    Moving,
    Refused,
    Verifying,
    Waiting,
    ask_again,
    begin_again,
    cancel_removed,
    combine,
    is_about_same,
    is_protected,
    is_removed,
    message_id,
    message_to_author,
    move,
    next_batch,
    next_probe,
    note_of,
    order_by_conflicts,
    take_newer,
)
from bullpen.model.landing_rules import LandingRules, LandingSettings

BACK = CameBack(why="conflict", base="b" * 40, files=("auth.py",), at=1.0)
FAILED = CameBack(why="verify", base="b" * 40, problem="exit 1", output="boom", at=1.0)
STATES = [
    Waiting(),
    Building(),
    Verifying(base="b", commit="c"),
    Moving(base="b", commit="c"),
    BACK,
    Landed(commit="c", base="b", at=2.0),
    Refused(message="no", at=2.0),
    Cancelled(at=2.0),
]


def entry(id: str = "l-1", **fields: object) -> Landing:
    given = {"name": "amy", "repo": "/r/.git", "base_dir": "/w", "branch": "amy", "target": "main"}
    more = {"tip": "a" * 40, "strategy": "merge", "created": 1.0}
    return Landing.model_validate({"id": id, **given, **more, **fields})


@pytest.mark.parametrize(("one", "other"), list(itertools.product(STATES, STATES)))
def test_n3_only_the_moves_of_the_table_exist(one: object, other: object) -> None:
    landing = entry().model_copy(update={"status": one})
    if type(other) in MOVES[type(one)]:
        assert move(landing, other).status == other
    else:
        with pytest.raises(ValueError, match="does not go from"):
            move(landing, other)


@pytest.mark.parametrize(
    ("asked", "now", "is_gone"),
    [
        (("amy.1", True), ("amy.1", True), False),
        (("amy.1", True), ("amy.2", True), True),  # a new agent of that name
        (("amy.1", True), ("amy.1", False), True),  # its branch was kept
        (("amy.1", True), ("", False), True),
        (("amy.1", False), ("amy.1", False), False),  # a branch that was kept is to land
        (("amy.1", False), ("amy.2", True), True),
        (("amy.1", False), ("", False), True),
        (("", True), ("amy.2", True), False),  # asked for with an earlier version
        (("", True), ("", False), True),
    ],
)
def test_n3_an_entry_is_about_one_life_of_a_name(
    asked: tuple[str, bool], now: tuple[str, bool], is_gone: bool
) -> None:
    landing = entry(birth=asked[0], has_worktree=asked[1])
    assert is_removed(landing, now[0], has_worktree=now[1]) == is_gone
    again = entry("l-2", birth=now[0], has_worktree=now[1])
    assert is_about_same(landing, again) == (not is_gone)


@pytest.mark.parametrize(
    ("before", "now", "verify"),
    [
        (("strict", True), ("", False), "strict"),
        (("strict", True), ("of the settings", False), "strict"),
        (("strict", True), ("other", True), "other"),
        (("strict", True), ("", True), ""),
        (("of the settings", False), ("", False), ""),  # they were changed
    ],
)
def test_n3_a_command_that_was_named_stays_until_another_is(
    before: tuple[str, bool], now: tuple[str, bool], verify: str
) -> None:
    landing = entry(verify=before[0], is_verify_given=before[1])
    landing = landing.model_copy(update={"status": FAILED})
    again = ask_again(landing, entry("l-2", verify=now[0], is_verify_given=now[1]))
    assert again is not None and again.verify == verify


def test_n3_an_entry_that_is_cancelled_says_what_was_removed() -> None:
    of_agent, of_tree = entry(is_of_agent=True), entry()
    for landing, has_agent, what in (
        (of_agent, False, "agent"),
        (of_agent, True, "worktree"),
        (of_tree, False, "worktree"),
    ):
        status = cancel_removed(landing, has_agent=has_agent, at=2.0).status
        assert status == Cancelled(reason=f"its {what} was removed", at=2.0)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.state)
def test_n3_an_entry_is_the_same_after_a_restart(state: object) -> None:
    landing = entry().model_copy(update={"status": state})
    assert Landing.model_validate_json(landing.model_dump_json()) == landing


@pytest.mark.parametrize(
    ("state", "has_landed", "becomes"),
    [
        (Waiting(), False, "waiting"),
        (Building(), False, "waiting"),
        (Verifying(base="b", commit="c"), False, "waiting"),
        (Moving(base="b", commit="c"), False, "waiting"),
        (Moving(base="b", commit="c"), True, "landed"),
        (BACK, False, "came_back"),
        (Landed(commit="c", base="b", at=2.0), True, "landed"),
    ],
)
def test_n5_after_a_crash_the_target_says_whether_it_has_landed(
    state: object, has_landed: bool, becomes: str
) -> None:
    landing = entry().model_copy(update={"status": state})
    assert begin_again(landing, has_landed=has_landed, at=9.0).status.state == becomes


def test_n3_only_what_came_back_takes_a_newer_commit() -> None:
    for state in STATES:
        landing = entry().model_copy(update={"status": state})
        taken = take_newer(landing, "n" * 40)
        if isinstance(state, CameBack):
            assert (taken.tip, taken.status) == ("n" * 40, Waiting())
            assert take_newer(landing, landing.tip) is landing
            allowed = landing.model_copy(update={"is_for_one_commit": True})
            assert take_newer(allowed, "n" * 40) is allowed, "a person allowed that commit alone"
        else:
            assert taken is landing


def test_n3_asked_again_it_is_as_it_is_asked_for_now() -> None:
    asked = entry("l-2", tip="n" * 40, strategy="squash", verify="make")
    for state in (Waiting(), BACK):
        again = ask_again(entry().model_copy(update={"status": state}), asked)
        assert again is not None
        assert (again.id, again.tip, again.strategy, again.verify) == (
            "l-1",
            "n" * 40,
            "squash",
            "make",
        )
    busy = entry().model_copy(update={"status": Building()})
    assert ask_again(busy, asked) is None
    assert ask_again(busy, entry("l-2")) is busy


def test_n4_those_are_tried_together_that_are_verified_in_the_same_way() -> None:
    one, two, three = entry("1", verify="x"), entry("2"), entry("3", verify="x")
    four = entry("4", verify="x").model_copy(update={"status": BACK})
    assert [each.id for each in next_batch([one, two, three, four])] == ["1", "3"]
    assert next_batch([four]) == []


@pytest.mark.parametrize(
    ("count", "clashes", "order"),
    [
        (0, [], []),
        (3, [], [0, 1, 2]),
        (3, [(0, 1), (0, 2)], [1, 2, 0]),
        (4, [(1, 2), (1, 3)], [0, 2, 3, 1]),
    ],
)
def test_n4_who_conflicts_least_comes_first(
    count: int, clashes: list[tuple[int, int]], order: list[int]
) -> None:
    assert order_by_conflicts(count, clashes) == order


@settings(max_examples=200)
@given(st.integers(1, 200), st.data())
def test_n4_halving_finds_the_first_bad_one(count: int, data: st.DataObject) -> None:
    """As the round does it: all at first, then halves; few runs of the command."""
    bad = data.draw(st.sets(st.integers(1, count), max_size=3))
    is_good: Callable[[int], bool] = lambda first: not any(number <= first for number in bad)  # noqa: E731
    good, worst, runs = 0, count + 1, 0
    probe: int | None = count
    while probe is not None:
        runs += 1
        if is_good(probe):
            good = probe
        else:
            worst = probe
        probe = next_probe(good, worst) if good < count else None
    assert good == (min(bad) - 1 if bad else count)
    assert runs <= 2 + count.bit_length()


@pytest.mark.parametrize(
    ("target", "patterns", "expected"),
    [
        ("main", (), False),
        ("main", ("main",), True),
        ("release/1", ("main", "release/*"), True),
        ("mainly", ("main",), False),
    ],
)
def test_n3_protected_targets(target: str, patterns: tuple[str, ...], expected: bool) -> None:
    assert is_protected(target, patterns) is expected


def test_n3_a_project_counts_where_it_says_something() -> None:
    home = LandingSettings(verify="make", protected=("main",))
    assert combine(home, None) is home
    project = LandingRules(strategy="squash", protected=("old",), timeout=timedelta(seconds=1))
    both = combine(home, project)
    assert (both.verify, both.strategy) == ("make", "squash")
    assert (both.protected, both.timeout) == (("main", "old"), timedelta(seconds=1))


def test_n4_the_author_is_told_the_files_the_commit_and_the_output() -> None:
    text = message_to_author(entry(), BACK)
    assert "- auth.py" in text and "bbbbbbb" in text and "main" in text
    text = message_to_author(entry(verify="make test"), FAILED)
    assert "`make test` failed there (exit 1)" in text and "boom" in text and "bbbbbbb" in text


def test_n3_of_one_commit_that_was_allowed_it_is_not_said_that_another_is_tried() -> None:
    for landing, back in ((entry(), BACK), (entry(verify="make test"), FAILED)):
        assert "is tried again by itself" in message_to_author(landing, back)
        text = message_to_author(landing.model_copy(update={"is_for_one_commit": True}), back)
        assert "is not tried again by itself" in text and "bullpen land amy --into main" in text


def test_n4_the_same_news_is_told_once() -> None:
    assert message_id(entry(), BACK) == message_id(entry(), BACK)
    others = {
        message_id(entry(), FAILED),
        message_id(entry(tip="n" * 40), BACK),
        message_id(entry(), BACK.model_copy(update={"base": "d"})),
        message_id(entry(), BACK.model_copy(update={"files": ("b.py",)})),
        message_id(entry(verify="make test"), FAILED),
        message_id(entry(), FAILED.model_copy(update={"problem": "exit 2"})),
        message_id(entry(), FAILED.model_copy(update={"output": "bang"})),
    }
    assert len(others | {message_id(entry(), BACK)}) == 8
    assert message_id(entry(verify="make test"), BACK) == message_id(entry(), BACK)


@pytest.mark.parametrize(
    ("state", "note"),
    [
        (Waiting(), "waits for main"),
        (Building(), "lands on main"),
        (Verifying(base="b", commit="c"), "is verified"),
        (BACK, "conflict with main: auth.py"),
        (FAILED, "verify failed: exit 1"),
        (Landed(commit="c", base="b", at=2.0), ""),
    ],
)
def test_n3_a_list_says_what_waits_to_land(state: object, note: str) -> None:
    assert note_of(entry().model_copy(update={"status": state})) == note
