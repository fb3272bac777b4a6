"""Permission requests of agents: rules, the reviewer, and approvals that wait for a person.

Called by the API when an engine's hook asks (`flow`), and when a person answers (`approvals`).
Fails closed: nothing is allowed by default, by time or by error.
"""
