"""Stops agents: records the intent, ends the agent as its kind does (`kinds`), and returns when its
end is recorded.

Called by the routes, by `launch` before a restart, and by pods that are taken back.
"""

from bullpen.errors import BullpenError
from bullpen.hub.agents.kinds import Kinds
from bullpen.hub.agents.observe import Observer, draft
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.context import HubContext


class Stopper:
    """Ends what `start` began."""

    def __init__(
        self, context: HubContext, registry: Registry, observer: Observer, kinds: Kinds
    ) -> None:
        self._context = context
        self._registry = registry
        self._observer = observer
        self._kinds = kinds

    async def stop(self, name: str, grace: float | None) -> LiveAgent:
        """End the agent; returns when it is over and recorded."""
        live = self._registry.get(name)
        async with live.lock:  # a start under way comes first; a stop under way does not:
            pass  # a second one may shorten the grace of the first
        if live.is_running:
            seconds = self._context.settings.stop_grace.total_seconds() if grace is None else grace
            await note_stopping(self._observer, live, seconds)
            await self._kinds[live.agent.kind].stop(live, seconds)
        return live


async def note_stopping(observer: Observer, live: LiveAgent, seconds: float) -> None:
    """Record that the agent is being stopped, before it is."""
    live.is_stopping = True
    intent = draft("agent.stopping", live.agent, {"grace": seconds})
    try:
        await observer.record(intent)
    except BullpenError:  # a full disk is a reason to stop somebody, not to go on
        observer.surely(intent)
