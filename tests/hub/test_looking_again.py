"""Time passes between a look and an act: what was true is looked at once more, and a run is told
from another one of the same name."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bullpen import proc
from bullpen.client import processes
from bullpen.engines import get_engine
from bullpen.errors import BullpenError
from bullpen.hub import adopt
from bullpen.hub.holders import files as holder_files
from bullpen.hub.tasks import run as task_run
from bullpen.hub.tasks.agents import WORK
from bullpen.model.agent import Agent
from bullpen.model.event import Event
from bullpen.model.gc import GcPlan, GcProgress
from bullpen.model.state import Idle, Unknown, View
from tests.hub.parts import ENDED, Parts, in_parts
from tests.hub.stand_ins import held_by

pytestmark = pytest.mark.slow


async def swept(parts: Parts, meanwhile: str, act: Callable[[], None]) -> GcPlan:
    """A sweep; `act` happens after the plan and before its first step."""
    steps = parts.hub.gc.collect(0.0, force=False, dry_run=False)
    async for told in steps:
        if isinstance(told, GcProgress) and told.doing == meanwhile:
            act()
        if isinstance(told, GcPlan):
            return told
    raise AssertionError("a sweep without a result")


def test_r8_files_that_a_task_left_after_the_plan_keep_the_session() -> None:
    async def story(parts: Parts) -> None:
        amy = parts.agent("amy", ENDED, kind="headless")
        work = parts.home.session("amy") / WORK / "conversation"

        def leave_file() -> None:
            work.mkdir(parents=True)
            (work / "result").write_text("x")

        found = await swept(parts, "removing", leave_file)
        assert [(step.do, step.what) for step in found.steps] == [("keep", "session")]
        assert (work / "result").read_text() == "x"
        assert parts.registry.find("amy") is amy

    in_parts(story)


def test_r8_an_agent_that_is_started_again_after_the_plan_stays() -> None:
    async def story(parts: Parts) -> None:
        amy = parts.agent("amy", ENDED)

        def start() -> None:
            amy.view = amy.view.model_copy(update={"state": Idle()})

        found = await swept(parts, "removing", start)
        assert [(step.do, step.why) for step in found.steps] == [("keep", "still running")]
        assert parts.home.session("amy").is_dir()
        assert parts.registry.find("amy") is amy

    in_parts(story)


def test_r8_a_socket_that_somebody_listens_on_after_the_plan_stays() -> None:
    async def story(parts: Parts) -> None:
        path = parts.home.sockets / "agent.amy.sock"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        listener = socket.socket(socket.AF_UNIX)

        def listen() -> None:
            path.unlink()
            listener.bind(str(path))
            listener.listen()

        with listener:
            found = await swept(parts, "removing", listen)
        assert [(step.do, step.why) for step in found.steps] == [("keep", "in use again")]
        assert path.exists()
        path.unlink()

    in_parts(story)


# ── a run is told from another ──


def test_b2_a_holder_of_another_run_is_not_taken_for_the_agents() -> None:
    async def story(parts: Parts) -> None:
        amy = parts.agent("amy")
        place = parts.home.session("amy"), parts.home.socket("amy")
        async with held_by(*place, tag="of another run") as holder:
            assert not await parts.hub.watch.reconcile(amy)
            assert amy.link is None
            assert isinstance(amy.view.state, Unknown)
            assert parts.events_now("agent.started") == []
            with pytest.raises(BullpenError, match="does not answer"):
                await parts.hub.stopper.stop("amy", 0)
            assert b"X" not in holder.done
        async with held_by(*place, tag=amy.agent.run):
            assert await parts.hub.watch.reconcile(amy)
            assert amy.link is not None

    in_parts(story)


def test_t11_a_run_of_another_task_is_neither_followed_nor_stopped() -> None:
    async def story(parts: Parts) -> None:
        parts.agent("amy", kind="headless")
        place = task_run.RunRef(parts.home.session("amy"), "t-1.1", parts.home.socket("amy"))
        async with held_by(place.directory, place.socket, tag="t-2.1") as holder:
            await task_run.stop(place, 0)
            with pytest.raises(BullpenError, match="another program is held"):
                await task_run.follow(
                    place, get_engine("command"), task_run.RunOutput(), lambda: None
                )
            assert holder.done == []
        async with held_by(place.directory, place.socket, tag="t-1.1") as holder:
            await task_run.stop(place, 0)
            assert holder.done == [b"X"]

    in_parts(story)


@pytest.mark.parametrize("tag", ["this", "another"])
def test_k4_records_of_another_run_are_as_good_as_none(tmp_path: Path, tag: str) -> None:
    pids = {"pid": 1, "child": 1, "start_time": "x", "child_start_time": "x"}
    (tmp_path / "holder.json").write_text(json.dumps({"tag": "this", **pids}))
    (tmp_path / "exit.json").write_text(json.dumps({"tag": "this", "code": 0}))
    assert (holder_files.find_holder(tmp_path, tag) is not None) == (tag == "this")
    assert (holder_files.find_exit(tmp_path, tag) is not None) == (tag == "this")


def test_b2_a_view_of_an_earlier_run_is_not_this_runs(tmp_path: Path) -> None:
    amy = Agent(name="amy", run="this", cwd="/", command=("x",), created="")
    ended = View(run="this", state=ENDED, since=0.0, decided_by="process", evidence=())
    for run in ("this", "another"):
        data = ended.model_copy(update={"run": run}).model_dump(mode="json")
        event = Event(id=1, time=0.0, kind="agent.state", agent="amy", data=data)
        view = adopt._last_view(amy, event)
        assert (view.run, view.is_over) == ("this", run == "this")


# ── the pid of a process that ended may be another's ──


def test_k4_nobody_is_signalled_whose_process_is_another_by_now() -> None:
    with sleeper() as child:
        record = {"pid": child.pid, "child": child.pid, "child_start_time": "another/1"}
        holder_files.end_orphan({**record, "start_time": "another/1"})
        processes.end(processes.Process("hub", "hub", child.pid, "another/1"))
        assert child.poll() is None
        began = proc.start_time(child.pid)
        holder_files.end_orphan({**record, "start_time": began, "child_start_time": began})
        assert child.wait(60) == -signal.SIGKILL


def test_f3_kill_all_does_not_stop_another_holder_under_the_same_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its record is of the last run; what answers at the socket is of the next."""
    monkeypatch.setattr(processes, "SETTLE_SECONDS", 0.5)

    async def story(parts: Parts) -> None:
        with sleeper() as child:
            began = proc.start_time(child.pid)
            assert began is not None
            parts.agent("amy")
            place = parts.home.session("amy"), parts.home.socket("amy")
            process = processes.Process("agent", "amy", child.pid, began)
            async with held_by(*place, tag="") as holder:
                waits = asyncio.create_task(asyncio.to_thread(child.wait, 60))
                await asyncio.to_thread(processes._end_agent, parts.home, process)
                assert holder.done == []
            assert await waits == -signal.SIGKILL

    in_parts(story)


@contextlib.contextmanager
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    child = subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
