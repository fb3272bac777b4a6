"""The private git of a sandboxed agent: made for one worktree, brought over, told of what changed.

Owns the stores in `<common>/bullpen/private/`. Called by `sandboxes`, `hub/sandbox` and removals.
Must not read or write what the agent can write: git inside is run in a sandbox (`store.Inside`).
"""
