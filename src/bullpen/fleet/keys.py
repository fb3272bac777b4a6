"""The directory from which a fleet is run: its own key, its hosts, the server's configuration.

Called by `bullpen fleet key`. `nats.conf` is written anew from what is known, never read. A server
that runs is told to read it again: a key that was taken back counts no longer, and its connection
is closed. A server may refuse the whole of it, and says so in its log alone (it does if `listen` is
not as it was at its start): so each `nats.conf` has a key that nobody else has, and the server
is tried with that. With the same key it is told to forget the hosts whose keys were taken back.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from bullpen.errors import BullpenError, Kind
from bullpen.files import locked, write_atomically
from bullpen.fleet.credential import Credential, issue
from bullpen.fleet.nkeys import Signer, make_seed
from bullpen.fleet.server_certificate import ensure_certificate
from bullpen.fleet.subjects import (
    KINDS,
    inbox,
    key,
    may_publish,
    may_subscribe,
    queue_may_publish,
    queue_may_subscribe,
)
from bullpen.home.paths import short_path
from bullpen.home.settings import HOST_NAME

LISTEN = "127.0.0.1:4222"
ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}")
ALL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
TAKEN_SECONDS = 10.0
TRY_AGAIN_SECONDS = 0.1
PROBE = "fleet-key"


@dataclass(frozen=True)
class Fleet:
    """What the server has to know: where it listens, and the public keys of each host: its own, and
    the one for tasks. A key of before knows no tasks."""

    listen: str = LISTEN
    hosts: dict[str, str] = field(default_factory=dict)
    queue: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Made:
    """What `bullpen fleet key` has done. `files` are the keys that were made, by host; `port` is
    where the server listens. `server`:
    whether one that runs here has taken it over; `none` runs here."""

    config: Path
    files: dict[str, Path]
    port: str
    server: Literal["told", "refused", "none"]


def change(
    directory: Path, *, add: list[str], revoke: list[str], listen: str | None = None
) -> Made:
    """Give keys to new hosts, take those of others back, write the configuration."""
    directory = directory.absolute()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(directory):
        fleet = _load(directory)
        _check(fleet, add, revoke, listen)
        write_atomically(directory / ".gitignore", "*\n")  # whoever has a key has every machine
        authority, certificate = _authority(directory), ensure_certificate(directory)
        hosts = {name: public for name, public in fleet.hosts.items() if name not in revoke}
        queue = {name: public for name, public in fleet.queue.items() if name not in revoke}
        files: dict[str, Path] = {}
        for host in add:
            seed = make_seed()
            files[host] = directory / f"{host}.json"
            credential = issue(authority, host, seed, certificate)
            write_atomically(files[host], credential.to_text(), 0o600)
            hosts[host] = Signer(seed).public
            queue[host] = Signer(credential.queue_seed).public
        fleet = replace(fleet, hosts=hosts, queue=queue, listen=listen or fleet.listen)
        write_atomically(directory / "hosts.json", json.dumps(vars(fleet), indent=1) + "\n")
        config = directory / "nats.conf"
        probe = issue(authority, PROBE, make_seed(), certificate)
        text = server_config(fleet, directory, probe.certificate.public, revoke)
        write_atomically(config, text)
        for host in revoke:
            (directory / f"{host}.json").unlink(missing_ok=True)
        port = fleet.listen.rpartition(":")[2]
        if not _tell_server(directory):
            return Made(config, files, port, "none")
        is_taken = asyncio.run(_is_taken(fleet.listen, probe, revoke))
    return Made(config, files, port, "told" if is_taken else "refused")


def server_config(fleet: Fleet, directory: Path, probe: str, gone: Sequence[str] = ()) -> str:
    """`nats.conf`. Pings are short: a link that is cut is noticed in seconds. What the server has
    acknowledged is on disk. TLS comes first: nobody between can leave it out. `probe` may do
    nothing but take away what the hosts that are gone have said of themselves."""
    may_forget = [key(kind, host) for host in gone for kind in KINDS]
    forgets = f"allow: {json.dumps(may_forget)}" if may_forget else 'deny: ">"'
    users = "".join(
        _user(host, public, may_publish(host), may_subscribe(host))
        for host, public in sorted(fleet.hosts.items())
    )
    queue_users = "".join(
        _user(host, public, queue_may_publish(host), queue_may_subscribe(host))
        for host, public in sorted(fleet.queue.items())
    )
    return f"""\
# Written by `bullpen fleet key`, each time anew; for `bullpen fleet serve`, or nats-server -c FILE
listen: {json.dumps(fleet.listen)}
pid_file: {json.dumps(str(directory / "nats.pid"))}
ping_interval: "2s"
ping_max: 2
tls {{
  cert_file: {json.dumps(str(directory / "server.pem"))}
  key_file: {json.dumps(str(directory / "server.key"))}
  handshake_first: true
}}
jetstream {{
  store_dir: {json.dumps(str(directory / "jetstream"))}
  sync_interval: always
}}
accounts {{
  FLEET {{
    jetstream: enabled
    users: [
{users}      {{ nkey: {probe}, permissions: {{  # to try the server with
        publish: {{ {forgets} }}
        subscribe: {{ allow: "{inbox(PROBE)}.>" }}
      }} }}
    ]
  }}
  QUEUE {{
    jetstream: enabled
    users: [
{queue_users}    ]
  }}
}}
"""


def _user(host: str, public: str, may_publish: list[str], may_subscribe: list[str]) -> str:
    publish, subscribe = json.dumps(may_publish), json.dumps(may_subscribe)
    return f"""\
      {{ nkey: {public}, permissions: {{  # {host}
        publish: {{ allow: {publish} }}
        subscribe: {{ allow: {subscribe} }}
      }} }}
"""


def _load(directory: Path) -> Fleet:
    file = directory / "hosts.json"
    try:
        fields = json.loads(file.read_text())
        queue = dict(fields.get("queue", {}))
        return Fleet(str(fields["listen"]), dict(fields["hosts"]), queue)
    except FileNotFoundError:
        if any(directory.iterdir()):
            raise BullpenError(
                f"{short_path(directory)} has other files in it, and no fleet",
                hint="an empty directory, or one that is not there yet: --dir DIR",
                kind=Kind.CONFLICT,
            ) from None
        return Fleet()
    except (ValueError, KeyError, TypeError) as error:
        raise BullpenError(f"{short_path(file)} cannot be read: {error}") from error


def _check(fleet: Fleet, add: list[str], revoke: list[str], listen: str | None) -> None:
    if listen is not None and ADDRESS.fullmatch(listen) is None:
        raise BullpenError(f"--listen: {listen!r} is no ADDRESS:PORT", hint=f"e.g. {LISTEN}")
    for host in (*add, *revoke):
        if HOST_NAME.fullmatch(host) is None:
            raise BullpenError(
                f"{host!r} is no name of a host", hint="small letters, digits and -, at most 32"
            )
    if known := [host for host in add if host in fleet.hosts]:
        host = known[0]
        raise BullpenError(
            f"{host} has a key",
            hint=f"another one: bullpen fleet key --revoke {host} && bullpen fleet key {host}",
            kind=Kind.CONFLICT,
        )
    if unknown := [host for host in revoke if host not in fleet.hosts]:
        raise BullpenError(
            f"{unknown[0]} has no key · hosts: {', '.join(sorted(fleet.hosts)) or 'none'}",
            kind=Kind.NOT_FOUND,
        )


def _authority(directory: Path) -> str:
    file = directory / "authority.seed"
    if not file.exists():
        write_atomically(file, make_seed() + "\n", 0o600)
    return file.read_text().strip()


def find_server(directory: Path) -> int | None:
    """The process of the server that runs here with that directory's `nats.conf`."""
    try:
        pid = int((directory / "nats.pid").read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        stands = Path(f"/proc/{pid}/cwd").resolve()
    except (OSError, ValueError):
        return None
    # The number may be another process's by now.
    config = (directory / "nats.conf").resolve()
    is_server = any((stands / os.fsdecode(word)).resolve() == config for word in words)
    return pid if is_server else None


def _tell_server(directory: Path) -> bool:
    """Whether a server runs here, which is told to read its configuration again."""
    pid = find_server(directory)
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGHUP)
    except (ProcessLookupError, PermissionError):
        return False
    return True


async def _is_taken(listen: str, probe: Credential, gone: Sequence[str]) -> bool:
    """Whether the server lets that key in, which it can know from the new configuration alone. Then
    it forgets these hosts: others would be shown them as unreachable for a week."""
    from bullpen.fleet import presence
    from bullpen.fleet.link import LOST, KeyClient, close

    async def note(_: Exception) -> None:
        """What the server says against it is raised, too."""

    address, _, port = listen.rpartition(":")
    url = f"nats://{ALL_ADDRESSES.get(address, address)}:{port}"
    deadline = time.monotonic() + TAKEN_SECONDS
    while True:
        client = KeyClient(Signer(probe.seed))
        try:
            await client.connect_as(url, probe, note, None)
            for host in gone:
                with contextlib.suppress(*LOST):  # there may be nothing to forget
                    await presence.leave(client, host)
            return True
        except LOST:
            if time.monotonic() > deadline:
                return False
        finally:
            await close(client)
        await asyncio.sleep(TRY_AGAIN_SECONDS)
