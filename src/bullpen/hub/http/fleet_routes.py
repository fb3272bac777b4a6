"""Requests for other machines: `/agents/HOST%2FAGENT/…` and `/hosts/HOST/…` are carried there.

Between the guard, which says who asks, and the application. So every route and every verb that
takes an agent's name takes one of another host. Messages to `HOST/AGENT` are not carried: this hub
keeps them until the other one has them.
"""

import re
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from bullpen.component.answers import answer_error
from bullpen.errors import BullpenError, Kind
from bullpen.home.settings import HOST_NAME
from bullpen.hub.fleet import Fleet, alone
from bullpen.hub.http.guard import Actor

TO_HOST = "to_host"  # in a request's state: the machine of the agent that it names, if another one
MAIL = re.compile(rb"/agents/[^/]+/messages")


def find_target(path: bytes) -> tuple[str, bytes] | None:
    """The host that a path is for, and the path there; None if it names none. Pure."""
    parts = path.split(b"/")
    if len(parts) >= 3 and parts[1] == b"agents":
        host, slash, agent = parts[2].replace(b"%2f", b"%2F").partition(b"%2F")
        if slash:
            return unquote(host.decode("latin-1")), b"/".join([b"", b"agents", agent, *parts[3:]])
    if len(parts) >= 4 and parts[1] == b"hosts":
        return unquote(parts[2].decode("latin-1")), b"/".join([b"", *parts[3:]])
    return None


def check_agent(host: str, path: bytes) -> None:
    """Raise if a path of that host names an agent as none is called: `HOST/` and `HOST/A/B` are
    typing errors, and nothing that is carried on from there. Pure."""
    parts = path.split(b"/")
    if len(parts) >= 3 and parts[1] == b"agents":
        agent = unquote(parts[2].decode("latin-1"))
        if not agent or "/" in agent:
            raise BullpenError(
                f"{host}/{agent[:80]} is no name of an agent",
                hint="HOST/AGENT, as bullpen list --fleet shows them",
                kind=Kind.NOT_FOUND,
            )


class FleetRoutes:
    """The layer."""

    def __init__(self, app: ASGIApp, fleet: Fleet) -> None:
        self.app = app
        self.fleet = fleet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = find_target(scope.get("raw_path") or b"") if "path" in scope else None
        if target is None:
            await self.app(scope, receive, send)
            return
        host, path = target
        is_mail = scope["type"] == "http" and MAIL.fullmatch(scope["raw_path"]) is not None
        try:
            actor: Actor = scope["state"]["actor"]
            self._check(host, actor)
            check_agent(host, path)
            if host == self.fleet.name:
                inner = {**scope, "raw_path": path, "path": unquote(path.decode("latin-1"))}
                await self.app(inner, receive, send)
            elif is_mail:
                inner = {**scope, "raw_path": path, "path": unquote(path.decode("latin-1"))}
                inner["state"] = {**scope["state"], TO_HOST: host}
                await self.app(inner, receive, send)
            else:
                await self.fleet.forward(host, actor.agent, path, scope, receive, send)
        except BullpenError as error:
            await answer_error(error)(scope, receive, send)

    def _check(self, host: str, actor: Actor) -> None:
        if not self.fleet.name:
            raise alone(host)
        if HOST_NAME.fullmatch(host) is None:
            raise BullpenError(f"{host[:80]!r} is no name of a host", kind=Kind.NOT_FOUND)
        if not (actor.is_owner or actor.agent):
            # Who is no agent would be taken for the owner there.
            raise BullpenError("only the owner and agents reach other machines", kind=Kind.DENIED)
        if actor.host:
            # It would be carried on under this host's name.
            raise BullpenError(
                f"{self.fleet.name} carries nothing on for {actor.host}", kind=Kind.DENIED
            )
