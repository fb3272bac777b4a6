"""Decides what a scheduler does: which occurrences run, wait or are skipped, and why. Pure.

Called by `rules` with what it saw. `Account` comes first and concerns the ledger alone; the rest is
planned for the ledger as it is after that.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

from bullpen import clock
from bullpen.directors.history import HistoryRow
from bullpen.directors.scheduler import ledger as ledgers
from bullpen.directors.scheduler.config import Entry
from bullpen.directors.scheduler.cron import last_occurrences, next_occurrence, occurrences
from bullpen.directors.scheduler.ledger import (
    Account,
    CancelTask,
    Close,
    Given,
    GiveTask,
    Ledger,
    Pending,
    SchedulerAction,
    Tracked,
    occurrence_id,
)
from bullpen.model.duration import to_text

LATE_SECONDS = 300.0  # what is seen later than that was missed
MOST_MISSED = 1000  # of one entry, looked at one by one
MOST_CAUGHT_UP = 100
MOST_BACK_SECONDS = 86_400.0  # a clock set back by more is believed
OVER = ("completed", "failed", "cancelled")


@dataclass(frozen=True)
class TaskSeen:
    """A task as the hub has it; lost: it knows it no more."""

    state: str
    agent: str = ""
    reason: str = ""
    completed_at: float = 0.0
    was_begun: bool = False  # one that is queued again waits for the end of a rate limit


@dataclass(frozen=True)
class Snapshot:
    """What a scheduler sees. `entries` by name, with their time zones; `tasks` by id: those of the
    ledger, None while the hub is away. `refusals`: why an occurrence could not be given, by id."""

    now: float
    entries: Mapping[str, Entry]
    zones: Mapping[str, str]
    tasks: Mapping[str, TaskSeen] | None = field(default_factory=dict)
    refusals: Mapping[str, str] = field(default_factory=dict)


def plan(snapshot: Snapshot, ledger: Ledger) -> Sequence[SchedulerAction]:
    """What is to be done now."""
    account = _account(snapshot, ledger)
    if account is not None:
        ledger = ledgers.accounted(ledger, account)
    followed = _follow(snapshot, ledger)
    return [*([account] if account else []), *followed, *_give(snapshot, ledger)]


# ── what has become due ──


def _account(snapshot: Snapshot, ledger: Ledger) -> Account | None:
    tracked: dict[str, Tracked] = {}
    pending: list[Pending] = []
    skipped: list[HistoryRow] = []
    for name, entry in snapshot.entries.items():
        before = ledger.tracked.get(name)
        zone = snapshot.zones[name]
        if before is None or (before.cron, before.zone) != (entry.cron, zone):
            last = before.last if before else None
            tracked[name] = Tracked(cron=entry.cron, zone=zone, since=snapshot.now, last=last)
        elif snapshot.now < before.since - MOST_BACK_SECONDS:
            tracked[name] = before.model_copy(update={"since": snapshot.now})
        else:
            dues = list(islice(_due(before, snapshot.now), MOST_MISSED + 1))
            if dues:
                since = dues[-1] if len(dues) <= MOST_MISSED else snapshot.now
                tracked[name] = before.model_copy(update={"since": since})
                taken, dropped = _sort_out(entry, dues, snapshot, ledger)
                pending += taken
                skipped += dropped
    forgotten = tuple(name for name in ledger.tracked if name not in snapshot.entries)
    gone = [one for one in ledger.pending if one.name not in snapshot.entries]
    skipped += [
        _skipped(one.name, one.due, "it is in the schedule no more", one.id) for one in gone
    ]
    if not (tracked or forgotten or skipped):
        return None
    return Account(
        key=f"account {snapshot.now}",
        subject="the ledger",
        tracked=tracked,
        forgotten=forgotten,
        pending=tuple(pending),
        skipped=tuple(skipped),
    )


def _due(tracked: Tracked, now: float) -> Iterator[float]:
    first = next_occurrence(tracked.cron, tracked.zone, tracked.since)
    if first is None or first > now:  # as nearly always: the cache has it
        return
    for due in occurrences(tracked.cron, tracked.zone, tracked.since):
        if due > now:
            return
        yield due


def _sort_out(
    entry: Entry, dues: list[float], snapshot: Snapshot, ledger: Ledger
) -> tuple[list[Pending], list[HistoryRow]]:
    """Which of these run, and which are skipped for which reason."""
    now, name = snapshot.now, entry.name
    skipped: list[HistoryRow] = []
    if len(dues) > MOST_MISSED:
        reason = f"missed, with more than {MOST_MISSED} others until {_text(now)}"
        skipped.append(_skipped(name, dues[0], reason))
        dues = last_occurrences(entry.cron, snapshot.zones[name], now, MOST_CAUGHT_UP)
    missed = [due for due in dues if now - due > LATE_SECONDS]
    caught_up = {"none": [], "once": missed[-1:], "all": missed[-MOST_CAUGHT_UP:]}[entry.catch_up]
    for due in missed:
        if due not in caught_up:
            skipped.append(_skipped(name, due, _why_missed(entry, due, now, caught_up)))
    taken = [_pending(name, due, now, is_queued=True) for due in caught_up]
    for due in dues[len(missed) :]:
        others = [*ledger.of_entry(name), *taken]
        if entry.overlap == "skip" and others:
            reason = f"the run of {_text(others[-1].due)} is not over"
            skipped.append(_skipped(name, due, reason))
        else:
            taken.append(_pending(name, due, now, is_queued=entry.overlap == "queue"))
    return taken, skipped


def _why_missed(entry: Entry, due: float, now: float, caught_up: list[float]) -> str:
    late = _length(now - due)
    if not caught_up:
        return f"missed: seen {late} late, and catch_up is {entry.catch_up}"
    return f"missed: seen {late} late, and made up for by the run of {_text(caught_up[-1])}"


# ── what was given ──


def _follow(snapshot: Snapshot, ledger: Ledger) -> Iterator[SchedulerAction]:
    if snapshot.tasks is None:
        return
    for one in ledger.given.values():
        seen = snapshot.tasks.get(one.task_id)
        if seen is None:
            continue
        if seen.state in (*OVER, "lost"):
            yield Close(key=f"close {one.id}", subject=one.id, row=_over(one, seen))
        elif _is_waiting(seen) and not one.ending and _is_out_of_time(one, snapshot):
            yield CancelTask(
                key=f"cancel {one.id}",
                subject=one.id,
                id=one.id,
                task_id=one.task_id,
                reason=_nobody(snapshot.entries.get(one.name)),
            )


def _is_waiting(seen: TaskSeen) -> bool:
    """For an agent that is free."""
    return seen.state == "queued" and not seen.was_begun


def _is_out_of_time(one: Pending | Given, snapshot: Snapshot) -> bool:
    entry = snapshot.entries.get(one.name)
    return entry is not None and snapshot.now > one.noted + entry.timeout.total_seconds()


def _nobody(entry: Entry | None) -> str:
    return f"no agent was free within {to_text(entry.timeout) if entry else 'its time'}"


# ── what is to be given ──


def _give(snapshot: Snapshot, ledger: Ledger) -> Iterator[SchedulerAction]:
    busy = {one.name for one in ledger.given.values()}
    for one in ledger.pending:
        entry = snapshot.entries.get(one.name)
        if entry is None:
            continue
        if _is_out_of_time(one, snapshot):
            row = _row(one, "timeout", _never_given(one, entry, snapshot), snapshot.now)
            yield Close(key=f"close {one.id}", subject=one.id, row=row)
        elif not (one.is_queued and one.name in busy):
            yield _task(entry, one)
            busy.add(one.name)


def _never_given(one: Pending, entry: Entry, snapshot: Snapshot) -> str:
    within = f"within {to_text(entry.timeout)}"
    if refusal := snapshot.refusals.get(one.id):
        return f"it could not be given {within}: {refusal}"
    if one.is_queued:
        return f"the run before it was not over {within}"
    return f"it could not be given {within}"


def _task(entry: Entry, one: Pending) -> GiveTask:
    return GiveTask(
        key=f"give {one.id}",
        subject=one.id,
        id=one.id,
        name=entry.name,
        prompt=entry.prompt,
        agent=entry.agent,
        role=entry.role,
        labels=entry.labels,
        project=entry.project,
        workdir=entry.workdir,
        model=entry.model,
        branch=_branch(entry, one.due) if entry.fleet else "",
        timeout_seconds=entry.timeout.total_seconds(),
    )


def _branch(entry: Entry, due: float) -> str:
    """A name that git takes, and that no other occurrence has."""
    name = entry.name.replace(".", "-")
    return f"schedule/{name}-{datetime.fromtimestamp(due, UTC):%Y%m%d-%H%M%S}"


# ── rows ──


def _pending(name: str, due: float, now: float, *, is_queued: bool) -> Pending:
    id = occurrence_id(name, due)
    return Pending(id=id, name=name, due=due, noted=now, is_queued=is_queued)


def _skipped(name: str, due: float, reason: str, id: str = "") -> HistoryRow:
    id = id or occurrence_id(name, due)
    return HistoryRow(id=id, state="skipped", created_at=due, reason=reason)


def _over(one: Given, seen: TaskSeen) -> HistoryRow:
    row = _row(one, seen.state, seen.reason, seen.completed_at)
    state = "timeout" if one.ending and seen.state == "cancelled" else seen.state
    update = {"state": state, "agent": seen.agent, "reason": one.ending or seen.reason}
    return row.model_copy(update=update)


def _row(one: Pending | Given, state: str, reason: str, now: float) -> HistoryRow:
    task_id = one.task_id if isinstance(one, Given) else ""
    return HistoryRow(
        id=one.id,
        state=state,
        task_id=task_id,
        created_at=one.due,
        completed_at=now,
        reason=reason,
    )


def _text(moment: float) -> str:
    return clock.to_text(datetime.fromtimestamp(moment, UTC))


def _length(seconds: float) -> str:
    """A length of time, in the largest unit that fits."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"
