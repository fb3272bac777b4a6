"""`agent_url`: the address of an agent as a name for it. No address is ever connected to.

V3 lets a page name an agent by where it serves. That is looked up among what this home's hub says
of its own agents, letter by letter; the request then goes to the hub. Anything else is no agent.
"""

from bullpen.client import AsyncHub
from bullpen.client.agents import list_agents
from bullpen.client.status import get_status
from bullpen.client.task_agents import get_agent_config
from bullpen.component.ports import LOOPBACK
from bullpen.errors import BullpenError, Kind


async def agent_at(hub: AsyncHub, agent_url: object) -> str:
    """The name of the agent with that address."""
    if isinstance(agent_url, str):
        given = agent_url.removesuffix("/")
        agents = [
            one.name for one in (await hub.do(list_agents())).agents if one.kind == "headless"
        ]
        port = (await hub.do(get_status())).port
        for name in agents:
            if given == f"http://{LOOPBACK}:{port}/agents/{name}":
                return name
        for name in agents:
            own = (await hub.do(get_agent_config(name))).config.get("port")
            if own and given == f"http://{LOOPBACK}:{own}":
                return name
    raise BullpenError(
        f"no agent of this home is at {str(agent_url)[:100]!r}",
        hint="agent_url is the address of an agent that takes tasks: see /api/agents",
        kind=Kind.NOT_FOUND,
    )
