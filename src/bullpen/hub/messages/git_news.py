"""Tells agents what became of their commits: what was refused, and that a branch has diverged.

A part of the hub: hears of `git.news`, which `agents/private_gits` records, and sends the agent a
message. Sends nothing to one that has ended: `list` and `explain` say it to people.
"""

import hashlib
import time
from collections.abc import Iterable

from bullpen.hub.agents.private_gits import NEWS
from bullpen.hub.agents.registry import Registry
from bullpen.hub.background import Background
from bullpen.hub.messages.deliver import Delivery
from bullpen.model.event import Event
from bullpen.model.message import BULLPEN, Message


class GitNews:
    """One message for each piece of news, also after a restart of the hub."""

    def __init__(self, registry: Registry, delivery: Delivery, background: Background) -> None:
        self._registry = registry
        self._delivery = delivery
        self._background = background

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, on the loop."""
        for event in events:
            live = self._registry.find(event.agent) if event.kind == NEWS else None
            if live is not None and live.is_running and live.agent.run == event.data.get("run"):
                self._background.begin(self._send(event), f"git news of {event.agent}")

    async def _send(self, event: Event) -> None:
        key = f"{event.agent}:{event.data['run']}:{event.data['text']}"
        number = hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()[:12]
        text = f"About your commits: {event.data['text']}"
        await self._delivery.send(
            Message(
                id=f"m-{number}",
                sender=BULLPEN,
                to=event.agent,
                text=text,
                quotes=True,
                created=time.time(),
            )
        )
