"""The server of tools: the SDK's, with those of the modules that are called after them.

Loaded by `endpoint`, which says who may come in. Stateless: nothing of a client is remembered, so
nothing is lost with a hub.
"""

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from bullpen import __version__
from bullpen.errors import BullpenError, Kind
from bullpen.hub.mcp import family_tools, landing_tools, task_tools, team_tools
from bullpen.hub.mcp.arguments import as_text, describe, find_unknown, given
from bullpen.hub.mcp.caller import caller_of
from bullpen.hub.mcp.hints import hint_for_agent
from bullpen.hub.parts import Hub
from bullpen.model.event import Draft
from bullpen.suggest import did_you_mean

log = logging.getLogger("bullpen.hub")

INSTRUCTIONS = """\
You are one agent of a team that Bullpen runs. With these tools you start agents of your own, wait \
for what they do, report to the agent that started you, and write to others.

Give work to others with spawn_subtree (own worktree and branch) or spawn_workers (same directory \
as you), then call wait_for_event until each has reported, and take a subtree's work with \
merge_child. If an agent started you, call notify_parent once when your task is done or cannot be \
done. If a call fails because a connection broke, call again: nothing is done twice and nothing \
is lost."""


class _PlainServer(MCPServer[Any]):
    """The SDK's, which says in plain words what is wrong with a call."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        schemas = {tool.name: tool.input_schema for tool in await self.list_tools()}
        if name not in schemas:
            raise ToolError(f"no tool called {name}{did_you_mean(name, schemas)}")
        own = given(arguments)
        unknown = find_unknown(name, schemas[name], own)
        if unknown:
            raise ToolError(as_text(unknown))
        try:
            return await super().call_tool(name, own, context)
        except UnexpectedToolError:
            raise
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            lines = describe(name, schemas[name], error.__cause__.errors())
            raise ToolError(as_text(lines)) from None


class ToolServer:
    """The one server object of a hub."""

    def __init__(self, hub: Hub) -> None:
        logging.getLogger("mcp").setLevel(logging.WARNING)
        self._mcp = _PlainServer(
            "bullpen",
            instructions=INSTRUCTIONS,
            version=__version__,
            log_level="ERROR",
            # The tools never change, and a client would wait for the stream that says so.
            subscriptions=False,
        )
        for module in (family_tools, landing_tools, team_tools, task_tools):
            for tool in module.TOOLS:
                self._add(hub, tool)
        # The guard of the API has looked at the Host, and a Unix socket has none.
        trusted = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        self._mcp.streamable_http_app(
            stateless_http=True, json_response=True, transport_security=trusted
        )

    def _add(self, hub: Hub, tool: Callable[..., Awaitable[str]]) -> None:
        """A tool is a function of the hub, the call's context and the arguments; its text is what
        models read."""
        is_reading = tool.__name__ in READING
        self._mcp.tool(
            structured_output=False, annotations=ToolAnnotations(read_only_hint=is_reading)
        )(_bound(hub, tool))

    async def run(self, ready: asyncio.Event) -> None:
        """Until it is cancelled."""
        async with self._mcp.session_manager.run():
            ready.set()
            await asyncio.Event().wait()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, which was let in."""
        await self._mcp.session_manager.handle_request(scope, receive, send)


READING = {"wait_for_event", "read_messages", "list_agents", "agent_status", "agent_diff"} | {
    "task_status",
    "task_diff",
}


async def _note_refusal(hub: Hub, context: Context[Any], tool: str, why: str) -> None:
    """What an agent tried that is not its to do: for the person, who reads `history`."""
    agent = caller_of(hub, context).live.agent
    try:
        hub.quotas.spend(agent.name, {"messages": 1})
    except BullpenError:
        return  # it has been noted often enough
    log.warning("a tool was refused", extra={"agent": agent.name, "tool": tool, "why": why})
    data = {"run": agent.run, "what": tool, "why": why}
    await hub.store.append(Draft(time.time(), "child.refused", agent.name, data))


def _bound(hub: Hub, tool: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
    """Without its first argument, and with errors as a model reads them."""

    async def call(*words: Any, **arguments: Any) -> str:
        try:
            return await tool(hub, *words, **arguments)
        except BullpenError as error:
            if error.kind is Kind.DENIED:
                context = arguments["ctx"] if "ctx" in arguments else words[0]
                await _note_refusal(hub, context, tool.__name__, error.message)
            parts = [error.message, hint_for_agent(error.hint)]
            raise ToolError(" · ".join(filter(None, parts))) from error

    functools.update_wrapper(call, tool)
    del call.__wrapped__  # type: ignore[attr-defined]
    call.__annotations__ = {
        name: kind for name, kind in tool.__annotations__.items() if name != "hub"
    }
    import inspect

    signature = inspect.signature(tool)
    parameters = [each for each in signature.parameters.values() if each.name != "hub"]
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call


__all__ = ["Context", "ToolServer"]
