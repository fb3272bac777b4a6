"""What everything that serves has in common: HTTP server, life cycle, log, discovery.

Called by the hub, by `web` and by commands that look for components. `process`, `server`, `routes`,
`register` and `watcher` are for directors, views and bridges, which ask the hub by `client`. Must
not import the hub, nor know what any one component does.
"""
