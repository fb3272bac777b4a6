"""Whose work an entry is: whether an agent has that name, and whether it runs. Looks; tells nobody.

Used by `queue` and `round`. Of an agent on another machine it is what that machine told last.
"""

from collections.abc import Callable
from dataclasses import dataclass

from bullpen.hub.agents.registry import Registry
from bullpen.model.fleet_child import RemoteChild
from bullpen.model.landing import CameBack, Landing
from bullpen.model.tree import is_elsewhere


@dataclass(frozen=True)
class Authors:
    """The authors of all entries of one hub."""

    registry: Registry
    find_elsewhere: Callable[[str], RemoteChild | None]

    def is_agent(self, landing: Landing) -> bool:
        """Else nobody answers but the person."""
        return is_elsewhere(landing.name) or self.registry.find(landing.name) is not None

    def is_running(self, landing: Landing) -> bool:
        """Else what it is told waits for it."""
        if is_elsewhere(landing.name):
            child = self.find_elsewhere(landing.name)
            return child is not None and child.is_living
        live = self.registry.find(landing.name)
        return live is not None and live.is_running

    def as_now(self, landing: Landing) -> Landing:
        """For whoever looks at it: an author may have been stopped or started since it came
        back."""
        if not isinstance(landing.status, CameBack):
            return landing
        fields = {"is_agent_running": self.is_running(landing)}
        return landing.model_copy(update={"status": landing.status.model_copy(update=fields)})
