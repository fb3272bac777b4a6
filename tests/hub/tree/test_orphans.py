"""Moments in which children are handed over, in the parts of a hub."""

import asyncio
from collections.abc import Sequence

from bullpen.hub.tree.orphans import Orphans
from bullpen.model.state import Working
from tests.hub.parts import ENDED, Parts, in_parts


def test_i4_a_parent_that_is_back_before_its_children_are_handed_over_keeps_them() -> None:
    async def story(parts: Parts) -> None:
        hub, is_held, go_on = parts.hub, asyncio.Event(), asyncio.Event()

        async def held(_parent: str, _heir: str, _names: Sequence[str]) -> None:
            """Of messages; it takes its time."""
            is_held.set()
            await go_on.wait()

        orphans = Orphans(
            parts.home,
            parts.store,
            parts.registry,
            hub.stopper,
            hub.children,
            hub.queue,
            hub.background,
            held,
            hub.asked_children,
        )
        for parent, child in (("first", "leaf"), ("lead", "kid")):
            parts.agent(parent, ENDED)
            parts.agent(child, Working(), parent=parent)
        other = asyncio.create_task(orphans.look("first"))
        await is_held.wait()
        looking = asyncio.create_task(orphans.look("lead"))
        await asyncio.sleep(0)  # it is its turn next
        parts.put("lead", Working())
        go_on.set()
        await asyncio.gather(other, looking)
        assert parts.registry.get("leaf").agent.parent == ""
        assert parts.registry.get("kid").agent.parent == "lead"

    in_parts(story)
