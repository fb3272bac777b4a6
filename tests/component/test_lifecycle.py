"""The life of a component: its stages, its journal, how it leaves."""

import asyncio
import logging

import pytest

from bullpen.component.journal import Journal
from bullpen.component.lifecycle import Life, plan_leaving
from bullpen.errors import BullpenError
from bullpen.model.component import CurrentTask, Shutdown
from bullpen.model.state import Draining, Errored, Idle

TASK = CurrentTask(id="t-1", started_at=1.0, prompt_preview="Fix the bug")


def new_life(**fields: object) -> Life:
    return Life(Journal(logging.getLogger("test")), **fields)  # type: ignore[arg-type]


def test_c1_its_state_follows_from_its_stage_its_task_and_its_leaving() -> None:
    life = new_life()
    assert (life.phase(False), life.phase(True)) == ("starting", "starting")
    life.own_stage = Idle()
    assert (life.phase(False), life.phase(True)) == ("idle", "working")
    life.fail("the engine is too old")
    assert (life.phase(True), life.stage) == ("error", Errored(reason="the engine is too old"))
    life.own_stage = Draining()
    assert life.phase(True) == "draining"


def test_c1_a_server_that_leaves_is_draining() -> None:
    life = new_life(own_stage=Idle())
    life.over.set()
    assert life.phase(False) == "draining"


def test_c1_its_status() -> None:
    life = new_life(own_stage=Idle())
    life.note("info", "ready", port=9000)
    status = life.status("view", "web", ("statusable",), "home-1", {"port": 9000}, TASK)
    assert (status.type, status.name, status.state) == ("view", "web", "working")
    assert (status.current_task, status.config, status.sandbox) == (TASK, {"port": 9000}, None)
    assert [entry.message for entry in status.log] == ["ready"]
    assert life.status("view", "web", (), "home-1", {}).state == "idle"


def test_c1_what_is_below_its_level_is_not_noted() -> None:
    life = new_life(log_level="warn")
    for level in ("debug", "info", "warn", "error"):
        life.note(level, level)  # type: ignore[arg-type]
    assert [entry.message for entry in life.journal.entries()] == ["warn", "error"]


def test_c2_the_newest_drain_counts() -> None:
    ended = []

    async def end(name: str, gate: asyncio.Event) -> None:
        await gate.wait()
        ended.append(name)

    async def story() -> None:
        life, gate = new_life(), asyncio.Event()
        life.drain(asyncio.create_task(end("first", gate)))
        first = life.draining
        life.drain(asyncio.create_task(end("second", gate)))
        gate.set()
        assert first is not None
        assert life.draining is not None
        await life.draining
        assert first.cancelled()
        assert life.is_draining

    asyncio.run(story())
    assert ended == ["second"]


@pytest.mark.parametrize(
    ("shutdown", "task", "seconds"),
    [
        (None, None, 30.0),
        (Shutdown(), None, 30.0),
        (Shutdown(timeout_seconds=0), ("t-1", "running"), 0.0),
        (Shutdown(timeout_seconds=600), None, 600.0),
        (Shutdown(force=True), ("t-1", "running"), 30.0),
    ],
)
def test_c2_how_long_what_runs_may_go_on(
    shutdown: Shutdown | None, task: tuple[str, str] | None, seconds: float
) -> None:
    leaving = plan_leaving("amy", shutdown, task)
    assert (leaving.drain_timeout, leaving.message) == (seconds, "amy leaves")


@pytest.mark.parametrize("shutdown", [None, Shutdown()])
def test_c2_an_empty_request_ends_no_task(shutdown: Shutdown | None) -> None:
    with pytest.raises(BullpenError, match="amy has a task: t-1 is running") as caught:
        plan_leaving("amy", shutdown, ("t-1", "running"))
    assert caught.value.details == {"error": "task_in_progress", "task_id": "t-1"}
