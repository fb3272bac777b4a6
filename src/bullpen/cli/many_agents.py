"""What the verbs that act on several agents share: which ones, all at once, one line each."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from bullpen.cli import output
from bullpen.cli.ending import shown_endings
from bullpen.client import agents
from bullpen.client.call import Call
from bullpen.client.hub import Hub
from bullpen.errors import BullpenError, Kind

if TYPE_CHECKING:
    from bullpen.model.agent_shown import AgentShown, AgentWithUsage

AT_ONCE = 32
Shown = TypeVar("Shown", bound="AgentShown")


def chosen(hub: Hub, names: Sequence[str], everyone: bool, pod: str | None) -> list[str]:
    """The running agents that are meant; named ones whether they run or not."""
    if sum((bool(names), everyone, pod is not None)) != 1:
        raise BullpenError("which agents?", hint="names, --pod POD or --all, one of them")
    if names:
        return list(dict.fromkeys(names))
    return [agent.name for agent in in_pod(hub, pod) if agent.running]


def in_pod(hub: Hub, pod: str | None) -> "Sequence[AgentWithUsage]":
    """The agents of that pod, which has to be there; without one, all."""
    listed = hub.do(agents.list_agents(pod).unchecked()).agents
    if pod is not None and not listed:
        raise BullpenError(f"no pod called {pod}", hint="bullpen pod list", kind=Kind.NOT_FOUND)
    return listed


def act_on_each(
    hub: Hub,
    names: Sequence[str],
    act: Callable[[str], Call[Shown]],
    done: str,
    as_json: bool,
) -> None:
    """Do it to all side by side; what failed is said for each, and the first of it raised."""

    def attempt(name: str) -> tuple[str, Shown | BullpenError]:
        try:
            return name, Hub(hub.home).do(act(name).unchecked())
        except BullpenError as error:
            return name, error

    began = time.time()
    with shown_endings(hub.home, names), ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        results = list(pool.map(attempt, names))
    failures = [result for _, result in results if isinstance(result, BullpenError)]
    changed = [(name, each) for name, each in results if not isinstance(each, BullpenError)]
    if as_json:
        output.write_json({"agents": [agent for _, agent in changed]})
    else:
        for name, agent in changed:
            what = done if agent.running else stopped_word(agent, began, done)
            new = " · a new conversation, the last one is not there" if _left(agent) else ""
            output.write(f"{name} {what} · {output.printable(agent.words)}{new}")
    for error in failures[1:]:
        output.write_error(error.message, error.hint)
    if failures:
        raise failures[0]


def stopped_word(agent: "AgentShown", began: float, done: str = "stopped") -> str:
    """What became of an agent that was to be stopped at that time."""
    return done if agent.since >= began else "had ended before"


def _left(agent: "AgentShown") -> str:
    """The conversation that a start could not go on with."""
    left: str = getattr(agent, "left_conversation", "")
    return left
