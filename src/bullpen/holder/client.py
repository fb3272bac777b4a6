"""One connection to a holder, and what waits to be sent on it."""

import os
from collections import deque

from bullpen.holder.frames import FrameReader, json_frame

# More than that, and the client counts as slow. The frames are shared between clients; with
# 1 MiB a client that reads, on a busy machine, was dropped in the middle of a 5 MB listing.
QUEUE_BYTES = 8 << 20
OUTPUT = (b"O", b"e", b"P")


class Client:
    """One connection, by its descriptor: socket objects are memory, and slower."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.watched = 0  # what its descriptor is polled for
        self.reader = FrameReader()
        self.queue: deque[bytes] = deque()
        self.queued = 0
        self.sent = 0  # of the first in the queue
        self.attached = False
        self.read_only = False
        self.hears_sizes = False
        self.live = False
        self.half_answer = b""  # typed so far
        self.waits = False  # until the program has taken what was typed
        self.size: tuple[int, int] | None = None

    def send_now(self, data: bytes | memoryview) -> int:
        """How much of it the socket takes before anything has to wait."""
        if self.queue:
            return 0
        try:
            return os.write(self.descriptor, data)
        except BlockingIOError:
            return 0

    def keep(self, data: bytes, sent: int) -> None:
        """To be sent when the socket takes it, but for what was sent of it."""
        if not self.queue:
            self.sent = sent
        self.queue.append(data)
        self.queued += len(data) - sent

    def send(self, data: bytes) -> None:
        """At once or when the socket takes it; OSError when the client is gone."""
        sent = self.send_now(data)
        if sent < len(data):
            self.keep(data, sent)

    def flush(self) -> None:
        """As much as the socket takes now; OSError when the client is gone."""
        while self.queue:
            first = self.queue[0]
            try:
                count = os.write(self.descriptor, memoryview(first)[self.sent :])
            except BlockingIOError:
                return
            self.sent += count
            self.queued -= count
            if self.sent == len(first):
                self.queue.popleft()
                self.sent = 0

    @property
    def is_slow(self) -> bool:
        return self.queued > QUEUE_BYTES

    def drop(self) -> None:
        """Too slow: forget the output that waits, and say so.

        The frame that is half sent is finished, and answers are still given.
        """
        remaining = [
            data
            for number, data in enumerate(self.queue)
            if (number == 0 and self.sent) or data[:1] not in OUTPUT
        ]
        self.queue = deque(remaining)
        self.queued = sum(map(len, remaining)) - self.sent
        self.live = False
        self.send(json_frame(b"D", {"reason": "slow"}))
