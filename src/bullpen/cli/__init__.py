"""The `bullpen` command. `main` is the table of verbs, `commands/` holds a file per verb.

Asks the hub with the calls of `bullpen.client`; prints with `output`. Never imports `bullpen.hub`.
The text of what only reads from the hub (`list`, `status`, `explain`, `inbox`, `usage`, `tasks`,
`history`, `peek`) is the hub's: `hub/render`.
"""
