"""A program that prints what a test tells it."""

import os
from typing import Any

from tests.holder.factory import Factory
from tests.holder.programs import FED, python


class Feed:
    """A program that prints what it is told, and a client that watches it do so."""

    def __init__(self, factory: Factory, **fields: Any) -> None:
        fifo = factory.root / f"feed{factory.made}"
        os.mkfifo(fifo)
        self.holder = factory.hold(python(FED, fifo), **fields)
        # Read and write: opening it does not wait for a program that may never come.
        self.fifo = os.fdopen(os.open(fifo, os.O_RDWR), "r+b", buffering=0)
        self.watcher = self.holder.connect()
        self.watcher.attach(replay=False)
        self.written = bytearray()

    def say(self, *pieces: bytes) -> None:
        """Each piece is read by the holder before the next is written."""
        for piece in pieces:
            for start in range(0, len(piece), 4000):
                part = piece[start : start + 4000]
                self.fifo.write(part)
                self.written += part
                self.watcher.collect(len(self.written))
        assert self.watcher.output == self.written

    def replay(self) -> bytes:
        """What a new client is shown."""
        client = self.holder.connect()
        shown = client.attach()
        client.close()
        return shown

    def close(self) -> None:
        self.fifo.close()
