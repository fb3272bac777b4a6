"""Moments between two steps of a task's life, in the parts of a hub: what comes in between is
neither lost nor done twice."""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from types import MethodType
from typing import Any

import pytest

from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.hub.holders import files as holder_files
from bullpen.hub.tasks import run as task_run
from bullpen.hub.tasks import run_plan
from bullpen.hub.tasks.board import Board, LiveTask
from bullpen.hub.tasks.rows import TaskSession
from bullpen.model.event import Draft
from bullpen.model.state import Draining
from bullpen.model.task import (
    Cancelling,
    Completed,
    QueuedTaskRequest,
    Resting,
    Task,
    TaskRequest,
    TaskWorking,
    Wish,
)
from bullpen.model.task_moves import go_on
from tests.hub.parts import Parts, in_parts, made_home, made_parts, run, until

pytestmark = pytest.mark.slow

# Takes SIGTERM for its end, and says a result all the same.
SUCCEEDS_WHEN_STOPPED = (
    "import signal, sys, time\n"
    "def leave(*_):\n    print('whole', flush=True)\n    sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, leave)\n"
    "print('part', flush=True)\n"
    "time.sleep(1000)\n"
)
ECHO = ("/bin/cat",)
SLEEP = ("/bin/sleep", "1000")


def program(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code)


async def over(parts: Parts, task: Task) -> Task:
    return await parts.tasks.board.wait(task.id, lambda _task: False)


def replace_step(step: Callable[..., Any], other: Callable[..., Any]) -> None:
    """That method of that part does something else from now on."""
    assert isinstance(step, MethodType)
    setattr(step.__self__, step.__name__, other)


def before(step: Callable[..., Awaitable[Any]], act: Callable[[], Awaitable[object]]) -> None:
    """`act` happens whenever that step is about to be taken."""

    async def both(*args: Any, **fields: Any) -> Any:
        await act()
        return await step(*args, **fields)

    replace_step(step, both)


@contextlib.contextmanager
def full_disk(step: Callable[..., Awaitable[Any]]) -> Iterator[None]:
    """That step cannot write."""

    async def refuse(*_args: Any, **_fields: Any) -> None:
        raise BullpenError("the disk is full", kind=Kind.UNAVAILABLE)

    replace_step(step, refuse)
    try:
        yield
    finally:
        replace_step(step, step)


async def does_not_end(work: "asyncio.Future[Any]") -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(work), 0.3)


def a_task(id: str = "t-0123456789ab", **fields: Any) -> Task:
    wish = Wish(prompt=fields.pop("prompt", "x"))
    return Task(
        **{"id": id, "agent": "amy", "session_id": "s", "wish": wish, "created": 1.0} | fields
    )


# ── stopped while a task is given ──


def test_c2_an_agent_that_is_stopped_while_a_task_is_checked_does_not_get_it() -> None:
    async def story(parts: Parts) -> None:
        await parts.task_agent("amy", *ECHO)
        before(parts.tasks.check_wish, lambda: parts.hub.stopper.stop("amy", 0))
        with pytest.raises(BullpenError, match="amy is not running"):
            await parts.tasks.submit("amy", TaskRequest(prompt="x", env={"OWN": "secret"}))
        assert (await parts.tasks.board.rows.page("", 1, 10))[1] == 0
        assert not list(parts.home.root.glob(f"{run_plan.VARIABLES}/*"))

    in_parts(story)


@pytest.mark.parametrize(("way", "end"), [("stop", "cancelled"), ("shutdown", "completed")])
def test_c2_an_agent_does_not_leave_while_a_task_is_given_to_it(way: str, end: str) -> None:
    async def story(parts: Parts) -> None:
        amy = await parts.task_agent("amy", *(SLEEP if way == "stop" else ECHO))
        with parts.task_agents.giving("amy"):
            if way == "stop":
                leaving: Awaitable[object] = parts.hub.stopper.stop("amy", 0)
            else:
                await parts.task_agents.shut_down("amy", 0, force=False)
                leaving = amy.over.wait()
            left = asyncio.ensure_future(leaving)
            await until(lambda: not amy.view.is_ready)
            await does_not_end(left)
            task = await parts.tasks.submit("amy", TaskRequest(prompt="x"))
        await left
        assert (await parts.tasks.board.get(task.id)).state == end
        assert parts.tasks.current("amy") is None

    in_parts(story, factory=True)


def test_c2_a_drain_that_cannot_be_recorded_does_not_begin() -> None:
    async def story(parts: Parts) -> None:
        amy = await parts.task_agent("amy", *ECHO)
        with full_disk(parts.store.append), pytest.raises(BullpenError, match="full"):
            await parts.task_agents.shut_down("amy", 0, force=False)
        assert amy.view.is_ready

    in_parts(story)


@pytest.mark.parametrize("which", ["this", "an earlier"])
def test_c2_only_the_run_that_was_told_to_leave_does(which: str) -> None:
    async def story(parts: Parts) -> None:
        amy = await parts.task_agent("amy", *ECHO)
        run = amy.agent.run if which == "this" else "0" * 32
        data = {"run": run, "until": 0.0, "force": False}
        await parts.store.append(Draft(1.0, "agent.stopping", "amy", data))
        await parts.task_agents.adopt(amy)
        assert (amy.view.state == Draining()) == (which == "this")

    in_parts(story)


# ── taking ──


def test_t1_of_two_tasks_at_once_an_agent_gets_one_and_of_one_request_one_task_comes() -> None:
    async def story(parts: Parts) -> None:
        for name in ("amy", "bob"):
            await parts.task_agent(name, *SLEEP)
        asks = [parts.tasks.submit("amy", TaskRequest(prompt="x")) for _ in range(3)]
        found = await asyncio.gather(*asks, return_exceptions=True)
        assert len([each for each in found if isinstance(each, Task)]) == 1
        again = TaskRequest(prompt="x", request="0" * 32)
        same = await asyncio.gather(*(parts.tasks.submit("bob", again) for _ in range(3)))
        assert len({task.id for task in same}) == 1
        for name in ("amy", "bob"):
            await parts.hub.stopper.stop(name, 0)

    in_parts(story, factory=True)


def test_t3_a_task_cancelled_as_it_is_taken_from_the_queue_is_nobodys() -> None:
    async def story(parts: Parts) -> None:
        await parts.task_agent("amy", *ECHO)
        task = await parts.tasks.offer(QueuedTaskRequest(prompt="x"))
        await parts.tasks.cancel(task.id)
        await until(lambda: task.id not in parts.tasks.board.live)
        found = await parts.tasks.board.get(task.id)
        assert (found.state, found.agent) == ("cancelled", "")
        assert parts.tasks.current("amy") is None
        assert not parts.home.session("amy").joinpath("tasks").exists()

    in_parts(story)


def test_t1_variables_of_a_task_that_could_not_be_kept_are_not_kept_either() -> None:
    async def story(parts: Parts) -> None:
        with full_disk(parts.tasks.board.rows.put), pytest.raises(BullpenError, match="full"):
            await parts.tasks.offer(QueuedTaskRequest(prompt="x", env={"OWN": "secret"}))
        assert list((parts.home.root / run_plan.VARIABLES).iterdir()) == []
        assert parts.tasks.open_tasks() == []

    in_parts(story)


# ── on its way ──


def test_t7_a_run_that_succeeds_while_it_is_stopped_has_succeeded() -> None:
    async def story(parts: Parts) -> None:
        await parts.task_agent("amy", *program(SUCCEEDS_WHEN_STOPPED))
        task = await parts.tasks.submit("amy", TaskRequest(prompt="x", timeout_seconds=0.5))
        live = parts.tasks.board.live[task.id]
        # Its time is over, and it is told to end, only after it can say so.
        real = parts.tasks.driver.run_watch.wait_for_limit

        async def wait(live: LiveTask, ahead: float) -> None:
            await until(
                lambda: live.run_output is not None and live.run_output.text_so_far == "part"
            )
            await real(live, ahead)

        replace_step(real, wait)
        found = await over(parts, task)
        assert (found.state, found.output) == ("completed", "part\nwhole")
        assert live.stopped_for is not None  # it was stopped

    in_parts(story, factory=True)


def test_t3_a_task_cancelled_right_before_its_run_starts_nothing() -> None:
    async def story(parts: Parts) -> None:
        await parts.task_agent("amy", *SLEEP)
        before(parts.tasks.driver.run_starter.open_tunnel, lambda: parts.tasks.cancel(task.id))
        task = await parts.tasks.submit("amy", TaskRequest(prompt="x"))
        found = await over(parts, task)
        assert (found.state, found.runs) == ("cancelled", ())
        assert not run_plan.run_directory(parts.home, found, 1).joinpath("holder.json").exists()

    in_parts(story)


def test_t5_a_task_continued_as_its_time_to_rest_ends_goes_on() -> None:
    async def story(parts: Parts) -> None:
        parts.role("amy", *ECHO)
        fields = {"role": "amy", "keep_open": True, "open_timeout": "5s"}
        (parts.home.agents / "amy.yaml").write_text(json.dumps(fields))
        await parts.task_agent("amy", *ECHO)
        task = await parts.tasks.submit("amy", TaskRequest(prompt="one"))
        await parts.tasks.board.wait(task.id, lambda task: isinstance(task.status, Resting))
        live = parts.tasks.board.live[task.id]
        async with live.lock:
            status = live.task.status
            assert isinstance(status, Resting)
            await until(lambda: time.time() > status.since + 5.2)
            await parts.tasks.board.put(live, go_on(live.task, "two", time.time()))
        found = await over(parts, task)
        assert (found.output, len(found.runs)) == ("two", 2)

    in_parts(story, factory=True)


def test_t5_the_time_that_a_task_may_rest_goes_on_without_the_hub() -> None:
    async def rest(home: Home) -> Task:
        """A task of amy that has rested for as long as it may, all but a moment."""
        async with made_parts(home) as parts:
            await parts.tasks.load()
            fields = {"role": "amy", "open_timeout": "1h"}
            (home.agents / "amy.yaml").write_text(json.dumps(fields))
            await parts.task_agent("amy", *ECHO)
            task = a_task(status=Resting(since=time.time() - 3599.5))
            await parts.tasks.board.rows.put(task, TaskSession(id="s", agent="amy"), 1.0)
            return task

    async def story(home: Home) -> None:
        task = await rest(home)
        async with made_parts(home) as parts, asyncio.timeout(60):
            await parts.hub.load()
            assert (await over(parts, task)).state == "completed"

    with made_home() as home:
        run(story(home))


def test_t11_a_run_whose_driver_fails_does_not_go_on_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(task_run, "follow", fail)

    async def story(parts: Parts) -> None:
        await parts.task_agent("amy", *SLEEP)
        task = await parts.tasks.submit("amy", TaskRequest(prompt="x"))
        found = await over(parts, task)
        assert found.state == "failed"
        place = run_plan.run_directory(parts.home, found, 1)
        assert (place / "holder.json").exists()
        assert not holder_files.is_held(place)

    in_parts(story, factory=True)


# ── the board ──


def on_board(story: Callable[[Parts, Board, LiveTask], Awaitable[None]], **fields: Any) -> None:
    async def told(parts: Parts) -> None:
        task = a_task(**fields)
        board = parts.tasks.board
        live = board.live[task.id] = LiveTask(task, TaskSession(id="s", agent="amy"))
        await board.rows.put(task, live.session, 1.0)
        await story(parts, board, live)
        board.live.clear()

    in_parts(told)


def test_t11_a_move_that_is_not_on_disk_has_not_happened() -> None:
    async def story(_parts: Parts, board: Board, live: LiveTask) -> None:
        moved = live.task.model_copy(update={"status": Completed(), "ended": 2.0})
        with full_disk(board.rows.put), pytest.raises(BullpenError, match="full"):
            await board.put(live, moved)
        assert live.task.state == "queued"
        await board.put(live, moved)
        assert live.task.state == "completed"
        assert [event["state"] for event in _parts.events_now("task.state")] == [
            "queued",
            "completed",
        ]

    on_board(story)


@pytest.mark.parametrize(
    ("status", "after"),
    [
        (TaskWorking(run=1, turn_started=1.0), "failed"),
        (Cancelling(since=1.0, run=1), "cancelled"),
        (Completed(), "completed"),
    ],
)
def test_t3_what_fails_while_it_is_cancelled_is_cancelled(status: Any, after: str) -> None:
    async def story(_parts: Parts, board: Board, live: LiveTask) -> None:
        await board.fail(live, "setup_failed", "why")
        assert live.task.state == after

    on_board(story, status=status)


def test_t1_who_waits_misses_nothing_that_happens_while_it_looks() -> None:
    async def story(_parts: Parts, board: Board, live: LiveTask) -> None:
        board.live.clear()  # so that it is looked for on disk
        real, old = board.rows.find, live.task

        async def find(id: str) -> Task | None:
            board.rows.find = real  # type: ignore[method-assign]
            done = old.model_copy(update={"status": Completed(), "ended": 2.0})
            await board.put(live, done)
            return old

        board.rows.find = find  # type: ignore[method-assign]
        found = await asyncio.wait_for(board.wait(old.id, lambda _task: False), 60)
        assert found.state == "completed"

    on_board(story)


def test_b6_a_task_is_found_under_its_own_agent_alone() -> None:
    async def story(_parts: Parts, board: Board, live: LiveTask) -> None:
        for _where in ("live", "on disk"):
            assert (await board.get(live.task.id, "amy")).id == live.task.id
            with pytest.raises(BullpenError, match=r"no task .* of bob"):
                await board.get(live.task.id, "bob")
            board.live.clear()

    on_board(story)


# ── rows ──


def test_t10_what_is_forgotten_is_over_old_and_the_agents_own() -> None:
    async def story(parts: Parts) -> None:
        rows, done = parts.tasks.board.rows, {"status": Completed(), "ended": 2.0}
        for id, fields in {
            "t-1": {"agent": "amy"},
            "t-2": {"agent": "amy", **done},
            "t-3": {"agent": "bob", **done},
            "t-4": {"agent": "amy", **done},
            "t-5": {"agent": "amy", **done, "session_id": "other", "prompt": "Straße"},
        }.items():
            await rows.put(a_task(id, **fields))
        assert [task.id for task in await rows.open()] == ["t-1"]
        assert await rows.ids("amy") == {"t-1", "t-2", "t-4", "t-5"}
        for fields, expected in (
            ({"agent": "amy", "page": 1, "limit": 2}, (["t-5", "t-4"], 4)),
            ({"agent": "amy", "page": 2, "limit": 2}, (["t-2", "t-1"], 4)),
            ({"agent": "", "page": 1, "limit": 9, "state": "queued"}, (["t-1"], 1)),
            ({"agent": "", "page": 1, "limit": 9, "session": "other"}, (["t-5"], 1)),
            ({"agent": "", "page": 1, "limit": 9, "text": "STRASSE"}, (["t-5"], 1)),
        ):
            found, total = await rows.page(**fields)  # type: ignore[arg-type]
            assert ([task.id for task in found], total) == expected, fields
        assert await rows.drop_old("amy", 2) == ["t-2"]
        assert await rows.ids("amy") == {"t-1", "t-4", "t-5"}
        assert await rows.ids("bob") == {"t-3"}

    in_parts(story)


def test_t1_waiting_tasks_are_found_again_in_their_order() -> None:
    async def story(parts: Parts) -> None:
        for id in ("t-b", "t-c", "t-a"):
            await parts.tasks.board.rows.put(a_task(id, agent=""))
        await parts.tasks.board.rows.put(a_task("t-b", agent="", priority=1))  # moved meanwhile
        assert [task.id for task in await parts.tasks.board.rows.open()] == ["t-b", "t-c", "t-a"]

    in_parts(story)
