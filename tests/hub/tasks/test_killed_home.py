"""`kill --all`: what a person ended stays ended, whoever starts the next hub."""

import pytest

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
    assert desk.pen.agents()["tess"]["words"] == "ended (killed)"
    assert desk.over(task)["state"] in ("cancelled", "failed")
