"""A real NATS server with the configuration that `bullpen fleet key` writes, for the sections about
fleets."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.ports import reserved_port
from bench.table import Skipped, wait_until
from bullpen.fleet import keys

PROGRAM = Path(sys.executable).parent / "nats-server"


@dataclass(frozen=True)
class Server:
    """One that runs, and the keys of its hosts."""

    port: int
    pid: int
    keys: dict[str, Path]  # by host

    @property
    def url(self) -> str:
        return url_of(self.port)


def url_of(port: int) -> str:
    """What `fleet join` is told."""
    return f"nats://127.0.0.1:{port}"


@contextmanager
def fleet_server(hosts: Sequence[str], queue_user: str = "") -> Iterator[Server]:
    """With `queue_user` there is somebody of that name and password in the account of the queue for
    whom no rules count."""
    if not PROGRAM.exists():
        raise Skipped("nats-server is not installed")
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch,
        reserved_port() as port,
    ):
        directory = Path(scratch) / "fleet"
        made = keys.change(directory, add=[*hosts], revoke=[], listen=f"127.0.0.1:{port}")
        if queue_user:
            head, _, tail = made.config.read_text().partition("QUEUE {")
            first, _, rest = tail.partition("users: [\n")
            user = f"users: [\n      {{ user: {queue_user}, password: {queue_user} }}\n"
            made.config.write_text(f"{head}QUEUE {{{first}{user}{rest}")
        log = directory / "server.log"
        with log.open("wb") as output:
            server = subprocess.Popen([PROGRAM, "-c", made.config], stderr=output)
        try:
            wait_until(lambda: b"Server is ready" in log.read_bytes())
            yield Server(port, server.pid, made.files)
        finally:
            server.kill()
            server.wait()
