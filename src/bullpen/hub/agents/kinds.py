"""The two kinds of agents: programs in terminals, and task agents. What is different between them
stands behind one table, `Kinds`.

The table is made in `parts`: `terminals.Terminals` and `tasks.agents.TaskAgents`. Called by
`launch`, `start`, `stop`, `gc` and `adopt`, which do what is the same for both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from bullpen.hub.agents.plan import Plan
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.agents.sessions import LaunchEnv
from bullpen.model.agent import Agent, KindName
from bullpen.model.launch import Launch


@dataclass(frozen=True)
class Description:
    """A running agent, for whoever wants to start another one under its name."""

    message: str
    hint: str


class AgentKind(Protocol):
    """What happens to agents of one kind."""

    def plan(self, request: Launch, name: str, last: Agent | None) -> Plan:
        """The plan for that request; `last` is what ran under the name before. Reads the disk."""
        ...

    def plan_again(self, last: Agent, launch_env: LaunchEnv) -> Plan:
        """The plan for the same agent once more. Reads the disk."""
        ...

    async def start(self, plan: Plan, live: LiveAgent) -> None:
        """Start it. Its session is written, and it is recorded as starting. Returns when it is
        recorded as started; raises if it cannot start."""
        ...

    async def take_back(self, plan: Plan, live: LiveAgent) -> None:
        """Its start has failed, or was cancelled: end what it began. Never raises."""
        ...

    async def asked_again(self, request: Launch, live: LiveAgent) -> None:
        """It runs, and its start is asked for once more: do what a killed hub did not come to."""
        ...

    async def stop(self, live: LiveAgent, seconds: float) -> None:
        """End it; what does not end by itself in that time is killed. Returns when its end is
        recorded."""
        ...

    async def adopt(self, live: LiveAgent) -> None:
        """An earlier hub started it: find out what is true, and look after it."""
        ...

    def describe(self, live: LiveAgent) -> Description:
        """Why nobody else can have its name."""
        ...

    def reason_to_keep(self, agent: Agent) -> str:
        """Why its session must stay after its end; empty if it may go. Reads the disk."""
        ...


Kinds = Mapping[KindName, AgentKind]
