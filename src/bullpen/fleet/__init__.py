"""Many machines as one team: what hubs say to each other over NATS.

Owns keys and credentials of hosts, the server's configuration, presence, requests that are carried
from one hub to another, and the records of mail, tasks and bundles at the server. Called by
`hub/fleet` and the rooms `hub/fleet_*` when `config.yaml` has `fleet:`, by `bullpen fleet` and by
`doctor`. Must not be imported otherwise: one machine does not pay for it. Knows no route.
"""
