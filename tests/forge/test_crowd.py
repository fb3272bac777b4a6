"""Many open issues, few agents, and GitHub's limits in force: D2."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bullpen.directors.forge.remember import Given
from bullpen.directors.forge.tasks import TaskSeen
from tests.forge.office import LGTM, Answer, Office, ScriptedTasks
from tests.forge.quota import HOUR, Quota
from tests.forge.server import served_github
from tests.forge.world import World

AGENTS = 5


class SlowTasks(ScriptedTasks):
    """Agents that take a while, by the director's clock; never more at once than there are."""

    def __init__(self, office: Office, seconds: float) -> None:
        super().__init__(office.tasks.directory)
        self.office = office
        self.seconds = seconds
        self.begun: dict[str, float] = {}
        self.over: set[str] = set()

    async def give(self, request: str, *args: Any, **options: Any) -> Given:
        given = await super().give(request, *args, **options)
        self.begun.setdefault(request, self.office.now())
        assert len(self.begun.keys() - self.over) <= AGENTS
        return given

    async def look(self, task_id: str) -> TaskSeen:
        if self.office.now() < self.begun[task_id] + self.seconds:
            return TaskSeen(is_over=False)
        self.over.add(task_id)
        return await super().look(task_id)


async def work(office: Office, quota: Quota, issues: int, most_hours: float) -> None:
    """Until all are approved, by a person who looks now and then."""
    world, loop = office.forge.world, office.loop()
    began = office.now()
    while len(loop.memory.over) < issues:
        for pull in world.pulls:
            if not pull.reactions:
                world.react(pull.number, "ann", "+1")
        await loop.step()
        office.seconds += loop._pause_seconds()
        assert office.now() < began + most_hours * HOUR, loop.memory.over
    assert set(loop.memory.over.values()) == {"approved"}
    # It rests now, and a look at all of it costs nothing.
    for _ in range(3):
        office.seconds += 1
        await loop.step()
    asked, counted = office.forge.asked, len(quota.counted)
    del asked[:]
    for _ in range(10):
        office.seconds += 30
        await loop.step()
    assert {status for _, _, status in asked} == {304}
    assert (len(quota.counted), len(asked) > 10) == (counted, True)


def crowd(root: Path, issues: int, seconds: float, most_hours: float, **limits: int) -> Quota:
    """That many issues at once. How the limits were used."""
    world = World("acme/shop", {"ann": "admin", "bot": "write", "eve": "read"})
    (root / "forge").mkdir()
    with served_github(root / "forge", world) as forge:
        office = Office(root / "office", forge, settings={"at_once": AGENTS})
        office.tasks = SlowTasks(office, seconds)
        forge.quota = quota = Quota(office.now, office.pass_seconds, **limits)
        world.open_issue("eve", "[robo] Delete", "")
        for _ in range(issues):
            number = world.open_issue("ann", "[robo] Greet", "please")
            office.script(number, Answer(commit=f"greet-{number}"), LGTM)
        asyncio.run(work(office, quota, issues, most_hours))
        assert forge.faults == []
        assert quota.impatient == 0
        assert len(world.pulls) == issues
        asked_for = [each for each in world.issues.values() if each.title == "[robo] Greet"]
        claims = [issue.comments[0].id for issue in asked_for]
        assert claims == sorted(claims), "the oldest first: nobody is passed over"
        assert all(world.said(pull.number, "bot") for pull in world.pulls)
        return quota


@pytest.mark.storm
def test_d2_a_few_issues_are_done_within_small_limits(tmp_path: Path) -> None:
    """Limits that are hit are waited for, without asking, and all is done in the end."""
    quota = crowd(tmp_path, 6, 20, 12, hourly=50, minutes_changes=8, hours_changes=25)
    assert {limit.kind for limit in quota.refused} == {"primary", "secondary"}


@pytest.mark.storm
def test_d2_200_issues_are_done_by_5_agents_within_the_limits_of_github(tmp_path: Path) -> None:
    """By agents that are so fast that only the limits hold them up."""
    quota = crowd(tmp_path, 200, 20, 24)
    assert quota.most_in_an_hour() <= quota.hourly
    assert {limit.kind for limit in quota.refused} == {"secondary"}
