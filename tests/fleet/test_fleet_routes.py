"""Which requests are carried, where to, and for whom."""

import asyncio
from typing import Any

import pytest

from bullpen.hub.http.fleet_routes import FleetRoutes, find_target
from bullpen.hub.http.guard import ANONYMOUS, OWNER, Actor


@pytest.mark.parametrize(
    ("path", "target"),
    [
        (b"/agents", None),
        (b"/agents/amy/screen", None),
        (b"/agents/h2%2Famy", ("h2", b"/agents/amy")),
        (b"/agents/h2%2famy/task/t-1", ("h2", b"/agents/amy/task/t-1")),
        (b"/agents/h2%2Fa%2Fb", ("h2", b"/agents/a%2Fb")),
        (b"/agents/h2%2F/x", ("h2", b"/agents//x")),
        (b"/hosts/h2/agents", ("h2", b"/agents")),
        (b"/hosts/h2/", ("h2", b"/")),
        (b"/hosts/h2", None),
        (b"/task/h2%2Ft-1", None),
        (b"", None),
    ],
)
def test_l2_a_path_names_its_host(path: bytes, target: tuple[str, bytes] | None) -> None:
    assert find_target(path) == target


class Recorded:
    """The fleet and the application as the layer meets them: what reached which."""

    name = "h1"

    def __init__(self) -> None:
        self.carried: list[tuple[str, str, bytes]] = []
        self.here: list[str] = []

    async def forward(self, host: str, by: str, path: bytes, *_: Any) -> None:
        self.carried.append((host, by, path))

    async def app(self, scope: Any, *_: Any) -> None:
        self.here.append(scope["path"])


def status(recorded: Recorded, actor: Actor, path: bytes) -> int:
    """What it answers by itself; 0 if the request went on."""
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    scope = {"type": "http", "raw_path": path, "path": path.decode(), "state": {"actor": actor}}
    layer = FleetRoutes(recorded.app, recorded)  # type: ignore[arg-type]
    asyncio.run(layer(scope, None, send))  # type: ignore[arg-type]
    return int(sent[0]["status"]) if sent else 0


@pytest.mark.parametrize(
    ("actor", "by"),
    [
        (OWNER, ""),
        (Actor("bob"), "bob"),
        (Actor(director="dan"), None),
        (ANONYMOUS, None),
        (Actor(host="h3"), None),
        (Actor("h3/bob", host="h3"), None),
    ],
)
@pytest.mark.parametrize("path", [b"/agents/h2%2Famy/task", b"/hosts/h2/agents/amy/task"])
def test_l2_only_the_owner_and_agents_of_this_machine_are_carried_for(
    actor: Actor, by: str | None, path: bytes
) -> None:
    """A director has no name that another machine knows: it would be the owner there."""
    recorded = Recorded()
    assert status(recorded, actor, path) == (403 if by is None else 0)
    assert recorded.carried == ([] if by is None else [("h2", by, b"/agents/amy/task")])
    assert recorded.here == []


def test_l2_a_host_that_names_itself_is_served_here() -> None:
    recorded = Recorded()
    assert status(recorded, OWNER, b"/agents/h1%2Famy/screen") == 0
    assert (recorded.carried, recorded.here) == ([], ["/agents/amy/screen"])


@pytest.mark.parametrize(
    "path",
    [b"/agents/h2%2F", b"/agents/h2%2F/messages", b"/agents/h2%2Fa%2Fb/screen", b"/agents/%2Famy"],
)
def test_l2_a_typing_error_in_host_and_agent_is_said_here(path: bytes) -> None:
    recorded = Recorded()
    assert status(recorded, OWNER, path) == 404
    assert (recorded.carried, recorded.here) == ([], [])
