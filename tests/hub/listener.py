"""A client that follows the hub's events."""

import json
import threading
from typing import Any

from bullpen.home.paths import HUB
from bullpen.hot import wire
from tests.hub.pen import Pen


class Listener:
    """Follows the event stream over the home's socket, and resumes wherever it was cut off."""

    def __init__(self, pen: Pen, after: int = 0) -> None:
        self.pen = pen
        self.after = after
        self.events: list[dict[str, Any]] = []
        self.cuts = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def ids(self) -> list[int]:
        return [event["id"] for event in self.events]

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                self._read()
            except (wire.HubError, OSError):
                self._stop.wait(0.01)
            self.cuts += 1

    def _read(self) -> None:
        headers = {"last-event-id": str(self.after)}
        path = str(self.pen.home.socket(HUB))
        rest = b""
        with wire.stream(path, "GET", "/events/stream", headers, timeout=0.5) as answer:
            assert answer.status == 200, answer.status
            for piece in answer:
                *blocks, rest = (rest + piece).split(b"\n\n")
                for block in blocks:
                    self._take(block.decode())
                if self._stop.is_set():
                    return

    def _take(self, block: str) -> None:
        fields: dict[str, str] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
        assert fields.get("event") != "reset", block
        if "id" in fields:
            self.after = int(fields["id"])
        if "data" in fields:
            self.events.append(json.loads(fields["data"]))
