"""What one agent may write into the hub, whatever it tries."""

import time

import pytest

from bullpen.errors import BullpenError
from bullpen.hub.messages import box
from bullpen.hub.quotas import LIMITS, Quotas
from bullpen.model.quota import Limit, left_after, wait_for
from bullpen.model.state import Idle
from tests.hub.parts import Parts, in_parts, message

LIMIT = Limit(at_once=10, per_second=2)

THERE = {"amy", "bob", "cat", "root"}


@pytest.mark.parametrize(
    ("left", "seconds", "then"), [(0, 0, 0), (0, 1, 2), (0, 100, 10), (9, 1, 10), (4, -5, 4)]
)
def test_x8_what_was_used_comes_back_with_time(left: float, seconds: float, then: float) -> None:
    assert left_after(LIMIT, left, seconds) == then


@pytest.mark.parametrize(("left", "amount", "wait"), [(10, 10, 0), (0, 1, 0.5), (0, 99, 5)])
def test_x8_how_long_to_wait_is_known(left: float, amount: float, wait: float) -> None:
    assert wait_for(LIMIT, left, amount) == wait


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_x8_one_agent_spends_its_own_and_the_owner_has_no_limit() -> None:
    clock = Clock()
    quotas = Quotas(clock)
    for _ in range(int(LIMITS["messages"].at_once)):
        quotas.spend("amy", {"messages": 1})
    with pytest.raises(BullpenError, match="amy has sent too many messages") as caught:
        quotas.spend("amy", {"messages": 1})
    assert caught.value.details == {"error": "rate_limited", "retry_after": 1}
    quotas.spend("bob", {"messages": 1})
    quotas.spend("", {"messages": 1e9})
    clock.now += 1
    quotas.spend("amy", {"messages": 1})


def test_x8_what_is_refused_costs_nothing() -> None:
    quotas = Quotas(Clock())
    most = LIMITS["message_bytes"].at_once
    with pytest.raises(BullpenError, match="bytes of messages"):
        for _ in range(3):
            quotas.spend("amy", {"messages": 1, "message_bytes": most / 2})
    quotas.spend("amy", {"messages": LIMITS["messages"].at_once - 2})


# ── messages that wait, and those that arrived ──


def test_x8_so_much_of_one_agent_waits_for_another_and_not_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(box, "MOST_OF_ONE", 3)
    monkeypatch.setattr(box, "MOST_BYTES_OF_ONE", 1000)

    async def main(parts: Parts) -> None:
        messages = parts.hub.messages
        for _ in range(3):
            await messages.send(message("x", sender="bob"))
        with pytest.raises(BullpenError, match="too many messages wait for amy"):
            await messages.send(message("x", sender="bob"))
        with pytest.raises(BullpenError, match="too many messages wait for amy"):
            await messages.send(message("x" * 1001, sender="cid"))
        for _ in range(5):
            await messages.send(message("x" * 1000))  # the owner's
        # An attack counts only if it works without the defence.
        with monkeypatch.context() as without:
            without.setattr(box.Messages, "_is_too_much", lambda *_: False)
            await messages.send(message("x" * 1001, sender="cid"))
        await messages.mark_read(messages.queue("amy"))
        await messages.send(message("x", sender="bob"))

    in_parts(main)


def test_x8_messages_that_have_arrived_expire_and_those_on_their_way_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(box, "EXPIRE_ROWS", 2)

    async def main(parts: Parts) -> None:
        parts.put(state=Idle())
        messages = parts.hub.messages
        sent = [await messages.send(message(f"old {number}")) for number in range(8)]
        await messages.mark_read(sent[:3])
        await messages.mark_delivered(sent[3:5])
        await messages.mark_sent(sent[5:6], "lines")
        assert await messages.expire(time.time() - 100, THERE) == 0
        assert await messages.expire(time.time() + 100, THERE) == 6
        assert [one.text for one in await parts.inbox()] == ["old 6", "old 7"]

    in_parts(main)
