"""Tells the person that an agent could not go on with its conversation when it was started again.

A part of `parts`. `agents/launch` records the event; the command that restarted the agent says the
same, but a restart by itself (`restart` of a role) has no command. Changes no agent.
"""

import hashlib
from collections.abc import Iterable

from bullpen.hub.background import Background
from bullpen.hub.messages.deliver import Delivery
from bullpen.model.event import Event
from bullpen.model.message import BULLPEN, ROOT, Message


class LostConversations:
    """One message for every such event."""

    def __init__(self, delivery: Delivery, background: Background) -> None:
        self._delivery = delivery
        self._background = background

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, on the loop."""
        for event in events:
            if event.kind == "agent.conversation_lost":
                self._background.begin(self._tell(event), f"lost conversation of {event.agent}")

    async def _tell(self, event: Event) -> None:
        lost, run = event.data.get("conversation", ""), event.data.get("run", "")
        number = hashlib.sha256(f"conversation lost:{run}".encode()).hexdigest()[:12]
        text = (
            f"{event.agent} was started again and knows nothing of before: the transcript of its"
            f" conversation {lost} is gone. A new one has begun."
        )
        await self._delivery.send(
            Message(id=f"m-{number}", sender=BULLPEN, to=ROOT, text=text, created=event.time)
        )
