"""What one task reads and asks for: the agent's file and its role once when it is given (to check
the login) and once when it runs; and its engine prepares each run once, whether messages wait or
the conversation goes on."""

import asyncio
import collections
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.engines import ENGINES
from bullpen.engines.base import Prepared, Start
from bullpen.engines.command import Command
from bullpen.hub.tasks import run_plan
from bullpen.model.message import ROOT, Message, new_id
from bullpen.model.task import QueuedTaskRequest, Task, TaskRequest
from tests.hub.parts import Parts, in_parts, until

pytestmark = pytest.mark.slow

_watched: dict[str, "collections.Counter[str]"] = {}


def _note(event: str, words: tuple[Any, ...]) -> None:
    if event == "open" and _watched and isinstance(words[0], str | bytes | os.PathLike):
        path = os.fsdecode(words[0])
        for root, opened in list(_watched.items()):
            if path.startswith(root):
                opened[path.removeprefix(f"{root}/")] += 1


sys.addaudithook(_note)  # cannot be taken away again: it does nothing while nobody looks


@contextmanager
def opened_below(root: Path) -> Iterator["collections.Counter[str]"]:
    """How often each file below that directory is opened meanwhile."""
    opened = _watched[str(root)] = collections.Counter()
    try:
        yield opened
    finally:
        del _watched[str(root)]


class RememberingEngine(Command):
    """A plain program that goes on with every conversation, and knows what it was asked for."""

    def __init__(self) -> None:
        self.prepared: list[Start] = []

    def has_conversation(self, start: Start) -> bool:
        return True

    def prepare_run(self, start: Start) -> Prepared:
        self.prepared.append(start)
        return super().prepare_run(start)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> RememberingEngine:
    made = RememberingEngine()
    monkeypatch.setitem(ENGINES, "command", made)
    return made


async def do(parts: Parts, prompt: str, **fields: Any) -> Task:
    return await finish(
        parts, await parts.tasks.submit("amy", TaskRequest(prompt=prompt, **fields))
    )


async def finish(parts: Parts, task: Task) -> Task:
    done = await parts.tasks.board.wait(task.id, lambda _task: False)
    live = parts.tasks.board.live.get(task.id)
    if live is not None and live.driver is not None:
        await live.driver
    assert done.state == "completed", done
    return done


async def make_amy(parts: Parts) -> None:
    (parts.home.agents / "amy.yaml").write_text("role: amy\n")
    await parts.task_agent("amy", "/bin/cat")


def test_a_run_reads_the_file_and_the_role_of_its_agent_once(engine: RememberingEngine) -> None:
    """For whoever is free: nobody's login can be checked before."""

    async def story(parts: Parts) -> None:
        await make_amy(parts)
        with opened_below(parts.home.root) as opened:
            await finish(parts, await parts.tasks.offer(QueuedTaskRequest(prompt="hello")))
        assert (opened["agents/amy.yaml"], opened["roles/amy.yaml"]) == (1, 1), opened
        assert len(engine.prepared) == 1

    in_parts(story, factory=True)


def test_a_task_for_one_agent_reads_them_once_when_it_is_given_and_once_when_it_runs(
    engine: RememberingEngine,
) -> None:
    """They may change in between: the run goes by what they say then."""

    async def story(parts: Parts) -> None:
        await make_amy(parts)
        with opened_below(parts.home.root) as opened:
            await do(parts, "hello")
        assert (opened["agents/amy.yaml"], opened["roles/amy.yaml"]) == (2, 2), opened
        assert len(engine.prepared) == 1

    in_parts(story, factory=True)


def test_messages_and_a_conversation_cost_no_second_preparation(engine: RememberingEngine) -> None:
    async def story(parts: Parts) -> None:
        await parts.task_agent("amy", "/bin/cat")
        first = await do(parts, "hello")
        session = await parts.tasks.board.rows.find_session(first.session_id)
        assert session is not None
        known = session.model_copy(update={"conversation": "c-1"})
        await parts.tasks.board.rows.keep_session(known)
        engine.prepared.clear()
        message = Message(id=new_id(), sender=ROOT, to="amy", text="look here", created=1.0)
        await parts.hub.messages.send(message)
        second = await do(parts, "go on", session_id=first.session_id)
        assert [start.conversation for start in engine.prepared] == ["c-1"]
        assert "look here" in engine.prepared[0].prompt
        assert engine.prepared[0].run == run_plan.run_directory(parts.home, second, 1)

    in_parts(story, factory=True)


def test_a_task_that_has_waited_for_its_directory_runs_as_the_files_say_then() -> None:
    async def story(parts: Parts) -> None:
        amy = await parts.task_agent("amy", "/bin/sleep", "1000")
        await parts.task_agent("bob", "/bin/echo", "before")
        there = str(parts.home.root.parent / "person")
        first = await parts.tasks.submit("amy", TaskRequest(prompt="x", workdir=there))
        await until(lambda: amy.view.state.state == "working")
        second = await parts.tasks.submit("bob", TaskRequest(prompt="x", workdir=there))
        await until(lambda: parts.tasks.board.live[second.id].session.directory)
        await asyncio.sleep(0.1)
        parts.role("bob", "/bin/echo", "after")
        await parts.tasks.cancel(first.id)
        done = await parts.tasks.board.wait(second.id, lambda _task: False)
        assert (done.state, (done.output or "").strip()) == ("completed", "after")

    in_parts(story, factory=True)
