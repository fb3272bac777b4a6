"""The hub's part of sandboxes: the policy of an agent, its API socket, its tunnel to the model.

Called by `hub/agents` and `hub/tasks` before a start and after an end.
Must not build the sandbox itself: `sandboxes` does.
"""
