"""Puts a `message` event into the queue of an agent that waits for events: it is told at once that
somebody wrote, though its turn goes on.

A part of the hub, and called when a wait begins. The event says who wrote; the agent fetches the
text. Once per message, whoever looks.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from bullpen.hub.agents.registry import Registry
from bullpen.hub.background import Background
from bullpen.hub.messages.box import Messages
from bullpen.hub.tree.queue import NewEvent, Queue, Receiver
from bullpen.model.event import Event


class MailEvents:
    """Of one hub."""

    def __init__(
        self, registry: Registry, messages: Messages, queue: Queue, background: Background
    ) -> None:
        self._registry = registry
        self._messages = messages
        self._queue = queue
        self._background = background

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, on the loop."""
        for event in events:
            if event.kind == "message.sent" and self._queue.is_waiting(event.agent):
                # By the event: the box does not know of it yet.
                work = self._put(event.agent, event.data["from"], event.data)
                self._background.begin(work, f"mail of {event.agent}")

    async def look(self, name: str) -> None:
        """Tell it of every message that is on its way to it."""
        for message in self._messages.queue(name):
            await self._put(name, message.sender, message.model_dump())

    async def _put(self, name: str, sender: str, message: Mapping[str, Any]) -> None:
        live = self._registry.find(name)
        if live is None:
            return
        to, id = Receiver(name, live.agent.created), message["id"]
        data = {"id": id, "priority": message["priority"], "read_with": "read_messages"}
        await self._queue.put(NewEvent(to, "message", sender, data, f"message:{id}"))
