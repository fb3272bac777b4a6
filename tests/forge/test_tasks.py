"""Tasks that a director of a forge gives: D2. A real hub and a real worktree; the agent is the
stand-in."""

import asyncio
import uuid
from pathlib import Path

import pytest

from bullpen.client import AsyncHub
from bullpen.directors.failures import ActionError, Verdict
from bullpen.directors.forge.config import ForgeConfig
from bullpen.directors.forge.tasks import HubTasks, TaskSeen
from tests.forge.server import git, made_bare
from tests.hub.tasks.desk import Desk, made_desk

pytestmark = pytest.mark.slow


@pytest.mark.storm
def test_d2_what_is_only_missing_for_a_while_is_no_reason_to_give_up(tmp_path: Path) -> None:
    """An agent that does not run is waited for, and a conversation that the hub has forgotten goes
    on in a new one, in the same worktree."""
    (tmp_path / "desk").mkdir()
    with made_desk(tmp_path / "desk", "standin") as desk:
        desk.pen.start()
        asyncio.run(_give_to(desk))


async def _give_to(desk: Desk) -> None:
    repo = str(made_bare(desk.pen.root.parent))
    forgotten = str(uuid.uuid4())
    config = ForgeConfig(type="github", repo="acme/shop", agent="amy")
    async with AsyncHub(desk.pen.home, start=False) as hub:
        tasks = HubTasks(hub, config)

        async def give(request: str, session_id: str, prompt: str) -> tuple[str, str]:
            given = await tasks.give(
                request * 32, prompt, session_id=session_id, repo=repo, branch="claude/issue-1"
            )
            return given.task_id, given.session_id

        for session_id in ("", forgotten):
            with pytest.raises(ActionError, match="no agent called amy") as raised:
                await give("a", session_id, "x")
            assert raised.value.verdict is Verdict.LATER

        desk.agent("amy")
        first, session = await give(
            "a", forgotten, '[[tool Bash {"command": "touch here"} ; say x]]'
        )
        assert session != forgotten
        assert await give("a", forgotten, "x") == (first, session), "one request is one task"
        desk.over(first)
        [worktree] = desk.pen.home.worktrees.glob("*/here")
        assert git(worktree.parent, "branch", "--show-current") == "claude/issue-1"

        desk.pen.stop("amy")
        with pytest.raises(ActionError, match="amy") as raised:
            await give("c", session, "x")
        assert raised.value.verdict is Verdict.LATER


def test_d2_a_task_that_had_no_directory_is_told_from_one_that_failed(tmp_path: Path) -> None:
    (tmp_path / "desk").mkdir()
    with made_desk(tmp_path / "desk", "standin") as desk:
        desk.pen.start()
        desk.agent("amy", walls=False)
        url = f"file://{tmp_path / 'away'}"
        unbegun = desk.over(desk.give("amy", "x", repo=url, worktree="claude/issue-1"))
        worked = desk.done(desk.give("amy", "x"))
        looks = asyncio.run(_look_at(desk, unbegun["task_id"], worked["task_id"]))
        assert [(bool(each.failure), each.is_unbegun) for each in looks] == [
            (True, True),
            (False, False),
        ]


async def _look_at(desk: Desk, *tasks: str) -> list[TaskSeen]:
    config = ForgeConfig(type="github", repo="acme/shop", agent="amy")
    async with AsyncHub(desk.pen.home, start=False) as hub:
        return [await HubTasks(hub, config).look(task) for task in tasks]
