"""A task's rules, without a hub: how it moves, what it is shown as, when it has to end."""

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from bullpen.errors import BullpenError
from bullpen.model.role import Budget
from bullpen.model.task import (
    RETRIES,
    STATES,
    Cancelling,
    Error,
    Final,
    QueuedTaskRequest,
    Resting,
    Run,
    Task,
    TaskRequest,
    TaskWorking,
    Wish,
    check_directory,
    fits,
)
from bullpen.model.task_moves import (
    MOVES,
    after_run,
    begin,
    cancel,
    end,
    fail,
    go_on,
    move,
    seconds_left,
    verdict,
    wait_seconds,
    worked_seconds,
)
from bullpen.model.task_shown import Progress, TaskShown, Tokens, show

SESSION = "00000000-0000-4000-8000-000000000000"


def task(**fields: Any) -> Task:
    wish = Wish(prompt="x", **fields)
    return Task(id="t-000000000000", session_id=SESSION, wish=wish, created=1.0)


def run(number: int, at: float, fault: Any = "", **fields: Any) -> Run:
    return Run(number=number, began=at, ended=at, fault=fault, **fields)


# ── moves ──


@settings(max_examples=300)
@given(st.randoms(use_true_random=False), st.integers(0, 4), st.booleans())
@pytest.mark.slow
def test_random_moves_never_leave_the_table(
    chance: random.Random, retries: int, stays_open: bool
) -> None:
    current, at = task(), 1.0
    attempts = 0
    for _ in range(60):
        at += 1
        before = current
        try:
            current = one_move(current, at, chance, retries, stays_open)
        except BullpenError as error:
            assert error.kind.value == "conflict"
            assert error.details["error"] in ("already_completed", "task_in_progress")
            continue
        except ValueError:
            continue
        if current is before:
            assert isinstance(current.status, Cancelling)
            continue
        assert not before.is_over, "nothing after a final state"
        assert type(current.status) in MOVES[type(before.status)]
        assert current.state in STATES
        assert (current.ended is not None) == current.is_over
        assert Task.model_validate_json(current.model_dump_json()) == current
        if isinstance(current.status, TaskWorking):
            new_turn = not isinstance(before.status, TaskWorking)
            attempts = 1 if new_turn else attempts + 1
            assert current.status.attempt == attempts <= retries + 1
            assert current.status.run == (current.runs[-1].number if current.runs else 0) + 1
            assert new_turn or current.status.turn_started == before.status.turn_started  # type: ignore[union-attr]
        assert [each.number for each in current.runs] == list(range(1, len(current.runs) + 1))


def one_move(
    current: Task, at: float, chance: random.Random, retries: int, stays_open: bool
) -> Task:
    match chance.choice(["begin", "go_on", "end", "cancel", "fail", "run", "run", "run"]):
        case "begin":
            return begin(current, at)
        case "go_on":
            return go_on(current, "more", at)
        case "end":
            return end(current, at)
        case "cancel":
            return cancel(current, at)
        case "fail":
            return fail(current, "lost", "x", at)
        case _:
            if not isinstance(current.status, TaskWorking | Cancelling):
                raise ValueError("none runs")
            faults = ("", "engine_error", "rate_limit", "budget", "cancelled", "lost")
            done = run(
                current.status.run,
                at,
                chance.choice(faults),
                is_retryable=chance.random() < 0.5,
            )
            return after_run(
                current,
                done,
                chance.choice(["", "text"]),
                stays_open=stays_open,
                retries=retries,
                chance=chance.random(),
            )


def test_moves_that_do_not_exist_raise() -> None:
    made = {type(each.status): each for each in every_state()}
    for (kind, one), (other, two) in itertools.product(made.items(), made.items()):
        if other in MOVES[kind]:
            assert move(one, two.status, 9.0).status == two.status
        else:
            with pytest.raises(ValueError, match="does not go from"):
                move(one, two.status, 9.0)


def every_state() -> list[Task]:
    queued = task()
    working = begin(queued, 2.0)
    resting = after_run(working, run(1, 3.0), "out", stays_open=True, retries=0, chance=0)
    return [
        queued,
        working,
        resting,
        cancel(working, 4.0),
        end(resting, 4.0),
        fail(working, "lost", "gone", 4.0),
        cancel(queued, 4.0),
    ]


def test_all_states_are_shown_with_all_fields() -> None:
    for each in every_state():
        shown = show(each, 10.0).model_dump()
        assert set(shown) == set(TaskShown.model_fields)
        assert shown["state"] == each.state
    queued, working, resting, *_ = every_state()
    assert show(queued, 10.0).duration_seconds is None
    assert show(working, 10.0).duration_seconds == 8.0
    assert show(resting, 10.0).output == "out"
    assert show(resting, 10.0).token_usage is show(resting, 10.0).cost_usd is None  # never told
    told = run(1, 3.0, input_tokens=7, usd=0.5)
    counted = show(resting.model_copy(update={"runs": (told,)}), 10.0)
    assert (counted.token_usage, counted.cost_usd) == (Tokens(input=7, output=0), 0.5)
    live = Progress(text="so far", tool="Bash (ls)", input_tokens=5, output_tokens=2)
    found = show(working, 10.0, live)
    assert (found.output, found.doing) == ("so far", "Bash (ls)")
    assert found.token_usage is not None
    assert (found.token_usage.input, found.token_usage.output) == (5, 2)
    # Another turn that has said nothing yet: what the last one said is shown.
    again = go_on(resting, "more", 9.0)
    assert show(again, 10.0, Progress()).output == "out"


def test_retries_end_and_are_only_for_what_passes() -> None:
    current = begin(task(), 2.0)
    for number in range(1, RETRIES + 2):
        assert isinstance(current.status, TaskWorking)
        done = run(number, 3.0, "engine_error", is_retryable=True, why="API")
        current = after_run(current, done, "", stays_open=False, retries=RETRIES, chance=0.5)
    assert current.state == "failed"
    assert len(current.runs) == RETRIES + 1
    for fault in ("rate_limit", "engine_error", "budget"):
        working = begin(task(), 2.0)
        done = run(1, 3.0, fault)
        over = after_run(working, done, "part", stays_open=True, retries=RETRIES, chance=0)
        assert (over.state, over.output) == ("failed", "part")
        assert isinstance(over.status, Final)


def test_what_an_attempt_said_is_kept_until_another_says_more() -> None:
    current = begin(task(), 2.0)
    first = run(1, 3.0, "engine_error", is_retryable=True)
    current = after_run(current, first, "part", stays_open=False, retries=1, chance=0)
    second = run(2, 4.0, "engine_error", is_retryable=True)
    over = after_run(current, second, "", stays_open=False, retries=1, chance=0)
    assert over.output == "part"


def test_an_attempt_is_of_the_same_turn_and_waits_longer_than_the_one_before() -> None:
    current, waits = begin(task(), 2.0), []
    for number in (1, 2):
        done = run(number, 10.0 * number, "engine_error", is_retryable=True)
        current = after_run(current, done, "", stays_open=False, retries=9, chance=0.5)
        assert isinstance(current.status, TaskWorking)
        # Else a turn that is tried again and again would never be too long.
        assert current.status.turn_started == 2.0
        assert (current.status.run, current.status.attempt) == (number + 1, number + 1)
        assert current.status.due is not None
        waits.append(current.status.due - done.ended)
    assert waits == [1.0, 2.0]
    assert verdict(current, 30.0, 32.0) == ("timeout", "it took longer than 30 s")


def test_a_run_that_ended_itself_early_is_a_failure_and_no_cancel() -> None:
    over = after_run(
        begin(task(), 2.0), run(1, 3.0, "cancelled"), "", stays_open=True, retries=0, chance=0
    )
    assert over.state == "failed"
    assert show(over, 9.0).error == Error(type="engine_error", message="it ended without a result")


def test_time_of_an_attempt_counts_once() -> None:
    first = Run(number=1, began=2.0, ended=10.0, fault="engine_error", is_retryable=True)
    current = after_run(begin(task(), 2.0), first, "", stays_open=True, retries=9, chance=0)
    assert worked_seconds(current, 20.0) == 18.0
    second = Run(number=2, began=11.0, ended=22.0)
    current = after_run(current, second, "", stays_open=True, retries=9, chance=0)
    current = go_on(current, "more", 100.0)
    assert worked_seconds(current, 101.0) == 8.0 + 11.0 + 1.0


def test_what_is_being_cancelled_is_cancelled_whatever_its_run_came_to() -> None:
    cancelling = cancel(begin(task(), 2.0), 3.0)
    over = after_run(cancelling, run(1, 4.0), "out", stays_open=True, retries=9, chance=0)
    assert (over.state, over.output, over.ended) == ("cancelled", "out", 4.0)
    *_, completed, failed, _ = every_state()
    for other in (completed, failed, begin(task(), 2.0)):
        with pytest.raises(ValueError, match="does not go from cancelling"):
            move(cancelling, other.status, 4.0)


def test_what_is_over_takes_no_longer() -> None:
    over = fail(begin(task(), 2.0), "lost", "gone", 5.0)
    assert show(over, 100.0).duration_seconds == 3.0
    assert show(over, 100.0).completed_at == 5.0


def test_one_request_twice_is_one_turn_and_one_end() -> None:
    resting = every_state()[2]
    again = go_on(resting, "more", 5.0, "r1")
    assert go_on(again, "more", 6.0, "r1") is again
    with pytest.raises(BullpenError, match="is working"):
        go_on(again, "more", 6.0, "r2")
    over = end(resting, 5.0, "r3")
    assert end(over, 6.0, "r3") is over
    for request in ("", "r4"):
        with pytest.raises(BullpenError, match="is over"):
            end(over, 6.0, request)


def test_every_run_of_a_task_has_a_number_of_its_own() -> None:
    current = begin(task(), 2.0)
    first = run(1, 3.0, "engine_error", is_retryable=True)
    current = after_run(current, first, "", stays_open=True, retries=1, chance=0)
    assert isinstance(current.status, TaskWorking)
    assert (current.status.run, current.status.attempt, current.status.turn_started) == (2, 2, 2.0)
    current = after_run(current, run(2, 4.0), "", stays_open=True, retries=1, chance=0)
    current = go_on(current, "more", 5.0)
    assert isinstance(current.status, TaskWorking)
    assert (current.status.run, current.status.attempt, current.status.turn_started) == (3, 1, 5.0)


def test_a_turn_that_begins_as_the_last_run_ends_adds_to_its_time() -> None:
    current = begin(task(budget=Budget(minutes=1)), 2.0)
    spent = Run(number=1, began=2.0, ended=42.0)
    current = after_run(current, spent, "", stays_open=True, retries=0, chance=0)
    current = go_on(current, "more", 42.0)
    assert seconds_left(current, 1000.0, 42.0) == 20.0


@given(st.integers(1, 100), st.floats(0, 1, exclude_max=True))
def test_waits_grow_within_bounds_and_differ(attempt: int, chance: float) -> None:
    seconds = wait_seconds(attempt, chance)
    assert 0.5 <= seconds <= 90
    if attempt <= 6:
        assert wait_seconds(attempt, 0) == 0.5 * 2 ** (attempt - 1)


# ── when it has to end ──


@pytest.mark.parametrize(
    ("now", "used", "budget", "wanted"),
    [
        (11.9, 0, {}, None),
        (12.0, 0, {}, "timeout"),
        (11.0, 100, {"tokens": 100}, None),
        (11.0, 101, {"tokens": 100}, "budget"),
        (11.0, 0, {"usd": 1.0}, None),
    ],
)
def test_time_and_budgets(
    now: float, used: int, budget: dict[str, Any], wanted: str | None
) -> None:
    working = begin(task(budget=Budget(**budget)), 2.0)
    found = verdict(working, 10.0, now, used)
    assert (found[0] if found else None) == wanted


def test_budgets_are_of_all_turns_and_time_of_each() -> None:
    budget = Budget(tokens=100, usd=1.0, minutes=1)
    current = begin(task(budget=budget), 2.0)
    spent = Run(number=1, began=2.0, ended=30.0, input_tokens=60, output_tokens=30, usd=0.9)
    current = after_run(current, spent, "", stays_open=True, retries=0, chance=0)
    assert isinstance(current.status, Resting)
    assert verdict(current, 10.0, 1000.0) is None  # it rests
    current = go_on(current, "more", 400.0)
    assert verdict(current, 10.0, 401.0, 10) is None
    assert verdict(current, 10.0, 401.0, 11) == ("budget", "it used 101 tokens, and was given 100")
    assert seconds_left(current, 10.0, 401.0) == 9.0
    assert seconds_left(current, 100.0, 401.0) == 31.0
    assert verdict(current, 100.0, 432.0) == (
        "budget",
        "it took longer than the 1 minutes it was given",
    )
    costly = current.model_copy(update={"runs": (*current.runs, run(2, 401.0, usd=0.1))})
    assert verdict(costly, 10.0, 401.0) == ("budget", "it cost 1.00 USD, and was given 1")


# ── what is asked ──


@pytest.mark.parametrize(
    "prompt", ["", " ", "\n\t", "\0", "a\0", "a\0b", "\ud800", "x" * (2**20 + 1)]
)
def test_prompts_that_are_none(prompt: str) -> None:
    with pytest.raises(ValidationError):
        TaskRequest(prompt=prompt)


@pytest.mark.parametrize("prompt", [" x", "x\n", "\u2028x", "x" * 2**20, "😀", "\x1b\x07x\r"])
def test_prompts_that_are_some(prompt: str) -> None:
    assert TaskRequest(prompt=prompt).prompt == prompt


def test_one_place_only() -> None:
    for fields in (
        {"workdir": "/a", "session_id": SESSION},
        {"workdir": "/a", "repo": "/b", "worktree": "c"},
        {"repo": "/b"},
        {"worktree": "c"},
        {"repo": "/b", "worktree": "c", "session_id": SESSION},
        {"repo": "/b", "worktree": "c", "branch": "d"},
        {"branch": "d", "session_id": SESSION},
    ):
        with pytest.raises(BullpenError):
            check_directory(TaskRequest.model_validate({"prompt": "x", **fields}))
    check_directory(TaskRequest(prompt="x"))
    check_directory(TaskRequest(prompt="x", repo="/b", worktree="c"))
    check_directory(TaskRequest(prompt="x", workdir="/b", branch="c"))


@pytest.mark.parametrize(
    ("role", "labels", "wanted"),
    [
        ("", {}, True),
        ("coder", {}, True),
        ("other", {}, False),
        ("", {"os": "linux"}, True),
        ("", {"os": "mac"}, False),
        ("coder", {"os": "linux", "gpu": "yes"}, False),
    ],
)
def test_who_fits(role: str, labels: dict[str, str], wanted: bool) -> None:
    offered = task().model_copy(update={"role": role, "labels": labels})
    assert fits(offered, "coder", {"os": "linux", "x": "y"}) is wanted
    assert QueuedTaskRequest(prompt="x", labels=labels, priority=-100).labels == labels
