"""`kill --all`: what a person ended stays ended, whoever starts the next hub."""

import time

import pytest

from bullpen.home.paths import KILLED, Home
from bullpen.hub.tasks.rows import TaskSession
from bullpen.model.task import Cancelled, Task, TaskWorking, Wish
from tests.hub.parts import made_home, made_parts, run
from tests.hub.programs import SLEEP
from tests.hub.tasks.desk import Desk

pytestmark = pytest.mark.slow


def test_f3_what_was_killed_stays_ended_until_somebody_starts_it(desk: Desk) -> None:
    pen = desk.pen
    desk.agent("tess", walls=False)
    desk.write_file("tess", autostart=True)
    pen.role("worker", agent_type="command", command=list(SLEEP), restart="always")
    pen.run(name="amy", role="worker", words=[])
    assert pen.cli("kill", "--all").code == 0
    words = {name: agent["words"] for name, agent in pen.agents().items()}
    assert words == {"amy": "ended (killed)", "tess": "ended (killed)"}
    assert "bullpen resume" not in pen.cli("list").out
    assert pen.cli("hub", "restart").code == 0
    assert not [name for name, agent in pen.agents().items() if agent["running"]]
    assert pen.cli("resume", "--all").code == 0
    assert all(agent["running"] for agent in pen.agents().values())
    assert pen.cli("hub", "restart").code == 0  # the mark was of another run
    assert all(agent["running"] for agent in pen.agents().values())


def test_f3_a_task_that_was_killed_is_over(desk: Desk) -> None:
    desk.agent("tess", walls=False)
    task = desk.give("tess", "[[hold a ; say late]]")
    desk.claude.wait_held("a")
    assert desk.pen.cli("kill", "--all").code == 0
    assert desk.pen.cli("tasks", "--json").json["tasks"] == []  # the first look
    assert desk.task(task)["state"] == "cancelled"
    assert desk.pen.agents()["tess"]["words"] == "ended (killed)"


def test_f3_a_task_of_an_agent_that_was_killed_is_over_before_the_next_hub_serves() -> None:
    async def story(home: Home) -> None:
        async with made_parts(home) as parts:
            await parts.tasks.load()
            amy = await parts.task_agent("amy", "/bin/cat")
            task = Task(
                id="t-0123456789ab",
                agent="amy",
                session_id="s",
                wish=Wish(prompt="x"),
                created=1.0,
                status=TaskWorking(turn_started=time.time(), run=1),
            )
            await parts.tasks.board.rows.put(task, TaskSession(id="s", agent="amy"), 1.0)
            (home.session("amy") / KILLED).write_text(amy.agent.run)
        async with made_parts(home) as parts:
            await parts.hub.load()
            status = (await parts.tasks.board.get(task.id)).status
            assert status == Cancelled(reason="killed")

    with made_home() as home:
        run(story(home))
