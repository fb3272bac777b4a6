"""The tree of agents: starting children, what they owe their parents, the queues of events, and
what becomes of children whose parent ends.

Called by `hub/mcp` (tools of agents), the routes, and the parts' list. Must not write messages or
count money: `messages` and `usage` stand above it, and are handed in where it needs them.
"""
