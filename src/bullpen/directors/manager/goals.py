"""The goals of a manager: what is asked, what is to be done about each, what came of it. Pure.

Called by `rules`, which acts, and by `director`, which takes goals in and shows them.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field

from bullpen.directors.history import HistoryRow, with_row
from bullpen.directors.memory import Action
from bullpen.model.names import SUBTREE_BYTES
from bullpen.model.task import Line, ModelName, Prompt, RequestKey
from bullpen.model.value import Value

OVER = ("completed", "failed", "cancelled")
MOST_REPORT = 64 << 10
NEW_LINE = "\n"


class GoalRequest(Value):
    """The body of `POST /task`. The same `request` twice is one goal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: Prompt
    workdir: Line | None = None
    project: Line | None = None
    model: ModelName = None
    request: RequestKey | None = None


class Goal(Value):
    """One that is not over. `task_id`: the task of the agent that leads, once it is given."""

    id: str
    asked: GoalRequest
    created_at: float
    task_id: str = ""
    is_cancelled: bool = False
    is_told: bool = False  # that it is cancelled, to the hub


class Goals(Value):
    """What a manager remembers."""

    open: dict[str, Goal] = Field(default_factory=dict)
    history: tuple[HistoryRow, ...] = ()


class TaskSeen(Value):
    """How the task of a goal stands."""

    state: str
    agent: str = ""
    report: str = ""
    reason: str = ""
    cost_usd: float | None = None
    completed_at: float = 0.0
    branch: str = ""  # on which it is led, if its place is in a repository
    commit_count: int = 0  # that landed there


class GiveGoal(Action):
    """Have it led."""

    do: Literal["give"] = "give"
    asked: GoalRequest

    @property
    def words(self) -> str:
        return f"has it led: {self.asked.prompt.partition(NEW_LINE)[0]}"


class CancelGoal(Action):
    """End its task."""

    do: Literal["cancel"] = "cancel"
    task_id: str

    @property
    def words(self) -> str:
        return f"cancels task {self.task_id}"


class CloseGoal(Action):
    """It is over: keep what came of it."""

    do: Literal["close"] = "close"
    row: HistoryRow

    @property
    def words(self) -> str:
        return f"is done with it ({self.row.state})"


GoalAction: TypeAlias = Annotated[GiveGoal | CancelGoal | CloseGoal, Field(discriminator="do")]


def branch_for(director: str, id: str) -> str:
    """The branch on which a goal is led, if its place is in a repository: one word, which is also
    the name of the worktree and stands in the way of no other branch."""
    return f"{director[: SUBTREE_BYTES - len(id) - 1]}-{id}"


def find_again(goals: Goals, request: str | None) -> str:
    """The goal that was asked for under that key; empty: none."""
    if not request:
        return ""
    for goal in goals.open.values():
        if goal.asked.request == request:
            return goal.id
    rows = (row.id for row in goals.history if (row.model_extra or {}).get("request") == request)
    return next(rows, "")


def plan(tasks: Mapping[str, TaskSeen], goals: Goals) -> Sequence[GoalAction]:
    """What is to be done now. `tasks` has those of the goals that could be looked at."""
    return [action for goal in goals.open.values() if (action := _next(goal, tasks)) is not None]


def _next(goal: Goal, tasks: Mapping[str, TaskSeen]) -> GoalAction | None:
    if not goal.task_id:
        if goal.is_cancelled:
            return _close(goal, TaskSeen(state="cancelled", completed_at=goal.created_at))
        return GiveGoal(key=f"give:{goal.id}", subject=goal.id, asked=goal.asked)
    task = tasks.get(goal.task_id)
    if task is None:
        return None
    if task.state in OVER:
        return _close(goal, task)
    if goal.is_cancelled and not goal.is_told:
        key = f"cancel:{goal.id}"
        return CancelGoal(key=key, subject=goal.id, task_id=goal.task_id)
    return None


def _close(goal: Goal, task: TaskSeen) -> CloseGoal:
    return CloseGoal(key=f"close:{goal.id}", subject=goal.id, row=row_of(goal, task))


def row_of(goal: Goal, task: TaskSeen) -> HistoryRow:
    """What is kept of a goal."""
    fields = {
        "id": goal.id,
        "state": task.state,
        "task_id": goal.task_id,
        "agent": task.agent,
        "created_at": goal.created_at,
        "completed_at": task.completed_at,
        "reason": task.reason,
        "goal": goal.asked.prompt[:MOST_REPORT],
        "report": task.report[-MOST_REPORT:],
        "branch": task.branch or None,
        "commit_count": task.commit_count,
        "cost_usd": task.cost_usd,
        "request": goal.asked.request,
    }
    return HistoryRow.model_validate(fields)


# ── what comes of actions ──


def with_goal(goals: Goals, goal: Goal) -> Goals:
    """With that goal as it stands now."""
    return goals.model_copy(update={"open": {**goals.open, goal.id: goal}})


def cancelled(goals: Goals, id: str) -> Goals:
    """With that goal to be ended, unless it ended meanwhile."""
    goal = goals.open.get(id)
    return with_goal(goals, goal.model_copy(update={"is_cancelled": True})) if goal else goals


def without(goals: Goals, row: HistoryRow) -> Goals:
    """That goal is over."""
    left = {id: goal for id, goal in goals.open.items() if id != row.id}
    return Goals(open=left, history=with_row(goals.history, row))
