"""The names and addresses that this machine is reached by. Asks the system, no server.

Called by `web/certificate` (what it is good for), `web/guard` (which Host is ours) and `--qr`.
"""

import re
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

import ifaddr

Address = IPv4Address | IPv6Address

LOOPBACK: tuple[Address, ...] = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
PLAIN = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
TUNNELS = ("docker", "br-", "veth", "virbr")  # networks of containers: nobody's phone is there


def host_names() -> tuple[str, ...]:
    """`localhost` first, then this machine's own name, and how others on the network find it."""
    own = socket.gethostname().lower().rstrip(".")
    if PLAIN.fullmatch(own) is None or ip_like(own):
        return ("localhost",)
    short = own.partition(".")[0]
    return tuple(dict.fromkeys(("localhost", own, short, f"{short}.local")))


def addresses() -> tuple[Address, ...]:
    """Of its network cards, loopback first; without link-local ones."""
    own: list[Address] = list(LOOPBACK)
    for adapter in ifaddr.get_adapters():
        if adapter.name.startswith(TUNNELS):
            continue
        for each in adapter.ips:
            address = ip_address(each.ip if isinstance(each.ip, str) else each.ip[0])
            if not address.is_link_local and not address.is_loopback and address not in own:
                own.append(address)
    return tuple(own)


def network_address() -> Address:
    """What a phone on the same network uses: the first of IPv4, else loopback."""
    others = [one for one in addresses() if one.version == 4 and not one.is_loopback]
    return others[0] if others else LOOPBACK[0]


def ip_like(host: str) -> bool:
    """Whether it is an address, and no name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
