"""The hub's side of holders: the factory that forks them, their sockets, the files they leave.

Called by `hub/agents`, `hub/tasks` and `hub/adopt`. Speaks docs/holder-protocol.md.
Must not decide what an agent's end means, nor write to the database.
"""
