"""What is recorded of a run that was ended from outside."""

import pytest

from bullpen.hub.tasks.run_record import explain_end
from bullpen.model.task import Cancelling, ErrorType, Run, Status, TaskWorking

ENDED = Run(number=1, began=1, ended=2, signal=15, fault="engine_error", why="ended by signal 15")
WORKING = TaskWorking(run=1, turn_started=1)
CANCELLING = Cancelling(since=1, run=1)
LATE: tuple[ErrorType, str] = ("timeout", "it took longer than 1 s")


@pytest.mark.parametrize(
    ("status", "stopped_for", "fault", "why"),
    [
        (CANCELLING, None, "cancelled", ""),
        (CANCELLING, LATE, "cancelled", ""),
        (WORKING, LATE, *LATE),
        (WORKING, None, "engine_error", "ended by signal 15"),
    ],
)
def test_t3_a_run_that_was_ended_says_what_for(
    status: Status, stopped_for: tuple[ErrorType, str] | None, fault: str, why: str
) -> None:
    retried = ENDED.model_copy(update={"is_retryable": True})
    run = explain_end(retried, status, stopped_for)
    assert (run.fault, run.why, run.is_retryable) == (fault, why, fault == "engine_error")
    assert (run.signal, run.number) == (15, 1)
    assert Run.model_validate_json(run.model_dump_json()) == run


@pytest.mark.parametrize("fault", ["", "rate_limit", "killed", "lost", "sandbox_error"])
def test_t3_what_a_run_came_to_before_it_was_ended_stays(fault: str) -> None:
    run = ENDED.model_copy(update={"fault": fault})
    assert explain_end(run, CANCELLING, LATE) == run
