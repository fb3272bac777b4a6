"""Tasks that agents gave: their end goes to the giver's queue of events, their costs to its budget.

Called by `rows`, in the transaction that stores such a task: a hub that is killed has told both, or
neither, and a task that is stored again when it is over tells nothing twice.
"""

from bullpen.hub.store.transaction import Transaction
from bullpen.hub.tree.queue import NewEvent, Queue, Receiver
from bullpen.hub.usage.delegated import DelegatedCosts, Spent
from bullpen.hub.usage.rows import Key
from bullpen.model.message import BULLPEN
from bullpen.model.role import Budget
from bullpen.model.task import Failed, Giver, Task
from bullpen.model.task_moves import spent_usd

MOST_OUTPUT = 4000  # the rest: task_status


class Delegations:
    """Of all agents of one hub."""

    def __init__(self, queue: Queue, costs: DelegatedCosts) -> None:
        self._queue = queue
        self._costs = costs

    def write(self, transaction: Transaction, task: Task, *, is_late: bool) -> bool:
        """As a part of the caller's transaction; whether its end is new for its giver. Call `note`
        afterwards. What its agent heard during a task, the next one is not told again. `is_late`:
        the task that gave it is over; the next one of the same agent is not told."""
        if not task.is_over:
            return False
        self._queue.end_task(transaction, task.agent)
        if task.giver is None:
            return False
        is_new = self._queue.write(transaction, _finished(task, task.giver, is_late=is_late))
        if is_new:
            self._costs.write(transaction, _key(task.giver), _spent(task))
        return is_new

    def note(self, task: Task, *, is_new_end: bool = False) -> None:
        """How it stands now. On the loop."""
        if task.giver is None:
            return
        if is_new_end:
            self._costs.note_over(_key(task.giver), task.id, _spent(task))
            self._queue.wake(task.giver.name)
        elif not task.is_over:
            budget = task.wish.budget or Budget()
            self._costs.note_open(_key(task.giver), task.id, budget, _spent(task))


def _finished(task: Task, giver: Giver, *, is_late: bool) -> NewEvent:
    data = {"task_id": task.id, "state": task.state, "output": (task.output or "")[-MOST_OUTPUT:]}
    if isinstance(task.status, Failed):
        data["error"] = task.status.error.message
    to = Receiver(giver.name, giver.born)
    key = f"task:{task.id}"
    return NewEvent(to, "task_finished", task.agent or BULLPEN, data, key, is_late)


def _key(giver: Giver) -> Key:
    return giver.name, giver.born


def _spent(task: Task) -> Spent:
    """By its runs that are over. One that told no cost may have cost all that it was given: who
    cancels its tasks must not get their budget back."""
    part = (task.wish.budget or Budget()).usd or 0.0
    return Spent(
        tokens=sum(run.input_tokens + run.output_tokens for run in task.runs),
        usd=spent_usd(task) + part * sum(run.is_untold for run in task.runs),
        minutes=sum(run.ended - run.began for run in task.runs) / 60,
    )
