"""The tools that agents have: one server of the official MCP SDK for all of them.

Served by `endpoint` at `/agents/{name}/mcp`, reached by engines through `hot/mcp_relay`. Who calls
is what the credential of the request says, never an argument. The SDK is loaded when the first
agent with tools starts: nothing outside of this package imports it. A tool must not do more than
the API would do for that agent.
"""
