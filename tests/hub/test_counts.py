"""What agents use, and their budgets, on the parts of a hub: counted for the right one, once, also
by the next hub; acted on once, and again where it did not help."""

import asyncio
import time
from typing import Any

import pytest

from bullpen.engines import ENGINES
from bullpen.hub import budgets, usage
from bullpen.hub.counted import Counted
from bullpen.hub.registry import Live
from bullpen.hub.usage import Usage
from bullpen.model.agent import Agent
from bullpen.model.event import Draft
from bullpen.model.role import Budget
from bullpen.model.state import Blocked, Idle, State, Working
from tests.hub.parts_by_hand import ENGINE, WAIT, Parts, ToldEngine, run, until


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> ToldEngine:
    made = ToldEngine()
    monkeypatch.setitem(ENGINES, ENGINE, made)
    return made


def total(amount: float, series: bytes = b"s", field: str = "input", model: str = "m") -> Counted:
    return Counted(field, model, amount, series, is_total=True)


def once(amount: float, key: bytes = b"k", field: str = "requests") -> Counted:
    return Counted(field, "m", amount, key)


async def count(parts: Parts, agent: Agent, *counted: Counted) -> None:
    await parts.hub.usage._take(agent, counted, time.time())


async def next_hub(parts: Parts) -> Usage:
    """What another hub finds."""
    another = Usage(parts.store, parts.registry)
    await another.load()
    return another


# ── telemetry ──


def test_o1_the_same_series_of_two_agents_are_two() -> None:
    async def main(parts: Parts) -> None:
        amy, bob = parts.put("amy").agent, parts.put("bob").agent
        for agent, amount in ((amy, 100), (bob, 30), (amy, 110), (bob, 30), (amy, 50)):
            await count(parts, agent, total(amount), once(1))
        for each in (parts.hub.usage, await next_hub(parts)):
            assert [(each.of(one).input, each.of(one).requests) for one in (amy, bob)] == [
                (110, 1),
                (30, 1),
            ]

    run(main)


def test_o1_two_things_that_one_entry_tells_both_count_and_once() -> None:
    async def main(parts: Parts) -> None:
        amy = parts.put().agent
        for _ in range(2):
            await count(parts, amy, once(1, field="tool_calls"), once(2.5, field="tool_seconds"))
        found = parts.hub.usage.of(amy)
        assert (found.tool_calls, found.tool_seconds) == (1, 2.5)

    run(main)


def test_o1_an_agent_of_the_same_name_that_was_made_later_begins_at_nothing() -> None:
    async def main(parts: Parts) -> None:
        amy = parts.put().agent
        await count(parts, amy, total(100))
        later = amy.model_copy(update={"created": "c2", "run": "r2"})
        assert parts.hub.usage.of(later).input == 0
        await count(parts, later, total(7, b"another"))
        for each in (parts.hub.usage, await next_hub(parts)):
            assert (each.of(amy).input, each.of(later).input) == (100, 7)

    run(main)


def test_o1_series_of_agents_that_are_gone_are_forgotten_and_of_others_not() -> None:
    async def main(parts: Parts) -> None:
        amy, bob, cleo = (parts.put(name).agent for name in ("amy", "bob", "cleo"))
        for agent in (amy, bob, cleo):
            await count(parts, agent, total(100))
        parts.registry.drop("bob")
        parts.registry.drop("cleo")
        parts.registry.broken["cleo"] = "cannot be read"  # its program may well go on
        await next_hub(parts)
        select = "SELECT agent FROM usage_series ORDER BY 1"
        assert parts.store.read(select) == [("amy",), ("cleo",)]

    run(main)


def test_o1_what_was_seen_is_forgotten_after_days_only() -> None:
    async def main(parts: Parts) -> None:
        amy, counts, now = parts.put().agent, parts.hub.usage, time.time()
        day = 86400.0
        await counts._take(amy, [once(1, b"old")], now - 3 * day)
        await counts._take(amy, [once(1, b"new")], now - day)
        await counts._take(amy, [once(1, b"now")], now)
        assert [row[0] for row in parts.store.read("SELECT key FROM usage_seen ORDER BY at")] == [
            b"new",
            b"now",
        ]

    run(main)


def test_o1_as_many_models_as_are_kept_and_the_others_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(usage, "MOST_MODELS", 3)

    async def main(parts: Parts) -> None:
        amy = parts.put().agent
        for model in "abcdea":
            await count(parts, amy, total(1, model.encode() * 2, model=model))
        found = await parts.hub.usage.by_labels()
        assert {labels[3]: totals.input for labels, totals in found} == {
            "a": 1,
            "b": 1,
            "c": 1,
            "other": 2,
        }

    run(main)


def test_o1_a_report_begins_with_the_day_that_is_named() -> None:
    async def main(parts: Parts) -> None:
        amy, now = parts.put().agent, time.time()
        for days in (0, 1, 2, 3):
            await parts.hub.usage._take(amy, [once(1, bytes([days]))], now - days * 86400)
        report = await parts.hub.usage.report("day", 2 * 86400, now)
        assert len(report.rows) == 3
        assert report.since == report.rows[0].name
        assert report.total.requests == 3

    run(main)


# ── time of work ──


def state_at(live: Live, state: State, at: float) -> Draft:
    """The event of a state that it came to at that time."""
    view = live.view.model_copy(update={"state": state, "since": at})
    return Draft(at, "agent.state", live.agent.name, view.model_dump(mode="json"))


@pytest.mark.parametrize("is_loaded", [True, False])
def test_o2_work_is_what_lies_between_states_and_a_clock_set_back_takes_none_away(
    is_loaded: bool,
) -> None:
    async def main(parts: Parts) -> None:
        amy = parts.put(state=Idle())
        parts.put("bob", Idle())
        if is_loaded:
            await parts.hub.usage.load()
        else:
            await next_hub(parts)  # an earlier hub, from whose mark the next one goes on
        for at, state in ((10.0, Working()), (40.0, Idle()), (50.0, Working()), (45.0, Idle())):
            draft = state_at(amy, state, at)
            await parts.store.append(draft)
        if not is_loaded:
            await parts.hub.usage.load()
        await until(lambda: parts.hub.usage.of(amy.agent).work_seconds == 30.0)
        report = await parts.hub.usage.report("agent", None, time.time())
        assert [(row.name, row.used.work_seconds) for row in report.rows] == [("amy", 30.0)]
        another = await next_hub(parts)
        assert another.of(amy.agent).work_seconds == 30.0
        assert not another.is_working(amy.agent)

    run(main)


def test_o2_work_that_could_not_be_stored_is_stored_later() -> None:
    async def main(parts: Parts) -> None:
        amy, counts = parts.put(state=Idle()), parts.hub.usage
        await counts.load()
        await parts.store.append(state_at(amy, Working(), 10.0), state_at(amy, Idle(), 25.0))
        await until(lambda: counts.of(amy.agent).work_seconds == 15.0)
        await parts.change(
            "CREATE TRIGGER full BEFORE INSERT ON usage BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
        with pytest.raises(Exception, match="no room"):
            await counts.flush()
        await parts.change("DROP TRIGGER full")
        await parts.store.append(state_at(amy, Working(), 30.0), state_at(amy, Idle(), 40.0))
        await until(lambda: counts.of(amy.agent).work_seconds == 25.0)
        await counts.flush()
        assert (await next_hub(parts)).of(amy.agent).work_seconds == 25.0

    run(main)


def test_o2_states_that_came_while_it_was_loaded_count_once() -> None:
    async def main(parts: Parts) -> None:
        amy = parts.put(state=Idle())
        await next_hub(parts)
        first = await parts.store.append(state_at(amy, Working(), 10.0))
        second = await parts.store.append(state_at(amy, Idle(), 25.0))
        counts = Usage(parts.store, parts.registry)
        counts.notice(first)
        await counts.load()
        counts.notice(second)
        assert counts.of(amy.agent).work_seconds == 15.0

    run(main)


def test_o2_a_state_that_comes_just_after_the_last_page_is_not_lost() -> None:
    async def main(parts: Parts) -> None:
        amy = parts.put(state=Idle())
        await next_hub(parts)
        await parts.store.append(state_at(amy, Working(), 10.0))
        loop = asyncio.get_running_loop()

        class BusyStore:
            """Commits one more event when its last page has been read."""

            def __getattr__(self, name: str) -> Any:
                return getattr(parts.store, name)

            def after(self, *words: Any, **fields: Any) -> Any:
                page = parts.store.after(*words, **fields)
                if not page:
                    parts.store.submit([state_at(amy, Idle(), 25.0)]).result(WAIT)
                return page

        counts = Usage(BusyStore(), parts.registry)  # type: ignore[arg-type]
        parts.store.on_commit = lambda events: loop.call_soon_threadsafe(counts.notice, events)
        await counts.load()
        assert counts.of(amy.agent).work_seconds == 15.0
        assert not counts.is_working(amy.agent)

    run(main)


# ── budgets ──


TEN = Budget(tokens=10)


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at once, and interrupts again soon."""
    for name in ("LOOK_SECONDS", "PAUSE_SECONDS", "INTERRUPT_AGAIN_SECONDS"):
        monkeypatch.setattr(budgets, name, 0.02)


async def watch(parts: Parts) -> None:
    await parts.hub.usage.load()
    asyncio.get_running_loop().create_task(parts.hub.budgets.run(), name="budgets")


async def levels(parts: Parts, name: str | None = None) -> list[tuple[str, str, str]]:
    found = [
        event
        for kind in ("budget.warned", "budget.reached")
        for event in await parts.events(kind, name)
    ]
    return [(event.kind, event.agent, event.data["name"]) for event in found]


def test_o2_an_interrupt_that_did_not_end_the_turn_is_tried_again(
    pace: None, engine: ToldEngine
) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working(), budget=TEN)
        holder = await parts.hold(live)
        await watch(parts)
        holder.is_refusing = True
        await count(parts, live.agent, total(10))
        await until(lambda: holder.refused > 1)
        holder.is_refusing = False
        await until(lambda: len(holder.typed) > 1)  # taken, and it goes on
        assert set(holder.typed) == {engine.interrupt}
        assert await levels(parts) == [("budget.reached", "amy", "amy")]

    run(main)


def test_o2_once_for_a_turn_and_nothing_for_one_that_waits(engine: ToldEngine) -> None:
    async def main(parts: Parts) -> None:
        busy = await parts.hold(amy := parts.put("amy", Working(), budget=TEN))
        idle = await parts.hold(bob := parts.put("bob", Idle(), budget=TEN))
        asked = await parts.hold(cleo := parts.put("cleo", Blocked(on="question"), budget=TEN))
        family = budgets.Family(live.agent for live in parts.registry)
        for live in (amy, bob, cleo):
            await count(parts, live.agent, total(10))
            for _ in range(3):
                await parts.hub.budgets._look(live, family)
        key = engine.interrupt
        assert (busy.typed, idle.typed, asked.typed) == ([key], [], [key])
        assert len(await levels(parts)) == 3

    run(main)


@pytest.mark.parametrize(
    ("tokens", "kinds", "is_refused"),
    [
        (7, [], False),
        (8, ["budget.warned"], False),
        (9, ["budget.warned"], False),
        (10, ["budget.reached"], True),
    ],
)
def test_o2_warned_once_and_refused_at_the_end_only(
    tokens: int, kinds: list[str], is_refused: bool
) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle(), budget=TEN)
        await count(parts, live.agent, total(tokens))
        family = budgets.Family([live.agent])
        for _ in range(2):
            await parts.hub.budgets._look(live, family)
        another = budgets.Budgets(parts.supervisor, parts.hub.usage, parts.hub.delivery)
        await another._look(live, family)  # of the next hub
        assert [kind for kind, _, _ in await levels(parts)] == kinds
        assert bool(parts.hub.budgets.refusal("amy")) == is_refused
        # Another run of the same agent is told anew.
        live.agent = live.agent.model_copy(update={"run": "r2"})
        await parts.hub.budgets._look(live, family)
        assert [kind for kind, _, _ in await levels(parts)] == kinds * 2

    run(main)


def test_o2_a_parents_budget_binds_its_children_and_the_parent_is_told_of_the_end() -> None:
    async def main(parts: Parts) -> None:
        parts.put("amy", Idle(), budget=TEN)
        child = parts.put("bob", Idle(), parent="amy")
        family = budgets.Family(live.agent for live in parts.registry)
        await count(parts, child.agent, total(9))
        await parts.hub.budgets._look(child, family)
        assert await parts.inbox() == []  # a warning is no end
        assert parts.hub.budgets.refusal("bob") == ""
        await count(parts, child.agent, total(10))
        await parts.hub.budgets._look(child, family)
        assert ["bob was stopped" in one.text for one in await parts.inbox()] == [True]
        assert "the budget of amy is used up" in parts.hub.budgets.refusal("bob")
        assert "your budget is used up" in parts.hub.budgets.refusal("amy")

    run(main)


def test_o2_minutes_are_looked_at_while_somebody_works(pace: None) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle(), budget=Budget(minutes=1))
        holder = await parts.hold(live)
        await parts.hub.usage.load()
        await parts.tell("amy", Working())
        await until(lambda: parts.hub.usage.is_working(live.agent))
        await watch(parts)
        # Nothing is told any more; the minute goes by.
        parts.hub.usage._clocks["amy"] = time.time() - 59.9, True
        await until(lambda: bool(holder.typed))
        assert ("budget.reached", "amy", "amy") in await levels(parts)

    run(main)


def test_o2_the_trouble_of_one_does_not_free_the_others(
    pace: None, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(parts: Parts) -> None:
        amy = parts.put("amy", Working(), budget=TEN)
        parts.put("bob", Idle(), budget=TEN)  # what its child spends is part of it
        await parts.change(
            "CREATE TRIGGER full BEFORE INSERT ON messages BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
        amy.agent = amy.agent.model_copy(update={"parent": "bob"})
        await watch(parts)
        await count(parts, amy.agent, total(10))
        await until(lambda: "cannot enforce a budget" in caplog.text)
        while ("budget.reached", "bob", "bob") not in await levels(parts):
            await asyncio.sleep(0.01)
        await parts.change("DROP TRIGGER full")
        while ("budget.reached", "amy", "amy") not in await levels(parts):
            await asyncio.sleep(0.01)  # it is tried again, although nothing is used any more

    run(main)
