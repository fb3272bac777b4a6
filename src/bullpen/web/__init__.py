"""The web view: one page for people, over TLS, also from other machines.

Started by `bullpen web`. Asks the hub by `client.AsyncHub` alone, and stores nothing but its
config, its certificates and its token. The page itself is in `frontend`, built into `static`. Must
not import the hub, and must not connect to an address that a request names.
"""
