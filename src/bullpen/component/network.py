"""Whom an address belongs to, where people are told apart by it. Pure."""

from ipaddress import IPv6Address, ip_address


def network_of(address: str) -> str:
    """One customer of a provider has a whole /64 of IPv6."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return str(IPv6Address(int(parsed) >> 64 << 64))
    return str(parsed)
