"""How children on other machines stand, for who looks: their hosts say it to everybody who asks."""

from collections.abc import Awaitable, Callable, Collection, Mapping

from pydantic import TypeAdapter, ValidationError

from bullpen.model.fleet import FleetShown, Host
from bullpen.model.fleet_child import RemoteChild
from bullpen.model.state import State, Unknown
from bullpen.model.value import Value

Hosts = Mapping[str, Host]
STATE: TypeAdapter[State] = TypeAdapter(State)


class StateThere(Value):
    """In words, and since when."""

    state: State
    words: str
    since: float
    running: bool


async def read_hosts(
    show: Callable[[], Awaitable[FleetShown]], children: Collection[RemoteChild]
) -> Hosts:
    """The machines that these are on, by name. Without children nobody is asked."""
    if not children:
        return {}
    return {host.state.name: host for host in (await show()).hosts}


def state_of(child: RemoteChild, hosts: Hosts) -> StateThere:
    """As its host last said it. Pure."""
    host = hosts.get(child.host)
    if child.state in ("asked", "sent"):
        return _unknown(child, f"being started on {child.host}")
    agents = host.state.agents if host else ()
    agent = next((each for each in agents if each.name == child.name), None)
    if child.is_over and (agent is None or not agent.running):
        return _unknown(child, agent.words if agent else "ended")
    if agent is None or host is None:
        return _unknown(child, f"unknown: {child.host} does not say")
    words = agent.words if host.reachable else f"unknown: {child.host} cannot be reached"
    return StateThere(
        state=_parse(agent.state), words=words, since=agent.since, running=agent.running
    )


def _unknown(child: RemoteChild, words: str) -> StateThere:
    return StateThere(
        state=Unknown(missing=words), words=words, since=child.at, running=child.is_living
    )


def _parse(state: str) -> State:
    """Of some nobody here knows the rest."""
    try:
        return STATE.validate_python({"state": state})
    except ValidationError:
        return Unknown(missing="its host knows more")
