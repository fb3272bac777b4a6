"""What agents use, and their budgets, on the parts of a hub: counted for the right one, once, also
by the next hub; acted on once, and again where it did not help."""

import asyncio
import time
from typing import Any

import pytest

from bullpen.engines import ENGINES
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.usage import budgets
from bullpen.hub.usage import count as usage_count
from bullpen.hub.usage.count import Usage, key_of
from bullpen.hub.usage.delegated import DelegatedCosts, Spent
from bullpen.hub.usage.metrics import UsageAmount
from bullpen.model.agent import Agent
from bullpen.model.event import Draft
from bullpen.model.fold import fold
from bullpen.model.role import Budget
from bullpen.model.state import Blocked, Draining, EngineReport, Idle, Staged, State, Working
from bullpen.model.usage_series import Step
from tests.hub.parts import Parts, in_parts, until
from tests.hub.stand_ins import ENGINE, ToldEngine

STEPS: tuple[Step, ...] = ("15m", "1h", "1d")


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> ToldEngine:
    made = ToldEngine()
    monkeypatch.setitem(ENGINES, ENGINE, made)
    return made


def total(
    amount: float, series: bytes = b"s", field: str = "input", model: str = "m"
) -> UsageAmount:
    return UsageAmount(field, model, amount, series, is_total=True)


def once(amount: float, key: bytes = b"k", field: str = "requests") -> UsageAmount:
    return UsageAmount(field, "m", amount, key)


async def count(parts: Parts, agent: Agent, *counted: UsageAmount) -> None:
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

    in_parts(main)


def test_o1_who_is_gone_for_long_and_counts_for_nobody_is_forgotten() -> None:
    day = 86400.0

    async def main(parts: Parts) -> None:
        usage, now = parts.hub.usage, time.time()
        lines = {"lead": "", "middle": "lead", "leaf": "middle", "top": "", "between": "top"}
        lines |= {"low": "between", "there": "", "late": ""}
        made = {name: parts.put(name, parent=parent).agent for name, parent in lines.items()}
        for name in ("leaf", "top", "low", "there"):
            await usage._take(made[name], [once(1)], now - 401 * day)
        await usage._take(made["late"], [once(1)], now - 399 * day)
        for name in ("middle", "leaf", "top", "between", "low", "late"):
            parts.registry.drop(name)
        assert await usage.expire(now - 400 * day) == 2
        kept = {"leaf": "its lead is there", "there": "it is there", "late": "it was not long ago"}
        for each in (usage, await next_hub(parts)):
            known = {name for name, agent in made.items() if each.of(agent).requests}
            assert known == {*kept}
            lines_left = {name for name, agent in made.items() if each.children_of(key_of(agent))}
            assert lines_left == {"lead", "middle"}
        assert await usage.expire(now - 400 * day) == 0

    in_parts(main)


def test_o1_two_things_that_one_entry_tells_both_count_and_once() -> None:
    async def main(parts: Parts) -> None:
        amy = parts.put().agent
        for _ in range(2):
            await count(parts, amy, once(1, field="tool_calls"), once(2.5, field="tool_seconds"))
        found = parts.hub.usage.of(amy)
        assert (found.tool_calls, found.tool_seconds) == (1, 2.5)

    in_parts(main)


def test_o1_an_agent_of_the_same_name_that_was_made_later_begins_at_nothing() -> None:
    async def main(parts: Parts) -> None:
        amy = parts.put().agent
        await count(parts, amy, total(100))
        later = amy.model_copy(update={"created": "c2", "run": "r2"})
        assert parts.hub.usage.of(later).input == 0
        await count(parts, later, total(7, b"another"))
        for each in (parts.hub.usage, await next_hub(parts)):
            assert (each.of(amy).input, each.of(later).input) == (100, 7)

    in_parts(main)


def test_o1_series_of_agents_that_are_gone_are_forgotten_and_of_others_not() -> None:
    async def main(parts: Parts) -> None:
        amy, bob, cleo = (parts.put(name).agent for name in ("amy", "bob", "cleo"))
        for agent in (amy, bob, cleo):
            await count(parts, agent, total(100))
        parts.registry.drop("bob")
        parts.registry.drop("cleo")
        parts.registry.mark_broken("cleo", "cannot be read")  # its program may well go on
        await next_hub(parts)
        select = "SELECT agent FROM usage_series ORDER BY 1"
        rows = await parts.store.read(lambda database: database.execute(select).fetchall())
        assert rows == [("amy",), ("cleo",)]

    in_parts(main)


def test_o1_what_was_seen_is_forgotten_after_days_only() -> None:
    async def main(parts: Parts) -> None:
        amy, counts, now = parts.put().agent, parts.hub.usage, time.time()
        day = 86400.0
        await counts._take(amy, [once(1, b"old")], now - 3 * day)
        await counts._take(amy, [once(1, b"new")], now - day)
        await counts._take(amy, [once(1, b"now")], now)
        select = "SELECT key FROM usage_seen ORDER BY at"
        rows = await parts.store.read(lambda database: database.execute(select).fetchall())
        assert rows == [(b"new",), (b"now",)]

    in_parts(main)


def test_v10_what_counts_once_is_once_in_the_series_of_its_agent_and_pod() -> None:
    async def main(parts: Parts) -> None:
        amy = parts.put().agent.model_copy(update={"pod": "p"})
        bob = parts.put("bob").agent
        counts, now = parts.hub.usage, time.time()
        for _ in range(2):
            await counts._take(amy, [total(100), once(0.5, field="usd")], now)
        await counts._take(bob, [total(30)], now)
        for step in STEPS:
            by_agent = await counts.series("agent", step, 86400, now)
            assert [(one.name, sum(one.tokens), sum(one.usd)) for one in by_agent.lines] == [
                ("amy", 100, 0.5),
                ("bob", 30, 0),
            ]
            by_pod = await counts.series("pod", step, None, now)
            assert [(one.name, sum(one.tokens)) for one in by_pod.lines] == [("p", 100), ("", 30)]
            assert (await (await next_hub(parts)).series("pod", step, None, now)) == by_pod

    in_parts(main)


def test_v10_quarters_of_an_hour_are_forgotten_after_days_and_days_never() -> None:
    async def main(parts: Parts) -> None:
        amy, counts, now = parts.put().agent, parts.hub.usage, time.time()
        day = 86400.0
        for age in (30 * day, 3 * day, 0.0):
            await counts._take(amy, [once(8, str(age).encode(), "input")], now - age)
        select = "SELECT COUNT(*) FROM usage_quarters"
        rows = await parts.store.read(lambda database: database.execute(select).fetchall())
        assert rows == [(2,)]
        sums = {}
        for step in STEPS:
            (line,) = (await counts.series("agent", step, None, now)).lines
            sums[step] = sum(line.tokens)
        assert sums == {"15m": 8, "1h": 16, "1d": 24}

    in_parts(main)


def test_o1_as_many_models_as_are_kept_and_the_others_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(usage_count, "MOST_MODELS", 3)

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

    in_parts(main)


def test_o1_a_report_begins_with_the_day_that_is_named() -> None:
    async def main(parts: Parts) -> None:
        amy, now = parts.put().agent, time.time()
        for days in (0, 1, 2, 3):
            await parts.hub.usage._take(amy, [once(1, bytes([days]))], now - days * 86400)
        report = await parts.hub.usage.report("day", 2 * 86400, now)
        assert len(report.rows) == 3
        assert report.since == report.rows[0].name
        assert report.total.requests == 3

    in_parts(main)


# ── time of work ──


def state_at(live: LiveAgent, state: State, at: float) -> Draft:
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

    in_parts(main)


def test_o2_the_last_task_of_an_agent_that_leaves_is_work() -> None:
    async def main(parts: Parts) -> None:
        amy, counts = parts.put(kind="headless"), parts.hub.usage
        await counts.load()
        seen = (
            Staged(at=5.0, says="x", stage=Idle()),
            EngineReport(at=10.0, source="task", says="x", state=Working()),
            Staged(at=20.0, says="x", stage=Draining()),
            EngineReport(at=40.0, source="task", says="x", state=Idle()),
        )
        for each in seen:
            amy.view = fold(amy.view, each)
            data = amy.view.model_dump(mode="json")
            await parts.store.append(Draft(each.at, "agent.state", "amy", data))
        await until(lambda: counts.of(amy.agent).work_seconds == 30.0)
        assert not counts.is_working(amy.agent)

    in_parts(main)


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

    in_parts(main)


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

    in_parts(main)


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

            async def read(self, query: Any) -> Any:
                page = await parts.store.read(query)
                if not page:
                    await parts.store.append(state_at(amy, Idle(), 25.0))
                return page

        counts = Usage(BusyStore(), parts.registry)  # type: ignore[arg-type]
        parts.store.on_commit = lambda events: loop.call_soon_threadsafe(counts.notice, events)
        await counts.load()
        assert counts.of(amy.agent).work_seconds == 15.0
        assert not counts.is_working(amy.agent)

    in_parts(main)


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

    in_parts(main)


def test_o2_once_for_a_turn_and_nothing_for_one_that_waits(engine: ToldEngine) -> None:
    async def main(parts: Parts) -> None:
        busy = await parts.hold(amy := parts.put("amy", Working(), budget=TEN))
        idle = await parts.hold(bob := parts.put("bob", Idle(), budget=TEN))
        asked = await parts.hold(cleo := parts.put("cleo", Blocked(on="question"), budget=TEN))
        family = parts.hub.budgets.family()
        for live in (amy, bob, cleo):
            await count(parts, live.agent, total(10))
            for _ in range(3):
                await parts.hub.budgets._look(live, family)
        key = engine.interrupt
        assert (busy.typed, idle.typed, asked.typed) == ([key], [], [key])
        assert len(await levels(parts)) == 3

    in_parts(main)


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
        family = parts.hub.budgets.family()
        for _ in range(2):
            await parts.hub.budgets._look(live, family)
        another = budgets.Budgets(
            parts.home,
            parts.store,
            parts.registry,
            parts.hub.usage,
            parts.hub.delivery,
            DelegatedCosts(parts.store),
        )
        await another._look(live, family)  # of the next hub
        assert [kind for kind, _, _ in await levels(parts)] == kinds
        assert bool(parts.hub.budgets.refusal("amy")) == is_refused
        # Another run of the same agent is told anew.
        live.agent = live.agent.model_copy(update={"run": "r2"})
        await parts.hub.budgets._look(live, family)
        assert [kind for kind, _, _ in await levels(parts)] == kinds * 2

    in_parts(main)


def test_o2_a_parents_budget_binds_its_children_and_the_parent_is_told_of_the_end() -> None:
    async def main(parts: Parts) -> None:
        parts.put("amy", Idle(), budget=TEN)
        child = parts.put("bob", Idle(), parent="amy")
        family = parts.hub.budgets.family()
        await count(parts, child.agent, total(9))
        await parts.hub.budgets._look(child, family)
        assert await parts.inbox() == []  # a warning is no end
        assert parts.hub.budgets.refusal("bob") == ""
        await count(parts, child.agent, total(10))
        await parts.hub.budgets._look(child, family)
        assert ["bob was stopped" in one.text for one in await parts.inbox()] == [True]
        assert "the budget of amy is used up" in parts.hub.budgets.refusal("bob")
        assert "your budget is used up" in parts.hub.budgets.refusal("amy")

    in_parts(main)


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

    in_parts(main)


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

    in_parts(main)


def test_m8_what_a_removed_child_spent_stays_spent() -> None:
    async def main(parts: Parts) -> None:
        lead = parts.put("lead", Idle(), budget=Budget(tokens=100, minutes=10))
        for number, name in enumerate(("one", "two")):
            child = parts.put(name, Idle(), parent="lead", created=f"c{number}")
            below = parts.put(f"{name}.w", Idle(), parent=name, created=f"b{number}")
            await count(parts, child.agent, total(10))
            await count(parts, below.agent, total(20))
            for live in (below, child):
                parts.registry.drop(live.agent.name)
        assert parts.hub.budgets.share(lead.agent, 1) == Budget(tokens=20, minutes=5)
        # Also for the next hub, and if another agent has the name.
        usage = Usage(parts.store, parts.registry)
        await usage.load()
        parts.put("one", Idle(), created="later")
        another = budgets.Budgets(
            parts.home,
            parts.store,
            parts.registry,
            usage,
            parts.hub.delivery,
            DelegatedCosts(parts.store),
        )
        assert another.share(lead.agent, 1) == Budget(tokens=20, minutes=5)
        assert another.share(parts.registry.get("one").agent, 1) == Budget()
        await count(parts, lead.agent, total(40))
        assert "your budget is used up: 100 of 100" in parts.hub.budgets.refusal("lead")
        # Without the record of whose child it was, all of it would be there again.
        usage._children.clear()
        assert another.share(lead.agent, 1) == Budget(tokens=50, minutes=5)

    in_parts(main)


def test_m8_a_removed_child_counts_in_its_pod_and_after_an_adoption() -> None:
    async def main(parts: Parts) -> None:
        pod = {"pod": "team", "pod_budget": Budget(tokens=100)}
        lead = parts.put("lead", Idle(), budget=Budget(tokens=50), **pod)
        parts.put("middle", Idle(), parent="lead", **pod)
        leaf = parts.put("leaf", Idle(), parent="middle", **pod)
        await count(parts, leaf.agent, total(10))
        parts.registry.drop("middle")
        leaf.agent = leaf.agent.model_copy(update={"parent": "lead"})
        await count(parts, leaf.agent, total(20))
        parts.registry.drop("leaf")
        [own, of_pod] = parts.hub.budgets.family().scopes_of(lead.agent)
        assert own.removed == of_pod.removed
        assert set(own.removed) == {("middle", "c1"), ("leaf", "c1")}
        assert parts.hub.budgets.share(lead.agent, 1) == Budget(tokens=15)

    in_parts(main)


@pytest.mark.parametrize("is_removed", [False, True])
@pytest.mark.parametrize(
    ("spent", "left"),
    [
        ((10, 20), 60),  # less than its part, which it may still spend
        ((10, 50), 40),  # more, by who descends from it: reports come late
        ((50, 10), 40),
    ],
)
def test_m8_what_descends_from_a_child_spends_the_childs_part_and_what_is_more_counts(
    spent: tuple[int, int], left: int, is_removed: bool
) -> None:
    async def main(parts: Parts) -> None:
        lead = parts.put("lead", Idle(), budget=Budget(tokens=100))
        child = parts.put("kid", Idle(), parent="lead", budget=Budget(tokens=40))
        below = parts.put("kid.w", Idle(), parent="kid", budget=Budget(tokens=15))
        for live, amount in zip((child, below), spent, strict=True):
            await count(parts, live.agent, total(amount))
        if is_removed:
            parts.registry.drop("kid.w")
        assert parts.hub.budgets.share(lead.agent, 1) == Budget(tokens=left // 2)

    in_parts(main)


def test_o2_nothing_is_kept_of_runs_that_are_over_and_of_agents_that_are_removed() -> None:
    async def main(parts: Parts) -> None:
        usage, watched = parts.hub.usage, parts.hub.budgets
        await watch(parts)
        for number in range(3):
            live = parts.put("amy", Working(), run=f"r{number}", budget=TEN)
            gone = parts.put(f"gone{number}", Working(), run=f"g{number}", budget=TEN)
            for each in (live, gone):
                await count(parts, each.agent, total(10, f"s{number}".encode()))
                await parts.tell(each.agent.name, Idle())
            await until(
                lambda number=number: {f"r{number}", f"g{number}"} <= watched._recorded.keys()
            )
            await until(lambda number=number: {"amy", f"gone{number}"} <= usage._clocks.keys())
            parts.registry.drop(gone.agent.name)
        usage.changed.set()
        await until(lambda: watched._recorded.keys() == {"r2"})
        await usage.flush()
        assert usage._clocks.keys() == usage._series.keys() == usage._models.keys() == {"amy"}
        assert (await next_hub(parts)).of(live.agent).tokens == 30

    in_parts(main)


def test_m8_what_tasks_cost_that_an_agent_gave_is_part_of_its_budget() -> None:
    async def main(parts: Parts) -> None:
        lead = parts.put("lead", Idle(), budget=Budget(tokens=100))
        costs = parts.hub.budgets._delegated
        key = ("lead", lead.agent.created)
        costs.note_open(key, "t-1", Budget(tokens=40), Spent(tokens=10))
        assert parts.hub.budgets.share(lead.agent, 1) == Budget(tokens=30)  # of 100 less 40
        spent = Spent(tokens=60)  # a last request may have cost more than was left
        await parts.store.write(lambda transaction: costs.write(transaction, key, spent))
        costs.note_over(key, "t-1", spent)
        assert parts.hub.budgets.share(lead.agent, 1) == Budget(tokens=20)
        await count(parts, lead.agent, total(40))
        assert "your budget is used up: 100 of 100" in parts.hub.budgets.refusal("lead")
        assert parts.hub.budgets.share(lead.agent, 1) is None
        following = DelegatedCosts(parts.store)
        await following.load()
        assert following.spent(key) == spent
        assert following.spent(("lead", "another time")) == Spent()

    in_parts(main)
