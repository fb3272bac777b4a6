"""The messages on their way to one receiver. Called by `box` alone, which keeps one for each.

Everything that is asked on each hook and each change of a state is known without a look at all
messages: ten thousand that wait for an agent must not slow down its tools.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from bullpen.model.message import ENVELOPE_BYTES, ORDER, TEXT_BYTES, Message


class OpenQueue:
    """In the order in which they were sent."""

    def __init__(self) -> None:
        self._all: dict[str, Message] = {}  # by id
        self._by_priority: dict[str, dict[str, Message]] = {
            priority: {} for priority in sorted(ORDER, key=lambda each: ORDER[each])
        }
        self._numbers: dict[str, int] = {}
        self._last = 0
        self._sent: dict[str, None] = {}
        self._counts: Counter[str] = Counter()  # by sender
        self._characters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._all.values())

    def put(self, message: Message) -> None:
        """Add it, or take it for the one of that id."""
        if message.id not in self._all:
            self._counts[message.sender] += 1
            self._characters[message.sender] += len(message.text)
            self._last = self._numbers[message.id] = self._last + 1
        self._all[message.id] = message
        self._by_priority[message.priority][message.id] = message
        if message.status == "sent":
            self._sent[message.id] = None
        else:
            self._sent.pop(message.id, None)

    def drop(self, id: str) -> None:
        """Fine if it is not there."""
        message = self._all.pop(id, None)
        if message is None:
            return
        del self._by_priority[message.priority][id], self._numbers[id]
        self._sent.pop(id, None)
        self._counts[message.sender] -= 1
        self._characters[message.sender] -= len(message.text)
        if not self._counts[message.sender]:
            del self._counts[message.sender], self._characters[message.sender]

    def find(self, ids: Iterable[str]) -> list[Message]:
        """Those of the ids that are there, in their order."""
        there = [id for id in ids if id in self._all]
        return [self._all[id] for id in sorted(there, key=lambda id: self._numbers[id])]

    def sent(self) -> list[Message]:
        """Those that were handed over, and nobody has shown yet."""
        return self.find(self._sent)

    def next_ones(
        self, *, is_urgent: bool = False, may_go: Callable[[Message], bool] | None = None
    ) -> list[Message]:
        """By priority, and as many as are ever handed over at once; `is_urgent`: not the others."""
        ready, size = [], 0
        for priority, messages in self._by_priority.items():
            if is_urgent and priority == "normal":
                continue
            for message in messages.values():
                if may_go is None or may_go(message):
                    ready.append(message)
                    size += len(message.text) + ENVELOPE_BYTES
                if size > TEXT_BYTES:
                    return ready
        return ready

    def of_sender(self, sender: str) -> tuple[int, int]:
        """How many are its, and how many characters."""
        return self._counts[sender], self._characters[sender]
