"""What follows from polls, by a clock of the test's own; a component that dies and returns."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from bullpen.client import AsyncHub
from bullpen.component import watcher
from bullpen.component.discovery import DiscoveredComponent
from bullpen.component.watcher import ComponentWatcher, Picture, answered, due, polled
from tests.component.sample_process import running
from tests.hub.pen import Pen, made_pen
from tests.ports import reserved_port

IDLE = DiscoveredComponent(9000, "view", "web", "0.1.0", "idle", ("statusable",), "h" * 16)
BUSY = replace(IDLE, name="busy", port=9001, state="working")
DAY = 24 * 3600.0


def seen(*found: DiscoveredComponent, now: float = 0.0) -> Picture:
    return answered({}, found, now)


def fails(picture: Picture, now: float, times: int = 1) -> Picture:
    for number in range(times):
        picture = polled(picture, [IDLE.key], [], now + number)
    return picture


@pytest.mark.parametrize(
    ("times", "health"),
    [
        (0, "healthy"),
        (1, "warning"),
        (2, "warning"),
        (3, "unreachable"),
        (9, "unreachable"),
    ],
)
def test_f2_health_after_failed_polls(times: int, health: str) -> None:
    picture = fails(seen(IDLE), 5, times)
    assert picture[IDLE.key].health == health
    assert picture[IDLE.key].last == IDLE  # what was last known stays


@pytest.mark.parametrize("times", [1, 2, 3, 20])
def test_f2_the_first_good_poll_is_healthy(times: int) -> None:
    picture = fails(seen(IDLE), 5, times)
    back = replace(IDLE, state="error")
    picture = polled(picture, [IDLE.key], [back], 100)
    assert picture[IDLE.key].health == "healthy"
    assert picture[IDLE.key].last.state == "error"
    assert fails(picture, 105, 2)[IDLE.key].health == "warning"  # counted from nought again


def test_f2_idle_ones_every_five_seconds_and_working_ones_every_second() -> None:
    picture = seen(IDLE, BUSY)
    assert due(picture, 0.9) == []
    assert due(picture, 1.0) == [BUSY.key]
    assert due(picture, 4.9) == [BUSY.key]
    assert set(due(picture, 5.0)) == {IDLE.key, BUSY.key}
    picture = polled(picture, [BUSY.key], [replace(BUSY, state="idle")], 1.0)
    assert due(picture, 4.9) == []
    assert due(picture, 5.0) == [IDLE.key]
    assert set(due(picture, 6.0)) == {IDLE.key, BUSY.key}
    # Also one that does not answer.
    missed = polled(picture, [IDLE.key], [], 5.0)
    assert IDLE.key not in due(missed, 9.9)
    assert IDLE.key in due(missed, 10.0)


def test_f2_dropped_after_a_day_without_an_answer() -> None:
    picture = fails(seen(IDLE), 5, 3)
    late = polled(picture, [IDLE.key], [], DAY - 1)
    assert late[IDLE.key].health == "unreachable"
    assert IDLE.key not in polled(late, [IDLE.key], [], DAY)
    assert IDLE.key in polled(late, [IDLE.key], [IDLE], DAY)


def test_f2_another_one_at_the_same_port_is_not_the_first() -> None:
    other = replace(IDLE, name="other")
    foreign = replace(IDLE, home_id="f" * 16)
    for stranger in (other, foreign):
        picture = polled(seen(IDLE), [IDLE.key], [stranger], 5)
        assert picture[IDLE.key].health == "warning"
        assert picture[stranger.key].health == "healthy"


def test_f2_one_that_moved_is_asked_where_it_is() -> None:
    moved = replace(IDLE, port=9100)
    picture = polled(fails(seen(IDLE), 5), [IDLE.key], [moved], 10)
    assert (picture[IDLE.key].last.port, picture[IDLE.key].health) == (9100, "healthy")
    assert len(picture) == 1


def test_f2_new_ones_are_looked_for_every_thirty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = 0.0, []

    def scan(ports: set[int]) -> list[DiscoveredComponent]:
        asked.append((now, set(ports)))
        return [IDLE]

    monkeypatch.setattr(watcher, "scan", scan)
    watching = ComponentWatcher(range(9000, 9003), clock=lambda: now)
    for second in range(62):
        now = float(second)
        asyncio.run(watching.step())
    looks = [at for at, ports in asked if len(ports) == 3]
    polls = [at for at, ports in asked if ports == {9000}]
    assert looks == [0, 30, 60]
    assert polls == [5, 10, 15, 20, 25, 35, 40, 45, 50, 55]


async def eventually(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def test_f1_those_that_are_announced_here_are_asked_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: set[int] = set()

    def scan(ports: set[int]) -> list[DiscoveredComponent]:
        asked.update(ports)
        return [one for one in (IDLE, BUSY) if one.port in ports]

    monkeypatch.setattr(watcher, "scan", scan)
    silent = [replace(IDLE, state=None), replace(IDLE, port=9111, address="10.0.0.1")]
    watching = ComponentWatcher([], listen=lambda: silent)

    async def story() -> None:
        work = asyncio.create_task(watching.run())
        await eventually(lambda: IDLE.key in watching.picture)
        work.cancel()

    asyncio.run(story())
    assert watching.picture[IDLE.key].last.state == "idle"
    assert asked == {IDLE.port}


# ── real ones ──


@pytest.fixture(scope="module")
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        made.start()
        yield made


@pytest.mark.slow
@pytest.mark.storm
def test_f2_a_component_is_killed_and_comes_back(pen: Pen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "IDLE_SECONDS", 0.1)
    seen: list[str] = []

    with reserved_port() as port, contextlib.ExitStack() as stack:
        sample = stack.enter_context(running(pen.home, "sam", port))
        sample.wait_for("idle")
        key = (pen.home.id, "director", "sam")

        def note() -> None:
            if key in watching.picture:
                seen.append(watching.picture[key].health)

        watching = ComponentWatcher([port], changed=note)

        async def story() -> None:
            work = asyncio.create_task(watching.run())
            await eventually(lambda: seen[-1:] == ["healthy"])
            await asyncio.to_thread(sample.kill)
            await eventually(lambda: seen[-1:] == ["unreachable"])
            assert watching.picture[key].last.state == "idle"
            again = running(pen.home, "sam", port)
            await asyncio.to_thread(stack.enter_context, again)
            await eventually(lambda: seen[-1:] == ["healthy"])
            work.cancel()

        asyncio.run(story())
    # On a busy machine a living one misses a poll, too: that is a warning, and is taken back.
    letters = "".join(one[0] for one in seen)
    assert re.search("hw+u+h", letters), seen
    assert "hu" not in letters and "uw" not in letters, seen


@pytest.mark.slow
def test_f2_agents_are_followed_by_the_hubs_stream(pen: Pen) -> None:
    watching = ComponentWatcher([], AsyncHub(pen.home, start=False))

    def running_agents() -> set[str]:
        return {name for name, agent in watching.agents.items() if agent.running}

    async def story() -> None:
        work = asyncio.create_task(watching.run())
        await eventually(lambda: watching.hub_health == "healthy")
        await asyncio.to_thread(pen.run, name="amy")
        await eventually(lambda: running_agents() == {"amy"})
        await asyncio.to_thread(pen.kill_hub)
        await eventually(lambda: watching.hub_health == "unreachable")
        assert running_agents() == {"amy"}  # last known
        await asyncio.to_thread(pen.start)
        await eventually(lambda: watching.hub_health == "healthy")
        await asyncio.to_thread(pen.stop, "amy")
        await eventually(lambda: running_agents() == set())
        work.cancel()

    asyncio.run(story())
