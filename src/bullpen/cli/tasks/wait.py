"""Waiting for a task at a terminal or without one: its progress, its texts, Ctrl-C, its end.

A task belongs to the hub: whatever happens to this command, it goes on until somebody cancels it.
"""

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO, NoReturn

import click

from bullpen.cli import output
from bullpen.cli.live_line import LiveLine
from bullpen.cli.tasks.ids import whose
from bullpen.cli.tasks.progress import (
    ApprovalAwaited,
    SeenEvent,
    TakenBy,
    TurnProgress,
    line,
    see,
    unsaid,
    unwritten,
)
from bullpen.cli.tasks.text import (
    EXIT_CANCELLED,
    exit_code,
    hint_for,
    named,
    shown_output,
    verdict,
)
from bullpen.client import tasks
from bullpen.client.approvals import list_approvals
from bullpen.client.follow_task import follow
from bullpen.client.hub import Hub
from bullpen.client.task_events import PartialEvent, TaskEvent, TextEvent
from bullpen.errors import BullpenError, Kind
from bullpen.model.task_shown import TaskShown
from bullpen.model.task_table import moment

TICK_SECONDS = 0.1
LOOK_SECONDS = 2.0  # between looks at what waits for a person
SETTLE_SECONDS = 2.0  # for the last words of a turn, after the task has come to rest
QUESTION = "cancel the task, or leave it running? [c/L] "
# Whether it is cancelled. Who says something else (y) may mean either, and is asked again.
ANSWERS = {"c": True, "cancel": True, "": False, "l": False, "leave": False}


def wait_and_show(
    hub: Hub,
    id: str,
    *,
    name: str,
    streams: bool,
    as_json: bool,
    after_run: int = 0,
    usd: float = 0.0,
) -> NoReturn:
    """Until its turn is over; prints what came of it and leaves with its exit code."""
    waiting = TaskWait(hub, id, name, streams=streams, as_json=as_json, usd=usd)
    with _named(hub.named(id)):
        seen = waiting.until_over(after_run)
        task = hub.do(tasks.get_task(id, whose()))
        if as_json:
            shown = task.model_dump(mode="json")
            if streams:
                output.write_json_line({"event": "end", **shown})
            else:
                output.write_json(shown)
            sys.stdout.flush()
        else:
            text = unsaid(seen, task.output) if streams else task.output or ""
            _show(named(task, hub), text)
    raise click.exceptions.Exit(exit_code(task))


@contextlib.contextmanager
def _named(id: str) -> Iterator[None]:
    """When nobody reads what we write any more, or the disk is full, or at a Ctrl-C beside the
    question: the task is not lost."""
    try:
        yield
    except KeyboardInterrupt:
        leave(f"task {id} goes on · bullpen task show {id} · bullpen task cancel {id}")
    except OSError:
        with contextlib.suppress(OSError):  # standard error may have the same reader
            say(f"the rest is kept with the task · bullpen task show {id}")
        raise


def say(text: str) -> None:
    """A line on standard error, for a person only."""
    sys.stderr.write(output.printable(text) + "\n")


def leave(text: str) -> NoReturn:
    """This command ends, the task does not."""
    say(text)
    raise click.exceptions.Exit(EXIT_CANCELLED)


def write_text(text: str) -> None:
    """What a model wrote, on standard output."""
    shown = shown_output(text, sys.stdout.isatty())
    sys.stdout.write(shown.encode("utf-8", "backslashreplace").decode())
    sys.stdout.flush()


def write_piece(text: str) -> None:
    """A part of what a model writes, on standard output."""
    shown = shown_output(f"{text}\n", sys.stdout.isatty())[:-1]
    sys.stdout.write(shown.encode("utf-8", "backslashreplace").decode())
    sys.stdout.flush()


def _show(task: TaskShown, text: str) -> None:
    write_text(text)
    for warning in task.warnings:
        say(f"warning: {warning}")
    if task.error is not None:
        output.write_error(f"{task.error.type}: {task.error.message}", hint_for(task, task.error))
    say(verdict(task))


class TaskWait:
    """One task that is waited for."""

    def __init__(
        self, hub: Hub, id: str, name: str, *, streams: bool, as_json: bool, usd: float
    ) -> None:
        self._hub = hub
        self._id = id
        self._name = hub.named(name)
        self._streams = streams
        self._as_json = as_json
        self._line = LiveLine()
        self._seen = TurnProgress(usd=usd)
        self._began = time.monotonic()
        self._rested = 0.0  # when it was first seen at rest
        self._is_cancelled = False

    def until_over(self, after_run: int) -> TurnProgress:
        """What was seen until the turn was over; a person may end the waiting before."""
        feed = _Feed(self._hub, self._id, after_run)
        try:
            while not self._is_turn_over():
                try:
                    event = feed.next(TICK_SECONDS)
                    if event is not None:
                        self._take(event)
                    self._draw()
                except KeyboardInterrupt:
                    self._line.wipe()
                    self._interrupted()
        finally:
            self._line.wipe()
        return self._seen

    def _is_turn_over(self) -> bool:
        if self._seen.is_over:
            return True
        if self._seen.state != "idle":
            self._rested = 0.0
            return False
        self._rested = self._rested or time.monotonic()
        return self._seen.is_answered or time.monotonic() - self._rested > SETTLE_SECONDS

    def _take(self, event: SeenEvent) -> None:
        before, self._seen = self._seen, see(self._seen, event)
        if isinstance(event, TakenBy):
            self._name = self._hub.named(event.agent)
        if isinstance(event, ApprovalAwaited) and event.id:
            self._line.wipe()
            number = self._hub.named(self._seen.approval)
            list_ = f"approvals {number}" if self._hub.host else "approvals"
            say(
                f"{self._name} waits for you ({event.tool})"
                f" · bullpen {list_} · bullpen approve {number}"
            )
        if event.name == "state" and self._seen.limited_until:
            self._line.wipe()
            say(
                f"{self._name} met a rate limit: the task goes on after"
                f" {moment(self._seen.limited_until)} by itself"
            )
        if not self._streams or event.name == "end":
            return
        if self._as_json:
            output.write_json_line({"event": event.name, **event.fields})
            sys.stdout.flush()
        elif isinstance(event, TaskEvent):
            self._write(event, before)

    def _write(self, event: TaskEvent, before: TurnProgress) -> None:
        match event.data:
            case TextEvent(text=text):
                self._line.wipe()
                write_text(unwritten(before, text))
            case PartialEvent(text=text, is_first=is_first):
                self._line.wipe()
                if is_first and before.written:
                    write_text("\n")  # what was begun before failed, and comes again
                write_piece(text)

    def _draw(self) -> None:
        # In the middle of a text that is printed there is no line of its own for it.
        if self._line.is_shown and not (self._streams and self._seen.written):
            seconds = time.monotonic() - self._began
            self._line.draw(line(self._seen, self._name, seconds, self._line.columns))

    # ── Ctrl-C ──

    def _interrupted(self) -> None:
        """Returns if the task is to be waited for all the same."""
        id = self._hub.named(self._id)
        if self._is_cancelled:
            leave(f"task {id} is being cancelled · bullpen task show {id}")
        if not _wants_cancel():
            leave(f"task {id} goes on · bullpen task show {id} · bullpen task cancel {id}")
        self._is_cancelled = True
        try:
            self._hub.do(tasks.cancel_task(self._id))
        except BullpenError as error:
            if error.kind is not Kind.CONFLICT:
                raise
            # It was over before the answer: what came of it is shown.


def _wants_cancel() -> bool:
    """What the person says; without one at a terminal, without an answer, or at a second Ctrl-C
    nothing is cancelled."""
    with _terminal() as terminal:
        if terminal is None:
            return False
        try:
            while True:
                sys.stderr.write(QUESTION)
                sys.stderr.flush()
                answer = terminal.readline().strip().lower()
                if answer in ANSWERS:
                    return ANSWERS[answer]
        except KeyboardInterrupt:
            sys.stderr.write("\n")
            return False


@contextlib.contextmanager
def _terminal() -> Iterator[IO[str] | None]:
    """The person's, if one looks at what we write; standard input may be the prompt's."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        descriptor = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    with open(descriptor, encoding="utf-8", errors="replace") as terminal:  # noqa: PTH123
        # In the background a read would stop us.
        yield terminal if os.tcgetpgrp(descriptor) == os.getpgrp() else None


class _Feed:
    """The events of a task, read beside, so that the line can be drawn meanwhile."""

    def __init__(self, hub: Hub, id: str, after_run: int) -> None:
        self._events: queue.SimpleQueue[SeenEvent | Exception] = queue.SimpleQueue()
        # They end with the command, in whatever call they are.
        threading.Thread(target=self._read, args=(hub, id, after_run), daemon=True).start()
        threading.Thread(target=self._look, args=(hub, id), daemon=True).start()

    def next(self, seconds: float) -> SeenEvent | None:
        """The next one, None if there is none yet; raises what went wrong."""
        try:
            event = self._events.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(event, Exception):
            raise event
        return event

    def _read(self, hub: Hub, id: str, after_run: int) -> None:
        try:
            for event in follow(hub, id, whose()):
                if not event.run or event.run > after_run:
                    self._events.put(event)
        except Exception as error:  # noqa: BLE001 - top of the thread; who waits gets it
            self._events.put(error)

    def _look(self, of: Hub, id: str) -> None:
        """A run that waits for a person says nothing of it: the inbox does. Starts no hub."""
        hub, before = Hub(of.home, start=False).at(of.host), 0
        taken_by: str | None = None
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                agent = hub.do(tasks.get_task(id, whose())).agent
                waiting = hub.do(list_approvals()).approvals
            except (BullpenError, OSError):
                continue
            if agent is not None and agent != taken_by:
                taken_by = agent
                self._events.put(TakenBy(agent))
            mine = [one for one in waiting if one.agent == agent]
            number = mine[0].id if mine else 0
            if number != before:
                before = number
                tool = mine[0].tool if mine else ""
                self._events.put(ApprovalAwaited(number, tool))
