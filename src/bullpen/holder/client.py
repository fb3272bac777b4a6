"""One connection to a holder, and what waits to be sent on it."""

import socket
from collections import deque

from bullpen.holder.frames import Reader, json_frame

# More than that, and the client counts as slow. The frames are shared between clients; with
# 1 MiB a client that reads, on a busy machine, was dropped in the middle of a 5 MB listing.
QUEUE_BYTES = 8 << 20
OUTPUT = (b"O", b"e", b"P")


class Client:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.reader = Reader()
        self.queue: deque[bytes] = deque()
        self.queued = 0
        self.sent = 0  # of the first in the queue
        self.attached = False
        self.read_only = False
        self.live = False
        self.half_answer = b""  # typed so far
        self.waits = False  # until the program has taken what was typed
        self.size: tuple[int, int] | None = None

    def send(self, data: bytes) -> None:
        self.queue.append(data)
        self.queued += len(data)
        if len(self.queue) == 1:
            self.flush()

    def flush(self) -> None:
        """As much as the socket takes now; OSError when the client is gone."""
        while self.queue:
            first = self.queue[0]
            try:
                count = self.connection.send(memoryview(first)[self.sent :])
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
        kept = [
            data
            for number, data in enumerate(self.queue)
            if (number == 0 and self.sent) or data[:1] not in OUTPUT
        ]
        self.queue = deque(kept)
        self.queued = sum(map(len, kept)) - self.sent
        self.live = False
        self.send(json_frame(b"D", {"reason": "slow"}))
