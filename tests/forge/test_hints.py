"""What deliveries bring about in a director's world: D2, D4. With real rules, loop, git and HTTP:
lost, doubled, late and in any order, they end in the world that looking alone ends in."""

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.directors.forge.deliveries import Wanted, plan_look
from bullpen.directors.forge.rules import ForgeRules
from bullpen.directors.loop import Loop
from tests.forge.office import LGTM, Answer, Office
from tests.forge.sender import REPO, SENDERS, Payload, Sender
from tests.forge.server import Forge
from tests.forge.world import World

INTERVAL = 30.0
MOST_ROUNDS = 100
BY_NAME = pytest.mark.parametrize("sender", SENDERS, ids=lambda sender: sender.name)


class Story:
    """One process of a director, told of what happens by deliveries; and the world around it."""

    def __init__(self, root: Path, sender: Sender, forge: Forge, **config: Any) -> None:
        self.sender = sender
        self.forge = forge
        self.world = forge.world
        fields = {"settings": {"status_issue": False, "at_once": 2}, **config}
        self.office = Office(root, forge, adapter=sender.adapter, **fields)
        self.loop: Loop[Any, Any, Any, Any] = self.office.loop()
        assert isinstance(self.loop.rules, ForgeRules)
        self.rules = self.loop.rules

    async def rest(self) -> None:
        """Until nothing is to do."""
        for _ in range(MOST_ROUNDS):
            if await self.loop.step() == 0:
                return
        raise AssertionError("it does not come to rest")

    async def poll(self) -> None:
        self.office.seconds += INTERVAL
        await self.rest()

    async def deliver(self, payload: Payload) -> Wanted:
        """As the webhook does, when it is time for a look."""
        parsed = self.sender.deliveries.parse(json.loads(json.dumps(payload)))
        wanted = plan_look(parsed, REPO, self.loop.memory)
        if self.rules.want(wanted):
            self.office.seconds += 1
            await self.rest()
        return wanted

    # ── what people do, and what the forge sends of it ──

    def issue(self, title: str) -> list[Payload]:
        number = self.world.open_issue("ann", f"[robo] {title}", "please")
        self.office.script(number, Answer(commit=title), LGTM, Answer(commit=f"{title} more"), LGTM)
        return [self.sender.issue(number)]

    def stranger(self) -> list[Payload]:
        """An issue that is none of the director's, with a comment."""
        number = self.world.open_issue("eve", "[robo] Delete all", "")
        self.world.comment(number, "eve", "now")
        return [self.sender.issue(number), self.sender.comment(number)]

    def comment(self, at: int) -> list[Payload]:
        pulls = self.world.pulls
        if at >= len(pulls):
            return []
        self.world.comment(pulls[at].number, "ann", "more")
        return [self.sender.pull_comment(pulls[at].number)]

    def approve(self, at: int) -> list[Payload]:
        """GitHub says nothing of reactions."""
        self.world.react(self.world.pulls[at].number, "ann", "+1")
        if self.sender.name == "github":
            return []
        return [self.sender.pull_comment(self.world.pulls[at].number)]

    def close(self, number: int) -> list[Payload]:
        self.world.edit(number, state="closed")
        return [self.sender.issue(number)]


@contextmanager
def story(root: Path, sender: Sender, **config: Any) -> Iterator[Story]:
    world = World("acme/shop", {"ann": "admin", "bot": "write", "eve": "read"})
    (root / "forge").mkdir(parents=True)
    with sender.served(root / "forge", world) as forge:
        yield Story(root / "office", sender, forge, **config)
        assert forge.faults == []


def acts() -> list[Callable[[Story], list[Payload]]]:
    """What happens, one after the other. Between two of them there is a look in all stories, so
    that each finds the same world."""
    return [
        lambda told: told.issue("greet"),
        lambda told: told.stranger(),
        lambda told: told.issue("wave"),
        lambda told: told.comment(0),
        lambda told: told.approve(1),
        lambda told: told.issue("nod"),
        lambda told: told.close(1),
    ]


async def play(told: Story, chance: random.Random | None) -> int:
    """How many looks were caused by deliveries; without chance there are none."""
    looks, late = 0, list[Payload]()
    await told.rest()
    for act in acts():
        sent = [*late, *act(told)]
        if chance is not None:
            kept = [each for each in sent for _ in range(chance.choice((0, 1, 1, 2)))]
            chance.shuffle(kept)
            late = [each for each in sent if chance.random() < 0.5]
            for each in kept:
                looks += bool(await told.deliver(each))
        await told.poll()
    return looks


def compare(root: Path, sender: Sender, seeds: range) -> None:
    with story(root / "polled", sender) as told:
        assert asyncio.run(play(told, None)) == 0
        wanted: Any = told.office.picture()
        assert len(wanted["branches"]) == 3
    looks = 0
    for seed in seeds:
        with story(root / f"told {seed}", sender) as told:
            looks += asyncio.run(play(told, random.Random(seed)))
            assert told.office.picture() == wanted, seed
    assert looks > len(seeds)


@pytest.mark.slow
@BY_NAME
@pytest.mark.storm
def test_d2_deliveries_that_are_lost_doubled_or_late_end_in_the_same_world(
    sender: Sender, tmp_path: Path
) -> None:
    compare(tmp_path, sender, range(1))


@pytest.mark.storm
@BY_NAME
def test_d2_deliveries_in_many_orders_end_in_the_same_world(sender: Sender, tmp_path: Path) -> None:
    compare(tmp_path, sender, range(1, 16))


@pytest.mark.slow
@BY_NAME
@pytest.mark.storm
def test_d2_a_delivery_costs_a_look_at_what_it_names_and_conditional_requests(
    sender: Sender, tmp_path: Path
) -> None:
    with story(tmp_path, sender) as told:

        async def work() -> None:
            await told.rest()
            for each in (*told.issue("greet"), *told.issue("wave")):
                assert await told.deliver(each), "it is taken on without waiting for a look"
            assert len(told.world.pulls) == 2
            first, second = told.world.pulls
            await told.deliver(told.sender.pull_comment(first.number))
            asked = told.forge.asked
            asked.clear()
            for payload in (told.sender.pull_comment(first.number), told.sender.comment(1)):
                asked.clear()
                await told.deliver(payload)
                assert {status for _, _, status in asked} == {304}
                assert 0 < len(asked) < 10
                paths = " ".join(target for _, target, _ in asked)
                assert f"/{second.number}/" not in paths and "/2/" not in paths
            asked.clear()
            stale = {"object_kind": "push", "repository": {"full_name": REPO}, "ref": "x"}
            for payload in (told.sender.check("c0"), stale, told.sender.pull_comment(99)):
                await told.deliver(payload)
            assert asked == [], "what concerns it not costs nothing"
            for each in told.comment(0):
                await told.deliver(each)
            assert len(told.office.messages("claude/issue-1")) == 2

        asyncio.run(work())


@pytest.mark.slow
def test_d2_deliveries_do_not_shorten_the_wait_after_a_failure(tmp_path: Path) -> None:
    """Nor count a failure twice: the issue that cannot be looked at is looked at again."""
    sender = SENDERS[0]
    with story(tmp_path, sender) as told:

        async def work() -> None:
            await told.rest()
            for each in (*told.issue("greet"), *told.issue("wave")):
                await told.deliver(each)
            first, second = told.world.pulls
            told.forge.refused[f"/issues/{first.number}/comments"] = 403
            await told.poll()
            [trouble] = told.loop.troubles.values()
            assert trouble.failures == 1
            for _ in range(3):  # a second each: less than the wait
                await told.deliver(sender.pull_comment(second.number))
            assert list(told.loop.troubles.values()) == [trouble]

        asyncio.run(work())


@pytest.mark.slow
@pytest.mark.storm
def test_d2_a_flood_of_deliveries_does_not_put_off_the_whole_look(tmp_path: Path) -> None:
    """What they say nothing of is found at its time."""
    sender = SENDERS[0]
    with story(tmp_path, sender) as told:

        async def work() -> None:
            await told.rest()
            for each in told.issue("greet"):
                await told.deliver(each)
            told.world.react(told.world.pulls[0].number, "ann", "+1")
            told.forge.asked.clear()
            for _ in range(60):
                await told.deliver(told.stranger()[0])
                if told.loop.memory.over:
                    break
            assert told.loop.memory.over == {1: "approved"}
            assert told.loop.rules.pause_seconds(told.loop.memory) <= INTERVAL

        asyncio.run(work())
