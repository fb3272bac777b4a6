"""The daemon of one home: API, agents, tasks, messages, approvals, events.

One room per noun; `main` starts it. Reached by its API only: no other package imports it.
Must not own a program: holders do, so that agents outlive the hub.
"""
