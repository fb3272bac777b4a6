"""Announces and finds components by mDNS, for homes with `discovery.method: mdns`.

Called by `hub/main`, `hub/tasks/agents`, `component/server` and `discover`. An announcement has the
type, name, version and port of a component, not its state, and no credential. Anybody on the
network can make one: it is a description, and commands nobody. Components listen on loopback, so
they are announced there alone: nothing goes out to a network from which they cannot be reached.
The library is loaded by the functions, not by the import of this module.
"""

import asyncio
import contextlib
import logging
import re
import socket
import time
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, get_args

from bullpen.component.discovery import TEXT_CHARACTERS, DiscoveredComponent
from bullpen.component.ports import LOOPBACK
from bullpen.model.component import Interface, PublicStatus, Type

if TYPE_CHECKING:
    from zeroconf import ServiceInfo

log = logging.getLogger("bullpen.mdns")

SERVICE = "_bullpen._tcp.local."
LISTEN_SECONDS = 1.0
ANSWER_SECONDS = 1.0
MOST = 200  # announcements that are looked at; a flood of them costs no more
LABEL_BYTES = 63
ID_CHARACTERS = 8
NO_NETWORK = (OSError, RuntimeError)  # the latter is the library's word for no interface at all


def text_of(status: PublicStatus) -> dict[str, str]:
    """What the announcement says."""
    return {
        "type": status.type,
        "name": status.name,
        "interfaces": ",".join(status.interfaces),
        "version": status.version,
        "home": status.home_id,
    }


def instance_of(status: PublicStatus) -> str:
    """Its name on the network: homes may have components of the same name."""
    tail = f"-{status.type}-{status.home_id[:ID_CHARACTERS]}"
    return status.name.encode()[: LABEL_BYTES - len(tail)].decode(errors="ignore") + tail


def parse(
    port: int | None, address: str, text: dict[bytes, bytes | None]
) -> DiscoveredComponent | None:
    """The component of an announcement; None for one that is not ours or malformed."""
    fields = {
        key.decode("latin-1"): value.decode("utf-8", "replace")
        for key, value in text.items()
        if value is not None
    }
    interfaces = tuple(filter(None, fields.get("interfaces", "").split(",")))
    texts = [fields.get(key, "") for key in ("name", "version", "home")]
    is_sensible = (
        port is not None
        and 0 < port < 1 << 16
        and fields.get("type") in get_args(Type)
        and set(interfaces) <= set(get_args(Interface))
        and all(0 < len(one) <= TEXT_CHARACTERS and one.isprintable() for one in texts)
    )
    if not is_sensible or port is None:
        return None
    name, version, home_id = texts
    return DiscoveredComponent(
        port, fields["type"], name, version, None, interfaces, home_id, address
    )


@contextlib.asynccontextmanager
async def announced(status: PublicStatus, port: int) -> AsyncIterator[None]:
    """Announce the component for as long as this lasts; its end is announced, too."""
    from zeroconf import IPVersion, ServiceInfo
    from zeroconf.asyncio import AsyncZeroconf

    network = AsyncZeroconf(interfaces=[LOOPBACK], ip_version=IPVersion.V4Only)
    label = instance_of(status)
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:40] or "host"
    info = ServiceInfo(
        SERVICE,
        f"{label}.{SERVICE}",
        port=port,
        properties=text_of(status),
        server=f"{host}-{status.home_id[:ID_CHARACTERS]}.local.",
        parsed_addresses=[LOOPBACK],
    )
    try:
        await network.async_register_service(info, allow_name_change=True)
        yield
    finally:
        await network.async_unregister_all_services()
        await network.async_close()


async def announce(status: PublicStatus, port: int) -> None:
    """The same until this is cancelled. Without a network there is only a line in the log."""
    try:
        async with announced(status, port):
            await asyncio.Event().wait()
    except NO_NETWORK as error:
        log.warning("cannot be announced by mDNS", extra={"reason": str(error)})


def find(seconds: float = LISTEN_SECONDS) -> list[DiscoveredComponent]:
    """The components announced within the time, here or on any network of this machine."""
    from zeroconf import ServiceBrowser, ServiceStateChange, Zeroconf

    names: dict[str, None] = {}

    def heard(zeroconf: Any, service_type: str, name: str, state_change: Any) -> None:
        del zeroconf, service_type
        if state_change is ServiceStateChange.Added and len(names) < MOST:
            names[name] = None

    try:
        network = Zeroconf()
    except NO_NETWORK as error:
        log.warning("cannot listen for mDNS", extra={"reason": str(error)})
        return []
    try:
        browser = ServiceBrowser(network, SERVICE, handlers=[heard])
        time.sleep(seconds)  # there is no end of announcements to wait for
        browser.cancel()
        deadline = time.monotonic() + ANSWER_SECONDS
        infos = []
        for name in list(names):
            left = max(0.001, deadline - time.monotonic())
            infos.append(network.get_service_info(SERVICE, name, timeout=int(left * 1000)))
    finally:
        network.close()
    return list(_parse_all(info for info in infos if info is not None))


def _parse_all(infos: "Iterable[ServiceInfo]") -> Iterable[DiscoveredComponent]:
    ours = _addresses()
    for info in infos:
        addresses = info.parsed_addresses()
        address = LOOPBACK if ours.intersection(addresses) else next(iter(addresses), "")
        component = parse(info.port, address, dict(info.properties))
        if component is not None:
            yield component


def _addresses() -> set[str]:
    """The addresses of this machine."""
    import ifaddr

    return {str(one.ip) for adapter in ifaddr.get_adapters() for one in adapter.ips if one.is_IPv4}
