"""The landing queue: agents' branches are built on their targets, verified, and the targets moved.

One queue per repository and target branch. Called by `http/landings` and by who merges children.
Rules are in `model/landing`, work on git in `worktrees/landing`. Never lands by itself.
"""
