"""A NATS server and homes with hubs that are its hosts, and nothing of them left at the end.

The server is the real one, with the configuration that `bullpen fleet key` writes.
"""

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bullpen.fleet import keys
from tests.hub.pen import Pen, made_pen
from tests.ports import reserved_port
from tests.waiting import wait_until

SERVER = Path(sys.executable).parent / "nats-server"


class Machines:
    """The server's directory and its process, the hosts by name."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.url = f"nats://127.0.0.1:{port}"
        self.hosts: dict[str, Pen] = {}
        self._address = f"127.0.0.1:{port}"
        self._server: subprocess.Popen[bytes] | None = None

    def key(self, *names: str) -> dict[str, Path]:
        """Keys for these hosts."""
        made = keys.change(self.directory, add=[*names], revoke=[], listen=self._address)
        return made.files

    def add_eve(self) -> None:
        """Before the server starts: somebody for whom the server's own rules do not count."""
        config = self.directory / "nats.conf"
        users = "users: [\n      { user: eve, password: eve }\n"
        # She lives in the test's process, which a busy machine may hold up for seconds: cut off
        # for that, she would not hear what she listens to.
        patient = config.read_text().replace('ping_interval: "2s"', 'ping_interval: "60s"')
        assert patient != config.read_text()
        config.write_text(patient.replace("users: [\n", users, 1))

    def add_mallory(self) -> None:
        """The same in the account of the queue."""
        config = self.directory / "nats.conf"
        users = "QUEUE {\n    jetstream: enabled\n    users: [\n"
        assert users in config.read_text()
        more = f"{users}      {{ user: mallory, password: mallory }}\n"
        config.write_text(config.read_text().replace(users, more, 1))

    def start_server(self) -> None:
        """It answers when this returns."""
        log = self.directory / "server.log"
        log.unlink(missing_ok=True)
        with log.open("wb") as output:
            self._server = subprocess.Popen(
                [SERVER, "-c", self.directory / "nats.conf"], stderr=output
            )
        wait_until(lambda: b"Server is ready" in log.read_bytes())

    def kill_server(self) -> None:
        """kill -9."""
        if self._server is not None:
            self._server.send_signal(signal.SIGKILL)
            self._server.wait()
            self._server = None

    def stop_server(self) -> None:
        """SIGSTOP: it is there and does not answer, as behind a cut link."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)

    def join(self, name: str, *words: str) -> Pen:
        """That home's machine is one of the fleet."""
        self.hosts[name].start()  # what a command starts by itself is loaded anew
        ran = self.hosts[name].cli(
            *("fleet", "join", self.directory / f"{name}.json", "--url", self.url, "--json"), *words
        )
        assert ran.code == 0 and not ran.err, ran
        assert {"link", "name", "url", "why", "since", "hosts"} <= set(ran.json)
        return self.hosts[name]

    def shown(self, name: str) -> dict[str, Any]:
        """`/fleet` as that host says it."""
        status, body = self.hosts[name].ask("GET", "/fleet")
        assert status == 200, body
        return body

    def reachable(self, name: str) -> set[str]:
        """Whom that host can reach, as it says."""
        hosts = self.shown(name)["hosts"]
        return {host["state"]["name"] for host in hosts if host["reachable"]}


@contextlib.contextmanager
def made_machines(
    *names: str, joined: bool = True, with_eve: bool = False, **given: Pen
) -> Iterator[Machines]:
    """A server that runs, and a home for each name, which has joined; `given` are there already."""
    names = (*names, *given)
    with contextlib.ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="fleet-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        machines = Machines(root / "fleet", stack.enter_context(reserved_port()))
        machines.key(*names)
        if with_eve:
            machines.add_eve()
            machines.add_mallory()
        stack.callback(machines.kill_server)
        machines.start_server()
        for name in names:
            machines.hosts[name] = given.get(name) or stack.enter_context(made_pen())
        if joined:
            for name in names:
                machines.join(name)
            for name in names:
                wait_until(lambda name=name: machines.reachable(name) >= set(names))
        yield machines
