"""The public Python client: `from bullpen.client import AsyncHub, agents`.

Calls as values in a module per noun, `Hub` and `AsyncHub` that run them (imported when first used:
hooks of agents come through this file), and parts for commands and programs of users: `shell`,
`follow_task`, `holder` (one terminal), `start` (a hub), `processes` and `last_known` (of a home,
without its hub). Must not print, nor know what a command is.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bullpen.client.async_hub import AsyncHub
    from bullpen.client.hub import Hub

__all__ = ["AsyncHub", "Hub"]


def __getattr__(name: str) -> object:
    if name == "AsyncHub":
        from bullpen.client.async_hub import AsyncHub

        return AsyncHub
    if name == "Hub":
        from bullpen.client.hub import Hub

        return Hub
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
