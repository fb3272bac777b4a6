"""`bullpen mcp`: offers the hub's tools to an agent's program. See `hot/mcp_relay.py`."""

import click


@click.command()
@click.argument("socket")
def command(socket: str) -> None:
    """Offer an agent's tools on standard input and output, for a program that speaks MCP.

    SOCKET is that agent's own: <home>/sessions/NAME/api/hub.sock."""
    from bullpen.hot.mcp_relay import run

    raise SystemExit(run([socket]))
