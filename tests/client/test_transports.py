"""`Hub` and `AsyncHub` against a real hub: the same answers, errors and streams."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from bullpen.client import (
    AsyncHub,
    Hub,
    agents,
    components,
    events,
    gc,
    pods,
    status,
    terminals,
    usage,
)
from bullpen.client.call import Call, Stream
from bullpen.client.shell import Shell
from bullpen.errors import BullpenError, Kind
from bullpen.model.agent_shown import AgentWithUsage
from bullpen.model.gc import GcPlan
from tests.hub.pen import Pen
from tests.hub.programs import SLEEP

pytestmark = pytest.mark.slow
T = TypeVar("T")


def shell(pen: Pen) -> Shell:
    return Shell(cwd=str(pen.root), env=pen.env)


def in_both(pen: Pen, call: Call[T]) -> T:
    """Its answer, which is the same either way."""
    answer = Hub(pen.home, start=False).do(call)
    assert with_hub(pen, lambda hub: hub.do(call)) == answer
    return answer


def with_hub(pen: Pen, story: Callable[[AsyncHub], Awaitable[T]], **options: bool) -> T:
    async def run() -> T:
        async with AsyncHub(pen.home, **options) as hub:
            return await story(hub)

    return asyncio.run(run())


def test_answers_are_the_models(pen: Pen) -> None:
    pen.run(name="amy")
    amy = in_both(pen, agents.get_agent("amy"))
    assert isinstance(amy, AgentWithUsage)
    assert (amy.name, amy.running, amy.command) == ("amy", True, tuple(SLEEP))
    assert in_both(pen, agents.list_agents()).agents == (amy,)
    assert in_both(pen, agents.list_agents().as_text()).startswith("AGENT")
    assert in_both(pen, agents.get_agent("amy").unchecked())["command"] == list(SLEEP)
    assert in_both(pen, pods.list_pods()) == []
    assert in_both(pen, components.list_components()) == []
    assert in_both(pen, usage.get_usage("pod")).by == "pod"
    assert in_both(pen, usage.get_usage_series("pod", "1h")).step == "1h"
    assert "bullpen_" in Hub(pen.home).do(usage.get_metrics())
    assert [one.agent for one in Hub(pen.home).do(events.get_timeline(600)).tracks] == ["amy"]
    assert in_both(pen, events.list_events(limit=1)).events[0].kind == "hub.started"


def test_the_same_error_is_raised(pen: Pen) -> None:
    pen.start()
    hub = Hub(pen.home)
    for failing in (
        lambda: hub.do(agents.get_agent("nobody")),
        lambda: with_hub(pen, lambda hub: hub.do(agents.get_agent("nobody"))),
    ):
        with pytest.raises(BullpenError, match="nobody") as caught:
            failing()
        assert (caught.value.kind, caught.value.hint) == (Kind.NOT_FOUND, "bullpen list")


def test_the_errors_of_streams_are_raised(pen: Pen) -> None:
    pen.start()
    call = pods.start_pod(shell(pen), "no-such-template")
    with pytest.raises(BullpenError, match="no-such-template") as first:
        list(Hub(pen.home).stream(call))
    with pytest.raises(BullpenError, match="no-such-template") as second:
        with_hub(pen, lambda hub: collected(hub, call))
    assert first.value.kind is second.value.kind is Kind.NOT_FOUND


async def collected(hub: AsyncHub, call: Stream[T]) -> list[T]:
    return [value async for value in hub.stream(call)]


def test_lines_are_streamed(pen: Pen) -> None:
    pen.start()
    call = gc.collect(dry_run=True)
    lines = list(Hub(pen.home).stream(call))
    assert isinstance(lines[-1], GcPlan)
    assert with_hub(pen, lambda hub: collected(hub, call))[-1] == lines[-1]


def test_events_are_streamed(pen: Pen) -> None:
    pen.start()
    call = events.stream_events(after=0, agent="amy")

    async def until_stopped(hub: AsyncHub) -> list[str]:
        await hub.do(agents.start_agent(shell(pen), name="amy", words=SLEEP))
        await hub.do(agents.stop_agent("amy", grace=0))
        kinds = []
        async for event in hub.stream(call):
            kinds.append(event.kind)
            if event.kind == "agent.stopped":
                break
        return kinds

    kinds = with_hub(pen, until_stopped)
    assert {"agent.starting", "agent.started", "agent.stopped"} <= set(kinds)
    stream = Hub(pen.home).stream(call)
    assert [next(stream).kind for _ in kinds] == kinds


@pytest.mark.parametrize("start", [True, False])
def test_a_hub_that_is_down_is_started_if_that_is_wanted(pen: Pen, start: bool) -> None:
    async def look(hub: AsyncHub) -> int:
        return len((await hub.do(agents.list_agents())).agents)

    if start:
        assert with_hub(pen, look) == 0
        assert pen.answers()
    else:
        with pytest.raises(BullpenError, match="the hub is down") as caught:
            with_hub(pen, look, start=False)
        assert caught.value.kind is Kind.UNAVAILABLE
        assert not pen.answers()


def test_a_call_about_the_hub_itself_starts_none(pen: Pen) -> None:
    with pytest.raises(BullpenError, match="the hub is down"):
        Hub(pen.home).do(status.get_status())
    with pytest.raises(BullpenError, match="the hub is down"):
        with_hub(pen, lambda hub: hub.do(status.shut_down()))
    assert not pen.answers()


def test_a_hub_that_was_killed_between_two_calls_is_started_again(pen: Pen) -> None:
    async def story(hub: AsyncHub) -> str:
        await hub.do(agents.start_agent(shell(pen), name="amy", words=SLEEP))
        await asyncio.to_thread(pen.kill_hub)
        return (await hub.do(agents.stop_agent("amy", grace=0))).name

    assert with_hub(pen, story) == "amy"


def test_over_tcp_with_a_token(pen: Pen) -> None:
    pen.run(name="amy")
    port = json.loads((pen.root / "hub.json").read_text())["port"]
    token = (pen.root / "credentials/api-token").read_text().strip()

    async def names(url: str, token: str) -> list[str]:
        async with AsyncHub(url=url, token=token) as hub:
            return [agent.name for agent in (await hub.do(agents.list_agents())).agents]

    assert asyncio.run(names(f"http://127.0.0.1:{port}", token)) == ["amy"]
    with pytest.raises(BullpenError) as caught:
        asyncio.run(names(f"http://127.0.0.1:{port}", "wrong"))
    assert caught.value.kind is Kind.DENIED


def test_e2_a_terminal_is_opened_typed_into_and_read_the_same_either_way(pen: Pen) -> None:
    pen.run(name="cat", words=["cat"])
    call = terminals.attach("cat", rows=10, cols=40)

    with Hub(pen.home, start=False).open(call) as line:
        line.send(b"hello\r")
        shown = b""
        while b"hello\r\nhello" not in shown:
            piece = line.recv(timeout=10)
            shown += piece if isinstance(piece, bytes) else b""

    async def story(hub: AsyncHub) -> bytes:
        async with hub.open(call) as line:
            await line.send(b"again\r")
            shown = b""
            while b"again\r\nagain" not in shown:
                piece = await asyncio.wait_for(line.recv(), 10)
                shown += piece if isinstance(piece, bytes) else b""
            return shown

    assert b"hello" in with_hub(pen, story)


def test_e2_a_terminal_that_is_not_there_is_the_same_error(pen: Pen) -> None:
    pen.start()
    call = terminals.attach("nobody")

    async def story(hub: AsyncHub) -> None:
        async with hub.open(call):
            pass

    with pytest.raises(BullpenError, match="nobody") as first, Hub(pen.home).open(call):
        pass
    with pytest.raises(BullpenError, match="nobody") as second:
        with_hub(pen, story)
    assert first.value.kind is second.value.kind is Kind.NOT_FOUND
