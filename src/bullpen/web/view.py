"""The view as a component: its port, its certificate, its life. `python -m bullpen.web.view HOME`.

Started by `bullpen web start`. `component/server` gives it what every component has (a loopback
port for `/status`, a socket for its owner, the entry in the hub's register); the page is served at
a port of its own, over TLS.
"""

import asyncio
import errno
import socket
import ssl
import sys
from pathlib import Path

from bullpen.client import AsyncHub
from bullpen.component import ask
from bullpen.component.http_server import HttpServer, Listener
from bullpen.component.memory import return_free_memory, return_large_blocks_at_once
from bullpen.component.ports import BACKLOG, port_taken_error
from bullpen.component.process import ComponentProcess
from bullpen.component.server import serve
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.web import machine, tls
from bullpen.web.config import WebConfig, config_file, load_web_config
from bullpen.web.discovered import Discovered
from bullpen.web.ended import EndedSessions
from bullpen.web.guard import WebGuard
from bullpen.web.login import Login
from bullpen.web.routes import ViewRoutes
from bullpen.web.token import CurrentToken, ensure_token
from bullpen.web.tries import Tries

LOOK_SECONDS = 3600.0  # between two looks at the certificate
MOST_CONNECTIONS = 512


class View(ComponentProcess):
    """One view."""

    kind = "view"
    interfaces = ("statusable", "observable", "configurable")
    config_type = WebConfig
    config: WebConfig

    @property
    def own_port(self) -> int | None:
        return None  # `port` is the page's

    def listen(self) -> None:
        self._listener = _bind(self.config, config_file(self.home))
        try:
            ensure_token(self.home)
            self._ended = EndedSessions(self.home)
            self._tls = tls.context(tls.prepare_certificate(self.home, self.config))
        except BaseException:
            self._listener.close()
            raise

    async def run(self) -> None:
        hub = AsyncHub(self.home, token=ask.owner_token(self.home), start=False)
        token, tries = CurrentToken(self.home), Tries()
        login = Login(self.config.port, token, tries, self._ended)
        discovered = Discovered(hub, self.config.discovery, self.home_id)
        routes = ViewRoutes(self, hub, login, discovered)
        names = frozenset({*machine.host_names(), *self.config.hosts})
        guard = WebGuard(
            routes.app(), self.name, self.config.port, names, token, tries, self._ended
        )
        server = HttpServer(guard, self.life.over)
        server.listen_on(Listener(self._listener, most_connections=MOST_CONNECTIONS, tls=self._tls))
        return_free_memory()  # of all that was loaded
        async with hub, asyncio.TaskGroup() as tasks:
            renewing = tasks.create_task(self._renew(self._tls), name="renew the certificate")
            await server.serve(sockets=[])
            renewing.cancel()

    async def _renew(self, context: ssl.SSLContext) -> None:
        """A view may run longer than its certificate."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            files = await asyncio.to_thread(tls.prepare_certificate, self.home, self.config)
            tls.load(context, files)


def run_view(home: Home) -> int:
    """Serve until it is told to leave; the exit code of the process."""
    return_large_blocks_at_once()
    return serve(View, home, load_web_config(home).name, config_file(home))


def _bind(config: WebConfig, file: Path) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.bind else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.bind, config.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        hint = f"choose another: port in {file}"
        if error.errno == errno.EADDRNOTAVAIL:
            raise BullpenError(
                f"{config.bind} is no address of this machine",
                hint=f"bind in {file}",
                kind=Kind.COMMAND_FAILED,
            ) from error
        raise port_taken_error(config.port, error, hint, Kind.COMMAND_FAILED) from error
    return listener


if __name__ == "__main__":
    sys.exit(run_view(Home(Path(sys.argv[1]))))
