"""Directors: processes that bring work in by themselves and give it to agents.

Started by `bullpen director` and `bullpen up`. Each is a component (`director`) around one loop
(`loop`), asks the hub by `client.AsyncHub` with a token of its own, and remembers in one file
(`memory`). Must not import the hub, and must not use the owner's token.
"""
