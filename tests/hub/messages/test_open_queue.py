"""What waits for one receiver, however much it is."""

import random
import time
from collections.abc import Iterator

from bullpen.hub.messages.open_queue import OpenQueue
from bullpen.model.message import ORDER, TEXT_BYTES, Message, at_a_tool, in_order, next_step
from bullpen.model.state import Idle
from tests.hub.parts import Parts, in_parts
from tests.hub.parts import message as new_message


def message(number: int, **fields: object) -> Message:
    given = {"text": f"text {number}", "sender": f"s{number % 3}", "created": float(number)}
    return Message.model_validate({"id": f"m-{number:012x}", "to": "amy", **given, **fields})


class CountingQueue(OpenQueue):
    """Says how many messages were looked at one by one."""

    looked = 0

    def __iter__(self) -> Iterator[Message]:
        for each in super().__iter__():
            self.looked += 1
            yield each


def test_g1_it_says_what_a_plain_list_would_say() -> None:
    chance = random.Random(7)
    queue, plain = OpenQueue(), dict[str, Message]()
    for number in range(400):
        choice = chance.random()
        if choice < 0.5 or not plain:
            new = message(number, priority=chance.choice(list(ORDER)))
            queue.put(new)
            plain[new.id] = new
        elif choice < 0.7:
            changed = chance.choice(list(plain.values()))
            changed = changed.model_copy(update={"sent": chance.choice([None, 1.0])})
            queue.put(changed)
            plain[changed.id] = changed
        else:
            gone = chance.choice([*plain, "m-unknown"])
            queue.drop(gone)
            plain.pop(gone, None)
        everything = list(plain.values())
        assert list(queue) == everything
        assert len(queue) == len(everything)
        assert queue.sent() == [each for each in everything if each.status == "sent"]
        assert queue.next_ones() == in_order(everything)
        some = {each.id for each in everything[::2]} | {"m-unknown"}
        assert queue.find(some) == everything[::2]
        for sender in ("s0", "s1", "nobody"):
            mine = [each for each in everything if each.sender == sender]
            assert queue.of_sender(sender) == (len(mine), sum(len(one.text) for one in mine))


def test_g1_what_is_handed_over_next_is_the_same_and_no_longer_than_one_goes() -> None:
    queue = CountingQueue()
    everything = [message(n, text="x" * 5000, priority="urgent") for n in range(1000)]
    for each in everything:
        queue.put(each)
    few = queue.next_ones()
    assert next_step(Idle(), few, 9.0) == next_step(Idle(), everything, 9.0)
    assert at_a_tool(queue.next_ones(is_urgent=True), 8192) == at_a_tool(everything, 8192)
    assert len(few) <= TEXT_BYTES // 5000 + 1
    assert queue.looked == 0


def test_g1_nothing_looks_at_each_of_many_that_wait() -> None:
    """What a hook and a change of state ask for."""
    queue = CountingQueue()
    for number in range(10_000):
        queue.put(message(number))
    queue.put(message(5, sent=1.0))
    assert queue.next_ones(is_urgent=True) == []
    assert [each.id for each in queue.sent()] == [message(5).id]
    assert queue.find([message(7).id, "m-none"]) == [message(7)]
    assert queue.of_sender("s1")[0] == 3333
    assert queue.looked == 0


def test_g1_what_waits_for_nobody_is_kept_no_longer_than_the_rest() -> None:
    async def story(parts: Parts) -> None:
        kept = parts.hub.messages
        for to in ("gone", "amy", "root"):
            await kept.send(new_message(to=to))
        later = time.time() + 100
        assert await kept.expire(time.time() - 100, {"amy"}) == 0
        assert await kept.expire(later, {"amy"}) == 1
        assert [kept.count_open(name) for name in ("gone", "amy", "root")] == [0, 1, 1]
        assert await kept.inbox("gone", 10) == []

    in_parts(story)
