"""The database `state.db`: one writer, readers beside it, the event log and its live feed.

Called by all parts of the hub: `store.read` and `store.write` with a function, `store.append` with
events. A room's own tables are written by that room. Must not know what an event or a row means.
"""
