"""Task agents that are told to leave at an odd moment: while they start, or by a hub whose word for
it is not in the log any more."""

import asyncio

from bullpen.errors import BullpenError, Kind
from bullpen.model.agent import Agent
from bullpen.model.event import Draft, Event
from bullpen.model.launch import Launch
from bullpen.model.state import Draining
from tests.hub.parts import Parts, in_parts, made_home, made_parts, run, until


def test_an_agent_told_to_leave_while_it_starts_is_started_and_then_leaves() -> None:
    async def story(parts: Parts) -> None:
        parts.role("amy", "/bin/cat")
        sockets, is_there, gate = parts.hub.agent_sockets, asyncio.Event(), asyncio.Event()
        open_at_once = sockets.open

        async def open_late(agent: Agent) -> None:
            is_there.set()
            await gate.wait()
            await open_at_once(agent)

        sockets.open = open_late  # type: ignore[method-assign]
        asked = Launch(kind="headless", name="amy", role="amy", cwd="/")
        launching = asyncio.create_task(parts.hub.launcher.launch(asked))
        await is_there.wait()
        await parts.task_agents.shut_down("amy", 0, force=True)
        await asyncio.sleep(0.3)
        assert parts.registry.get("amy").is_running
        gate.set()
        amy = await launching
        await amy.over.wait()
        assert parts.registry.get("amy") is amy
        kinds = ("agent.starting", "agent.started", "agent.stopped")
        ids = [(await parts.events(kind, "amy"))[0].id for kind in kinds]
        assert ids == sorted(ids)

    in_parts(story)


def test_an_agent_that_drains_leaves_also_if_the_word_for_it_has_expired() -> None:
    async def story() -> None:
        with made_home() as home:
            async with made_parts(home) as parts:
                await parts.tasks.load()
                amy = await parts.task_agent("amy", "/bin/cat")
                await parts.task_agents._set_stage(amy, Draining(), "told to leave")
            async with made_parts(home) as parts, asyncio.timeout(60):
                await parts.hub.load()
                amy = parts.registry.get("amy")
                assert amy.view.state == Draining()
                await parts.task_agents.run()
                await until(lambda: not amy.is_running)

    run(story())


def test_an_agent_is_looked_after_also_if_that_it_was_found_cannot_be_recorded() -> None:
    async def story() -> None:
        with made_home() as home:
            async with made_parts(home) as parts:
                await parts.tasks.load()
                await parts.task_agent("amy", "/bin/cat")
            async with made_parts(home) as parts, asyncio.timeout(60):
                append, failures = parts.store.append, 0

                async def append_later(*drafts: Draft) -> list[Event]:
                    nonlocal failures
                    if not failures and drafts[0].kind == "agent.started":
                        failures += 1
                        raise BullpenError("the disk is full", kind=Kind.UNAVAILABLE)
                    return await append(*drafts)

                parts.store.append = append_later  # type: ignore[method-assign]
                await parts.hub.load()
                assert failures == 1
                await until(lambda: parts.registry.get("amy").view.is_ready)

    run(story())
