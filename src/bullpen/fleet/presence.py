"""Who is there: two keys of each host in a bucket of the server.

`live` has a short life and is said again all the time, so it is gone soon after its host; it names
the hub that says it, so that a second one with the same key is told that there is one. `state`
(labels, agents) is said when it changes and every half a minute, and stays: when it was said last
is what is known of the time at which a host died. A host with `state` alone cannot be
reached: nobody knows whether it is dead. One that leaves takes both away, one whose hub is stopped
its `live`. Called by `link`.
Reading is one request for all keys of a kind: nobody watches, because traffic would grow with the
square.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

from bullpen.errors import BullpenError, Kind
from bullpen.fleet.direct_get import Entry, read_messages
from bullpen.fleet.subjects import BUCKET, KINDS, STREAM, key
from bullpen.model.fleet import Host, HostState

if TYPE_CHECKING:
    from nats.aio.client import Client

LIVE_SECONDS = 6.0
BEAT_SECONDS = 2.0
SAY_AGAIN_SECONDS = 30.0
ANSWER_SECONDS = 5.0
LOOK_AGAIN_SECONDS = 0.2
EXPECTED_REVISION = "Nats-Expected-Last-Subject-Sequence"
CLUSTER_COPIES = 3
KEPT_SECONDS = 7 * 86400.0  # of what a host said that is gone
CLOCKS_DIFFER_SECONDS = 10.0


class NameTakenError(BullpenError):
    """Another hub is there under the same name."""


def copies(client: "Client") -> int:
    """Of what the server keeps: in a cluster one that dies is no loss."""
    return CLUSTER_COPIES if client._server_info.get("cluster") else 1


async def make_bucket(client: "Client") -> None:
    """Unless it is there."""
    from nats.js.api import DiscardPolicy, StreamConfig

    await client.jetstream().add_stream(
        StreamConfig(
            name=STREAM,
            subjects=[f"$KV.{BUCKET}.>"],
            max_msgs_per_subject=1,
            discard=DiscardPolicy.NEW,
            deny_delete=True,
            allow_rollup_hdrs=False,  # or one host could purge what all have said
            allow_direct=True,
            allow_msg_ttl=True,
            num_replicas=copies(client),
        )
    )


async def say_live(client: "Client", host: str, life: str) -> None:
    """This hub is there, for the next seconds; NameTakenError if another one is."""
    expected = {EXPECTED_REVISION: str(await check_name(client, host, life))}
    # `put` would make the key live for ever: only a publish takes a life.
    await client.jetstream().publish(
        key("live", host), life.encode(), ANSWER_SECONDS, headers=expected, msg_ttl=LIVE_SECONDS
    )


async def check_name(client: "Client", host: str, life: str) -> int:
    """The revision of the host's `live`; NameTakenError if it is another hub's."""
    live = await _read_live(client, host)
    if live.data not in (None, life.encode()):
        raise _name_taken(host, ", or a hub with it was killed just now")
    return live.revision


async def wait_until_free(client: "Client", host: str) -> None:
    """Until no hub is that host. One that was killed seems to be for some seconds; NameTakenError
    as soon as another one is seen to live."""
    first = await _read_live(client, host)
    async with asyncio.timeout(LIVE_SECONDS * 2):
        live = first
        while live.data is not None:
            if live.revision != first.revision:
                raise _name_taken(host)
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            live = await _read_live(client, host)


async def _read_live(client: "Client", host: str) -> Entry:
    """The host's last beat; without data if it is not there."""
    return (await _read_keys(client, key("live", host))).get(host, Entry(None, 0))


def _name_taken(host: str, or_what: str = "") -> NameTakenError:
    return NameTakenError(
        f"another machine uses this key of {host}{or_what}",
        hint="each machine needs a key of its own: bullpen fleet key HOST",
        kind=Kind.CONFLICT,
    )


async def say_state(client: "Client", state: HostState) -> None:
    """What a host says of itself, until it says otherwise."""
    data = state.model_dump_json().encode()
    await client.jetstream().publish(
        key("state", state.name), data, ANSWER_SECONDS, msg_ttl=KEPT_SECONDS
    )


async def leave(client: "Client", host: str, *, is_forgotten: bool = True) -> None:
    """Take both keys away; or `live` alone: the host is not there, and one of the fleet still."""
    gone = {"KV-Operation": "DEL"}
    for kind in KINDS if is_forgotten else ("live",):
        await client.jetstream().publish(key(kind, host), b"", 1.0, headers=gone, msg_ttl=1.0)


async def read_hosts(client: "Client") -> list[Host]:
    """All hosts, in the order of their names."""
    live = await _read_keys(client, key("live", "*"))
    states = await _read_keys(client, key("state", "*"))
    return hosts_at(time.time(), live, states)


def hosts_at(now: float, live: Mapping[str, Entry], states: Mapping[str, Entry]) -> list[Host]:
    """What these keys say at that time by the reader's clock. Each host has a clock of its own, and
    so has the server: what was said last counts as said now, all else as long before as the server
    has it. Pure."""
    newest = max((entry.time for entry in (*live.values(), *states.values())), default=0.0)
    hosts = []
    for name, entry in sorted(states.items()):
        state = _parse(entry.data) if entry.data is not None else None
        if state is None or state.name != name:
            continue
        said_at = now - (newest - entry.time)
        beat = live.get(name)
        is_live = beat is not None and beat.data is not None
        last_heard = max(said_at, now - (newest - beat.time)) if beat is not None else said_at
        hosts.append(
            Host(state=_by_clock(state, said_at), reachable=is_live, last_heard=last_heard)
        )
    return hosts


def _by_clock(state: HostState, said_at: float) -> HostState:
    """Its times as the reader's clock has them, if the host's is wrong."""
    ahead = state.at - said_at
    if abs(ahead) < CLOCKS_DIFFER_SECONDS:
        return state
    agents = (agent.model_copy(update={"since": agent.since - ahead}) for agent in state.agents)
    return state.model_copy(update={"at": said_at, "agents": tuple(agents)})


async def is_known(client: "Client", host: str) -> bool:
    """Whether a host of that name has said something of itself lately. One key is read: this is
    asked for every message that is written to another host."""
    data = (await _read_data(client, key("state", host))).get(host)
    return data is not None and (state := _parse(data)) is not None and state.name == host


async def _read_data(client: "Client", keys: str) -> dict[str, bytes]:
    entries = await _read_keys(client, keys)
    return {host: entry.data for host, entry in entries.items() if entry.data is not None}


async def _read_keys(client: "Client", keys: str) -> dict[str, Entry]:
    """The newest entry of each of these keys, by host. The server lists at most 1,024."""
    entries: dict[str, Entry] = {}
    query = {"multi_last": [keys]}
    async for subject, entry in read_messages(client, STREAM, query, ANSWER_SECONDS):
        entries[subject.rpartition(".")[2]] = entry
    return entries


def _parse(data: bytes) -> HostState | None:
    """What a host said; None if that makes no sense, which only it is to blame for."""
    try:
        return HostState.model_validate_json(data)
    except ValidationError:
        return None
