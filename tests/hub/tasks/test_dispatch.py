"""What a task costs beside many that wait and many agents: counted, not timed."""

import asyncio
from collections.abc import Iterator

import pytest

from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.tasks.limits import TaskLimits
from bullpen.model.state import Idle
from bullpen.model.task import QueuedTaskRequest
from tests.hub.parts import Parts, in_parts, until


def put_task_agents(parts: Parts, count: int, **fields: object) -> None:
    """As if they had been started, and were ready."""
    for number in range(count):
        live = parts.put(f"a{number}", state=Idle(), kind="headless", **fields)
        live.view = live.view.model_copy(update={"stage": Idle()})


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The agents of which it was asked whether they may have a task."""
    names: list[str] = []
    real = TaskLimits.parked_until

    def parked_until(self: TaskLimits, live: LiveAgent) -> float | None:
        names.append(live.agent.name)
        return real(self, live)

    monkeypatch.setattr(TaskLimits, "parked_until", parked_until)
    yield names


def test_t4_each_agent_is_looked_at_once_however_many_tasks_wait(looked_at: list[str]) -> None:
    async def story(parts: Parts) -> None:
        put_task_agents(parts, 5)
        for number in range(20):
            request = QueuedTaskRequest(prompt=f"task {number}", role="nobody-has-it")
            await parts.tasks.offer(request)
        looked_at.clear()
        parts.tasks.dispatch()
        assert sorted(looked_at) == [f"a{number}" for number in range(5)]
        # Agents with a task are not even asked about.
        parts.tasks._current = {f"a{number}": "t-1" for number in range(5)}
        looked_at.clear()
        parts.tasks.dispatch()
        assert looked_at == []

    in_parts(story)


def test_t4_news_of_one_agent_wake_nobody_who_waits_for_another() -> None:
    async def story(parts: Parts) -> None:
        board = parts.tasks.board
        woken: list[str] = []

        async def follow(agent: str) -> None:
            assert await board.next_news(60.0, agent)
            woken.append(agent)

        waiting = [asyncio.create_task(follow(agent)) for agent in ("amy", "bob", "")]
        await until(lambda: len(board._news) == 3)
        board.wake("amy")
        await until(lambda: len(woken) == 2)
        assert sorted(woken) == ["", "amy"]
        board.wake("bob")
        await asyncio.gather(*waiting)
        assert len(woken) == 3

    in_parts(story)


def test_t4_who_waits_for_a_task_hears_of_that_one_alone() -> None:
    async def story(parts: Parts) -> None:
        board = parts.tasks.board
        tasks = [
            await parts.tasks.offer(QueuedTaskRequest(prompt="x", role="nobody-has-it"))
            for _ in range(2)
        ]
        looks: list[str] = []

        def look(task: object) -> bool:
            looks.append(str(task))
            return False

        waiting = asyncio.create_task(board.wait(tasks[0].id, look))
        await until(lambda: len(looks) == 1)
        live = board.live[tasks[1].id]
        for number in range(3):
            await board.put(live, live.task.model_copy(update={"warnings": (str(number),)}))
        await parts.tasks.cancel(tasks[0].id)
        assert (await waiting).state == "cancelled"
        assert len(looks) == 1

    in_parts(story)


def test_t4_a_task_that_is_cancelled_in_line_is_given_to_nobody() -> None:
    async def story(parts: Parts) -> None:
        task = await parts.tasks.offer(QueuedTaskRequest(prompt="x"))
        live = parts.tasks.board.live[task.id]
        cancelling = asyncio.create_task(parts.tasks.cancel(task.id))
        await until(lambda: live.task.is_over)
        put_task_agents(parts, 1)
        parts.tasks.dispatch()  # while what the task used is being freed
        assert (live.driver, parts.tasks._current) == (None, {})
        await cancelling

    in_parts(story)
