"""Agents: plan, start, watch and stop them; their sessions, hooks, states, worktrees, clean-up.

Called by the routes of `hub/http`, by pods, tasks and messages, and by `hub/adopt`.
Must not know tasks, messages or permissions: those rooms are above and call this one.
"""
