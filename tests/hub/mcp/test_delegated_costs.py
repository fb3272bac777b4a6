"""What tasks cost the agents that gave them (M8, D5). A real hub; the taker is a program that
speaks as Claude Code does."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.hub.tasks.desk import Desk, made_desk
from tests.hub.tree.support import PROGRAM, Grove

pytestmark = pytest.mark.slow

WORK = """
say("at work", tokens=5)
if "told" in prompt:
    result("done", total_cost_usd=0.125)
else:
    signal.pause()
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with made_desk(tmp_path) as made:
        yield made


def usd_of(desk: Desk, task: str) -> float:
    """Its part of its giver's budget."""
    path = f"file:{desk.pen.root}/state.db?mode=ro"
    with closing(sqlite3.connect(path, uri=True)) as rows:
        found = rows.execute("SELECT data FROM tasks WHERE id = ?", (task,)).fetchone()
    return float(json.loads(found[0])["wish"]["budget"]["usd"])


def test_m8_d5_a_task_that_told_no_cost_has_cost_all_that_it_was_given(desk: Desk) -> None:
    desk.program(WORK)
    grove = Grove.of(desk.pen, desk.claude.work)
    desk.role("giver", **PROGRAM, capabilities=["delegate"], budget={"usd": 1})
    grove.run("lead", role="giver")
    desk.agent("amy", walls=False)

    def give(prompt: str) -> str:
        return str(grove.call("lead", "delegate_task", prompt=prompt, agent="amy")["task_id"])

    told = give("told")
    assert usd_of(desk, told) == 0.5
    assert desk.done(told)["cost_usd"] == 0.125
    stopped = give("endless")
    assert usd_of(desk, stopped) == (1 - 0.125) / 2
    desk.wait_said(stopped, "at work")
    grove.call("lead", "cancel_task", task_id=stopped)
    assert desk.over(stopped)["cost_usd"] is None
    left = 1 - 0.125 - (1 - 0.125) / 2
    assert usd_of(desk, give("told")) == left / 2
