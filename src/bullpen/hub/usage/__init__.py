"""What agents use: telemetry read and counted, budgets kept, rate limits waited for.

Called by the API (telemetry, hooks, reports) and by the feed of events. Stops what goes over its
budget by telling the agent. Must not start agents or change their sessions.
"""
