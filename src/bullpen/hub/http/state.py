"""How a route gets the parts of the hub that serves it."""

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from bullpen.hub.parts import Hub


async def hub_of(connection: HTTPConnection) -> Hub:
    """The hub that serves this request."""
    hub: Hub = connection.app.state.hub
    return hub


HubPart = Annotated[Hub, Depends(hub_of)]
