"""This hub as one of many: a part of `parts`.

Does nothing, and loads nothing of `bullpen.fleet`, unless `config.yaml` has `fleet:`; follows that
while the hub runs. `http/fleet_routes` has it carry requests to other hosts; what others ask is
given to `app`, which is the hub's whole application with its guard.
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from bullpen import __version__
from bullpen.errors import BullpenError, Kind
from bullpen.home import settings as home_settings
from bullpen.hub.agents.registry import Registry
from bullpen.hub.context import HubContext
from bullpen.hub.fleet_mail import FleetMail
from bullpen.hub.fleet_tasks import FleetTasks
from bullpen.hub.settings_watch import SettingsWatch
from bullpen.model.event import Event
from bullpen.model.fleet import FleetShown, Host, HostAgent, HostState
from bullpen.model.state import words
from bullpen.model.task import QueuedTaskRequest

if TYPE_CHECKING:
    from bullpen.fleet.channel import Channel, Head
    from bullpen.fleet.link import Link

log = logging.getLogger("bullpen.hub")

FLEET_CALLER = "fleet_caller"  # in a request's state: the host, and its agent or nothing
AGAIN_SECONDS = 2.0
CANCEL_SECONDS = 3.0  # others are told meanwhile that this host leaves
SHOWN_AGENTS = 1000  # the server takes a megabyte


def _fleet_of(settings: home_settings.Fleet) -> tuple[str | None, ...]:
    """What makes a machine that one of that fleet; its labels and its key may change."""
    return settings.url, settings.name


def alone(host: str) -> BullpenError:
    """What is said of another machine where there is no fleet."""
    return BullpenError(
        f"no host called {host}: this machine is in no fleet",
        hint="bullpen fleet join FILE --url nats://HOST:4222",
        kind=Kind.NOT_FOUND,
    )


class Fleet:
    """The fleet as this hub knows it."""

    def __init__(
        self,
        context: HubContext,
        registry: Registry,
        settings_watch: SettingsWatch,
        fleet_tasks: FleetTasks,
        mail: FleetMail,
    ) -> None:
        self.app: ASGIApp | None = None
        self._context = context
        self._registry = registry
        self._settings_watch = settings_watch
        self._fleet_tasks = fleet_tasks
        self.mail = mail
        self._link: Link | None = None
        self._why = ""

    @property
    def name(self) -> str:
        """Of this host; empty if it is alone."""
        settings = self._context.settings.fleet
        return (settings.name or "") if settings.url else ""

    def notice(self, _events: list[Event]) -> None:
        """Others may have to know."""
        if self._link is not None:
            self._link.changed.set()
            self._fleet_tasks.notice()

    async def run(self) -> None:
        """Connected as the settings say, until it is cancelled."""
        while True:
            settings = self._context.settings.fleet
            serving = asyncio.create_task(self._serve(settings), name="fleet")
            try:
                while self._context.settings.fleet == settings:
                    await self._settings_watch.next_change()
                if self._link is not None:
                    now = self._context.settings.fleet
                    self._link.is_leaving = _fleet_of(now) != _fleet_of(settings)
            finally:
                self._link = None  # or it would be shown for that of the next settings
                while not serving.done():  # `wait_for` of Python 3.11 may swallow one
                    serving.cancel()
                    await asyncio.wait({serving}, timeout=CANCEL_SECONDS)

    async def _serve(self, settings: home_settings.Fleet) -> None:
        if settings.url is None:
            return
        try:
            while True:
                try:
                    self._link = await asyncio.to_thread(self._make_link, settings)
                    await self._run_link(self._link)
                except BullpenError as error:  # until somebody has mended the file
                    self._why = f"{error.message} · {error.hint}"
                except Exception as error:
                    log.exception("the fleet failed")
                    self._why = f"it failed ({type(error).__name__}); the hub's log says where"
                self._link = None
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            self._link, self._why = None, ""

    async def _run_link(self, link: "Link") -> None:
        """The connection, and tasks and messages of the fleet once there is one."""
        from bullpen.fleet.link import cancel_all

        tasks = asyncio.create_task(self._fleet_tasks.run(link), name="fleet tasks")
        mail = asyncio.create_task(self.mail.run(link), name="fleet mail")
        try:
            await link.run()
        finally:
            await cancel_all(tasks, mail)

    def _make_link(self, settings: home_settings.Fleet) -> "Link":
        """In a thread: the library takes a third of a second to load."""
        from bullpen.fleet.credential import read_own
        from bullpen.fleet.link import Link

        credential = read_own(self._context.home.root, settings)
        assert settings.url is not None
        return Link(settings.url, credential, self._describe, self._answer)

    async def show(self) -> FleetShown:
        """How this machine stands to the fleet, and who else is there."""
        settings, link = self._context.settings.fleet, self._link
        if settings.url is None:
            return FleetShown()
        shown = FleetShown(link="connecting", name=settings.name or "", url=settings.url)
        own = Host(state=self._describe(), reachable=True, last_heard=time.time())
        if link is None:
            state = "refused" if self._why else "connecting"
            return shown.model_copy(update={"link": state, "why": self._why, "hosts": (own,)})
        others = [host for host in await link.read_hosts() if host.state.name != shown.name]
        hosts = sorted([own, *others], key=lambda host: host.state.name)
        fields = {**vars(link.state), "hosts": tuple(hosts)}
        if link.state.link == "connected" and not link.state.why:
            troubles = (self._fleet_tasks.trouble, self.mail.trouble)
            fields["why"] = " · ".join(filter(None, troubles))
        return shown.model_copy(update=fields)

    async def check_host(self, host: str) -> None:
        """Raise if there is surely no such machine. Without the server nobody knows."""
        if not self.name:
            raise alone(host)
        if home_settings.HOST_NAME.fullmatch(host) is None:
            raise BullpenError(f"{host[:80]!r} is no name of a host", kind=Kind.NOT_FOUND)
        link = self._link
        if link is not None and not await link.knows(host):
            raise BullpenError(
                f"no machine of the fleet is called {host}",
                hint="bullpen fleet status",
                kind=Kind.NOT_FOUND,
            )

    def check_task(self, request: QueuedTaskRequest) -> None:
        """Raise if a task cannot be one for agents of all machines."""
        if not self.name:
            raise BullpenError(
                "this machine is in no fleet",
                hint="bullpen fleet join FILE --url nats://HOST:4222",
                kind=Kind.CONFLICT,
            )
        from bullpen.fleet.task_records import check_size, name_need

        name_need(request.role or "", request.labels, sandboxed=bool(request.sandboxed))
        check_size(len(request.model_dump_json()))

    async def forward(
        self, host: str, by: str, path: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Have another host answer this request."""
        if self._link is None:
            raise BullpenError(
                f"{host} is not reached: this machine is not connected to its fleet",
                hint="bullpen fleet status",
                kind=Kind.UNAVAILABLE,
            )
        from bullpen.fleet.carry import forward

        await forward(self._link.peers, host, by, path, scope, receive, send)

    async def _answer(self, channel: "Channel", head: "Head", body: bytes) -> None:
        from bullpen.fleet.carry import serve

        assert self.app is not None
        await serve(self.app, FLEET_CALLER, channel, head, body)

    def _describe(self) -> HostState:
        settings = self._context.settings
        agents = [
            HostAgent(
                name=live.agent.name,
                role=live.agent.role or "",
                state=live.view.state.state,
                words=words(live.view.state)[:200],
                since=live.view.since,
                running=live.is_running,
                takes_tasks=live.agent.takes_tasks,
                labels={name[:200]: text[:200] for name, text in live.agent.labels.items()},
            )
            for live in self._registry
        ]
        # Those that run first: what is over may be cut off.
        agents.sort(key=lambda agent: (not agent.running, agent.name))
        return HostState(
            name=settings.fleet.name or "",
            version=__version__,
            labels=settings.fleet.labels,
            max_agents=settings.max_agents,
            takes_children=True,
            agents=tuple(agents[:SHOWN_AGENTS]),
            at=time.time(),
        )
