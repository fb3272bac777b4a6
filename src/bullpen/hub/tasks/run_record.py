"""What is recorded of a run that has ended. Pure. Called by `driver`."""

from bullpen.engines import get_engine
from bullpen.engines.lines import cost_of_run
from bullpen.hub.tasks import run as task_run
from bullpen.hub.tasks.board import LiveTask
from bullpen.hub.tasks.run_plan import Worker
from bullpen.model.task import Cancelling, ErrorType, Run, Status, TaskWorking

SANDBOX_WORDS = "bwrap: "


def record_run(
    live: LiveTask, number: int, ended: task_run.Ended, before_usd: float, worker: Worker
) -> Run:
    """The run as its task keeps it; `before_usd` is what the conversation had cost before."""
    run_output, outcome = live.run_output, ended.outcome
    assert run_output is not None
    run = Run(
        number=number,
        began=_began(live),
        ended=ended.at,
        exit_code=ended.code,
        signal=ended.signal,
        fault=outcome.fault,
        why=outcome.why,
        is_retryable=outcome.is_retryable,
        input_tokens=max(outcome.input_tokens, run_output.input_tokens),
        output_tokens=max(outcome.output_tokens, run_output.output_tokens),
        usd=cost_of_run(before_usd, outcome),
    )
    # Only a result tells a cost: a run that was stopped has none, some engines never say.
    is_told = run.usd or (run_output.outcome and not run.input_tokens + run.output_tokens)
    if not is_told and get_engine(worker.role.agent_type).is_model:
        run = run.model_copy(update={"is_untold": True})
    if ended.is_killed:
        return run.model_copy(update={"fault": "killed", "is_retryable": False})
    if ended.is_lost:
        return run.model_copy(update={"fault": "lost", "is_retryable": True})
    if worker.is_sandboxed and run_output.outcome is None and outcome.why.startswith(SANDBOX_WORDS):
        return run.model_copy(update={"fault": "sandbox_error", "is_retryable": False})
    return run


def explain_end(run: Run, status: Status, stopped_for: tuple[ErrorType, str] | None) -> Run:
    """A run that we ended says what for, not how its program took it."""
    if run.fault not in ("engine_error", "cancelled"):
        return run  # it failed before, or came to its end all the same
    if isinstance(status, Cancelling):
        ended = {"fault": "cancelled", "why": ""}
    elif stopped_for is not None:
        ended = dict(zip(("fault", "why"), stopped_for, strict=True))
    else:
        return run
    return run.model_copy(update={**ended, "is_retryable": False})


def _began(live: LiveTask) -> float:
    status = live.task.status
    if isinstance(status, TaskWorking):
        return max(status.turn_started, status.due)
    return live.task.started or live.task.created
