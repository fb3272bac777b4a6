"""Other machines: what each says of itself, and what this one knows of all. Pure."""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from bullpen.model.value import Value

WORD_CHARACTERS = 200
Word = Annotated[str, Field(max_length=WORD_CHARACTERS)]


class HostAgent(Value):
    """An agent of another machine, as far as a list needs it."""

    name: Word
    role: Word = ""
    state: Word
    words: Word
    since: float
    running: bool
    takes_tasks: bool = False
    labels: dict[Word, Word] = Field(default_factory=dict)


class HostState(Value):
    """What a host says of itself."""

    name: Word
    version: Word
    labels: dict[Word, Word] = Field(default_factory=dict)
    max_agents: int = 0
    takes_children: bool = False  # of agents of other machines; an earlier version does not
    agents: tuple[HostAgent, ...] = ()
    at: float  # when this was said

    @property
    def running(self) -> int:
        return sum(agent.running for agent in self.agents)


class Host(Value):
    """A machine of the fleet. Not reachable: `state` is the last that was heard. All times are by
    the reader's clock; `last_heard` is when it was there last, as far as the reader knows."""

    state: HostState
    reachable: bool
    last_heard: float


def with_last_heard(hosts: Iterable[Host], before: Iterable[Host]) -> tuple[Host, ...]:
    """A look of before may know better when a host was there: the server forgets it. Pure."""
    times = {host.state.name: host.last_heard for host in before}
    return tuple(
        host.model_copy(
            update={"last_heard": max(host.last_heard, times.get(host.state.name, 0.0))}
        )
        for host in hosts
    )


class FleetShown(Value):
    """`/fleet`: how this machine stands to the fleet, and all machines that it knows of."""

    link: Literal["none", "connecting", "connected", "away", "refused"] = "none"
    name: str = ""
    url: str = ""
    why: str = ""
    since: float | None = None
    hosts: tuple[Host, ...] = ()
