"""A cluster of three servers, and machines, each in a network of its own."""

import contextlib
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from bullpen.fleet import keys
from bullpen.hot import wire
from tests.commands import BULLPEN
from tests.fleet.machines import SERVER
from tests.fleet.networks import Networks, made_networks
from tests.fleet.relays import Relays, made_relays
from tests.hub.pen import Pen
from tests.waiting import wait_until

SERVERS = ("n1", "n2", "n3")
LEADS = re.compile(r"(\d{4}/\d\d/\d\d [\d:.]+) \[INF\] .* new stream leader for '.* > (\w+)'")


class Cluster:
    """Servers and hubs are killed and started, their cables cut and mended."""

    def __init__(self, root: Path, networks: Networks | Relays, hosts: Mapping[str, Pen]) -> None:
        self.networks = networks
        self.hosts = hosts
        self._root = root
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def url(self, host: str) -> str:
        """Of all servers, as that host reaches them."""
        return ",".join(f"nats://{address}:4222" for address in self.networks.servers_of(host))

    # ── servers ──

    def configure(self) -> None:
        """What `fleet key` writes, and what makes a cluster of it."""
        directory = self._root / "fleet"
        made = keys.change(directory, add=[*self.hosts], revoke=[], listen="0.0.0.0:4222")
        text = made.config.read_text()
        routes = ", ".join(f"nats-route://{self.networks.addresses[n]}:6222" for n in SERVERS)
        for name in SERVERS:
            own = text.replace(str(directory / "jetstream"), str(self._root / name))
            own = own.replace(str(directory / "nats.pid"), str(self._root / f"{name}.pid"))
            assert own.count(str(self._root / name)) == 2
            address = self.networks.addresses[name]
            assert own.count('"0.0.0.0:4222"') == 1
            own = own.replace('"0.0.0.0:4222"', f'"{address}:4222"')
            own += f"server_name: {name}\ncluster {{\n  name: fleet\n  listen: {address}:6222\n"
            own += f"  routes: [{routes}]\n}}\n"
            (self._root / f"{name}.conf").write_text(own)

    def start_server(self, name: str) -> None:
        with (self._root / f"{name}.log").open("ab") as log:
            words = [*self.networks.within(name), SERVER, "-c", self._root / f"{name}.conf"]
            self._running[name] = subprocess.Popen(words, stderr=log, stdin=subprocess.DEVNULL)

    def kill_server(self, name: str) -> None:
        """kill -9."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)  # `ip netns exec` has become the server
        process.wait()

    def leader(self, stream: str) -> str:
        """The server that has been the last to say that it leads that stream."""
        said = [
            (at, name)
            for name in SERVERS
            for at, led in LEADS.findall((self._root / f"{name}.log").read_text())
            if led == stream
        ]
        return max(said)[1]

    def close(self) -> None:
        for name in list(self._running):
            self.kill_server(name)

    # ── hubs ──

    def start_hub(self, name: str) -> None:
        if self.networks.within(name):
            self.command(name, "hub", "start")
        else:
            self.hosts[name].start()

    def kill_hub(self, name: str) -> None:
        self.hosts[name].kill_hub()

    def command(self, name: str, *words: str | Path) -> str:
        pen = self.hosts[name]
        if not self.networks.within(name):
            ran = pen.cli(*map(str, words))
            assert ran.code == 0, (words, ran.err, self.logs())
            return ran.out
        done = subprocess.run(
            [*self.networks.within(name), BULLPEN, *map(str, words)],
            env={**pen.env, "BULLPEN_DIR": str(pen.root)},
            cwd=pen.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (words, done.stderr, self.logs())
        return done.stdout

    def is_connected(self, name: str) -> bool:
        with contextlib.suppress(wire.HubError, OSError):
            return bool(self.hosts[name].ask("GET", "/fleet")[1]["link"] == "connected")
        return False

    def logs(self) -> str:
        texts = [(self._root / f"{name}.log").read_text()[-1500:] for name in SERVERS]
        return "\n".join(texts)


@contextlib.contextmanager
def made_cluster(*, has_networks: bool = True, **hosts: Pen) -> Iterator[Cluster]:
    """All of it runs, and all machines have joined. Without networks of their own they have cables
    to the servers alone."""
    with contextlib.ExitStack() as stack:
        make = made_networks if has_networks else made_relays
        networks: Networks | Relays = stack.enter_context(make(SERVERS, [*hosts]))
        place = Path(tempfile.mkdtemp(prefix="cluster-"))
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        cluster = Cluster(place, networks, hosts)
        cluster.configure()
        stack.callback(cluster.close)
        for name in SERVERS:
            cluster.start_server(name)
        for name in hosts:
            cluster.start_hub(name)
        for name in hosts:
            key = place / "fleet" / f"{name}.json"
            wait_until(lambda name=name, key=key: _joins(cluster, name, key), 120)
        yield cluster


def _joins(cluster: Cluster, name: str, key: Path) -> bool:
    """A cluster that has no leader yet does not let anybody in."""
    with contextlib.suppress(AssertionError):
        cluster.command(name, "fleet", "join", key, "--url", cluster.url(name))
        return True
    return False
