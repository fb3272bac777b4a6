"""What a scheduler remembers: up to when each entry is accounted for, and every occurrence until it
is over. Pure.

An occurrence is *pending* (its time has come, nobody was given it yet), then *given* (a task), then
a row of the history. One that does not run is a row at once, with the reason.
"""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field

from bullpen import clock
from bullpen.directors.history import HistoryRow, with_row
from bullpen.directors.memory import Action
from bullpen.model.value import Value


class Tracked(Value):
    """How far an entry is accounted for. Another time of its own makes it another."""

    cron: str
    zone: str
    since: float  # every occurrence up to here has its place
    last: HistoryRow | None = None


class Pending(Value):
    """An occurrence whose time has come."""

    id: str
    name: str
    due: float
    noted: float  # when that was seen: its time-out counts from then on
    is_queued: bool = False  # it follows others of its entry


class Given(Value):
    """An occurrence that is a task now."""

    id: str
    name: str
    due: float
    noted: float
    task_id: str
    given_at: float
    ending: str = ""  # why it was cancelled


class Ledger(Value):
    """The memory of a scheduler."""

    tracked: dict[str, Tracked] = Field(default_factory=dict)
    pending: tuple[Pending, ...] = ()
    given: dict[str, Given] = Field(default_factory=dict)  # by occurrence
    history: tuple[HistoryRow, ...] = ()

    def of_entry(self, name: str) -> list[Pending | Given]:
        """Its occurrences that are not over."""
        both: list[Pending | Given] = [*self.pending, *self.given.values()]
        return [one for one in both if one.name == name]

    def by_entry(self) -> dict[str, list[str]]:
        """The ids of all occurrences that are not over, by entry."""
        ids: dict[str, list[str]] = {}
        both: list[Pending | Given] = [*self.pending, *self.given.values()]
        for one in both:
            ids.setdefault(one.name, []).append(one.id)
        return ids


# ── actions ──


class Account(Action):
    """Bring the ledger up to date. Concerns nobody else."""

    kind: Literal["account"] = "account"
    tracked: dict[str, Tracked] = Field(default_factory=dict)
    forgotten: tuple[str, ...] = ()
    pending: tuple[Pending, ...] = ()
    skipped: tuple[HistoryRow, ...] = ()

    @property
    def words(self) -> str:
        due = ", ".join(one.id for one in self.pending)
        skipped = ", ".join(row.id for row in self.skipped)
        parts = (f"due: {due}" if due else "", f"skipped: {skipped}" if skipped else "")
        return " · ".join(("accounts for what has become due", *filter(None, parts)))


class GiveTask(Action):
    """Give an occurrence to an agent."""

    kind: Literal["give"] = "give"
    id: str
    name: str
    prompt: str
    agent: str | None = None
    role: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    project: str | None = None
    workdir: str | None = None
    model: str | None = None
    branch: str = ""  # of all machines: what comes of it is this branch
    timeout_seconds: float

    @property
    def words(self) -> str:
        whom = self.agent or self.role or "whoever is free"
        return f"gives a task to {whom}" + (", on any machine" if self.branch else "")


class CancelTask(Action):
    """Nobody was free in time."""

    kind: Literal["cancel"] = "cancel"
    id: str
    task_id: str
    reason: str

    @property
    def words(self) -> str:
        return f"cancels task {self.task_id}: {self.reason}"


class Close(Action):
    """An occurrence is over. Concerns nobody else."""

    kind: Literal["close"] = "close"
    row: HistoryRow

    @property
    def words(self) -> str:
        return f"is done with it ({self.row.state})"


SchedulerAction = Annotated[Account | GiveTask | CancelTask | Close, Field(discriminator="kind")]


# ── what comes of them ──


def accounted(ledger: Ledger, action: Account) -> Ledger:
    """With what has become due. Nothing is taken in twice."""
    known = {
        *(one.id for one in ledger.pending),
        *(row.id for row in ledger.history),
        *ledger.given,
    }
    tracked = {**ledger.tracked, **action.tracked}
    for name in action.forgotten:
        tracked.pop(name, None)
    gone = {row.id for row in action.skipped}
    pending = (*ledger.pending, *(one for one in action.pending if one.id not in known))
    ledger = ledger.model_copy(
        update={
            "tracked": tracked,
            "pending": tuple(one for one in pending if one.id not in gone),
        }
    )
    for row in action.skipped:
        ledger = _with_row(ledger, row)
    return ledger


def given(ledger: Ledger, action: GiveTask, task_id: str, now: float) -> Ledger:
    """It is a task now."""
    one = next((one for one in ledger.pending if one.id == action.id), None)
    if one is None:
        return ledger
    task = Given(
        id=one.id, name=one.name, due=one.due, noted=one.noted, task_id=task_id, given_at=now
    )
    return ledger.model_copy(
        update={
            "pending": tuple(each for each in ledger.pending if each.id != one.id),
            "given": {**ledger.given, one.id: task},
        }
    )


def cancelled(ledger: Ledger, action: CancelTask) -> Ledger:
    """It is told to end; the row comes when it has."""
    task = ledger.given.get(action.id)
    if task is None:
        return ledger
    ending = task.model_copy(update={"ending": action.reason})
    return ledger.model_copy(update={"given": {**ledger.given, task.id: ending}})


def refused(ledger: Ledger, id: str, reason: str, now: float) -> Ledger:
    """It cannot be given, whoever is asked."""
    one = next((one for one in ledger.pending if one.id == id), None)
    due = one.due if one is not None else now
    row = HistoryRow(id=id, state="failed", created_at=due, completed_at=now, reason=reason)
    return closed(ledger, row)


def closed(ledger: Ledger, row: HistoryRow) -> Ledger:
    """It is over, and a row of the history."""
    return _with_row(
        ledger.model_copy(
            update={
                "pending": tuple(one for one in ledger.pending if one.id != row.id),
                "given": {id: one for id, one in ledger.given.items() if id != row.id},
            }
        ),
        row,
    )


def _with_row(ledger: Ledger, row: HistoryRow) -> Ledger:
    if any(row.id == each.id for each in ledger.history):
        return ledger
    name = name_of(row.id)
    tracked = ledger.tracked
    if name in tracked:
        tracked = {**tracked, name: tracked[name].model_copy(update={"last": row})}
    history = with_row(ledger.history, row)
    return ledger.model_copy(update={"tracked": tracked, "history": history})


# ── names of occurrences ──


def occurrence_id(name: str, due: float) -> str:
    """The same for the same time of the same entry."""
    return f"{name}@{clock.to_text(datetime.fromtimestamp(due, UTC))}"


def extra_id(name: str, due: float, word: str) -> str:
    """Of a run that a person asked for."""
    return f"{occurrence_id(name, due)}+{word}"


def name_of(id: str) -> str:
    """The entry that it is of."""
    return id.rpartition("@")[0]
