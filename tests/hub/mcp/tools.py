"""What clients of the tools share: their names, and how an agent's relay is started."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

import bullpen
from bullpen.hot.hook_line import mcp_line
from tests.hub.tree.support import Grove

PACKAGE = str(Path(bullpen.__file__).parents[1])
TOOLS = {
    *("spawn_subtree", "spawn_workers", "notify_parent", "wait_for_event", "merge_child"),
    *("send_message", "read_messages", "list_agents", "agent_status", "agent_diff"),
    *("delegate_task", "task_status", "task_diff", "merge_task", "cancel_task"),
}


def line_of(grove: Grove, agent: str) -> list[str]:
    """What an engine is told to start."""
    socket = grove.pen.session(agent) / "api" / "hub.sock"
    return mcp_line(sys.executable, PACKAGE, str(socket))


@asynccontextmanager
async def session_of(grove: Grove, agent: str) -> AsyncIterator[ClientSession]:
    """The SDK's own client, over the agent's relay."""
    words = line_of(grove, agent)
    server = StdioServerParameters(command=words[0], args=words[1:])
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield session
