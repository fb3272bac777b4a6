"""Which branches conflict, for all pages that are open: one look for all of them, when something
has happened since the last one, and with a rest after each. The hub's look runs git.

Called by `web/routes`.
"""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

from bullpen.client import AsyncHub
from bullpen.client.async_hub import RawAnswer
from bullpen.client.changes import list_conflicts

REST_SECONDS = 10.0
REST_TIMES = 20  # as long as the look took: it costs a twentieth of a core at most
# People commit, too, and no event says so: it is looked now and then, at a two-hundredth of a core.
KEPT_SECONDS = 60.0
KEPT_TIMES = 200


@dataclass(frozen=True)
class Look:
    """What the hub said. `event`: the last one that a page knew when it was asked."""

    answer: RawAnswer
    event: int
    began: float
    ended: float

    def rest_seconds(self, now: float) -> float:
        """How long until the next one may begin."""
        rest = max(REST_SECONDS, REST_TIMES * (self.ended - self.began))
        return max(0.0, self.ended + rest - now)

    @property
    def kept_seconds(self) -> float:
        """How long it counts where nothing has happened."""
        took = self.ended - self.began
        return min(KEPT_SECONDS, max(REST_SECONDS, KEPT_TIMES * took))

    def is_due(self, event: int, now: float) -> bool:
        """Whether a page that knows of that event needs another one, and may have it."""
        is_old = event > self.event or now - self.ended > self.kept_seconds
        return is_old and self.rest_seconds(now) == 0.0


class Conflicts:
    """Those of one home. `hub` must not start one."""

    def __init__(self, hub: AsyncHub) -> None:
        self._hub = hub
        self._last: Look | None = None
        self._looking = asyncio.Lock()

    async def list(self, event: int) -> RawAnswer:
        """What the hub says, as of that event if it was time for a look; and `again_seconds`, after
        which there may be more to say."""
        async with self._looking:
            if self._last is None or self._last.is_due(event, time.monotonic()):
                began = time.monotonic()
                answer = await self._hub.fetch(list_conflicts())
                self._last = Look(answer, event, began, time.monotonic())
            last = self._last
        if last.answer.status >= 400:
            return last.answer
        wait = last.rest_seconds(time.monotonic()) if event > last.event else last.kept_seconds
        fields: dict[str, Any] = {**json.loads(last.answer.body), "again_seconds": wait}
        return RawAnswer(200, json.dumps(fields).encode(), last.answer.content_type)
