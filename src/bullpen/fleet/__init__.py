"""Many machines as one team: what hubs say to each other over NATS.

Owns keys and credentials of hosts, the server's configuration, presence, and requests that are
carried from one hub to another. Called by `hub/fleet` when `config.yaml` has `fleet:`, and by
`bullpen fleet`. Must not be imported otherwise: one machine does not pay for it. Knows no route.
"""
