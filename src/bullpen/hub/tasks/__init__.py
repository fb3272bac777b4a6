"""Tasks: queued (`queue`), driven run by run (`driver`), stored (`rows`), shown live (`stream`).

Called by the API. `model/task_moves` decides which state follows, `board` stores it. Also task
agents, which take tasks without a terminal: `agents`, `agent_config`, `agent_log`, `agent_status`,
`autostart`, `engine_check`, `ports`. Must not know how a holder or an engine works inside.
"""
