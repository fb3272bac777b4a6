"""Following a task to its end, whatever happens to the hub meanwhile.

A stream that breaks off goes on where it was, with a hub that is started again if need be. Called
by `cli/tasks/wait.py`. Prints nothing.
"""

import time
from collections.abc import Iterator

from bullpen.client import tasks
from bullpen.client.hub import Hub
from bullpen.client.task_events import TaskEvent
from bullpen.errors import BullpenError, Kind

PATIENCE_SECONDS = 180.0  # with a hub that cannot be reached
AGAIN_SECONDS = 0.2
BREAKS = 1000  # of one stream


def follow(hub: Hub, id: str, agent: str = "") -> Iterator[TaskEvent]:
    """What it says and does, from its beginning until it is over; the last is `end`. What was
    told is not told again, but for `state`."""
    mark, reached = "", time.monotonic()
    for _ in range(BREAKS):
        try:
            for event in hub.stream(tasks.stream_task(id, agent, last_event_id=mark)):
                mark, reached = event.mark or mark, time.monotonic()
                if event.name:
                    yield event
                if event.name == "end":
                    return
        except BullpenError:
            pass  # the next look at the task says why
        try:
            hub.do(tasks.get_task(id, agent).unchecked())  # starts the hub
            reached = time.monotonic()
        except BullpenError as error:
            if error.kind is not Kind.UNAVAILABLE:
                raise
            if time.monotonic() - reached > PATIENCE_SECONDS:
                raise _lost_sight(id, error.message) from error
        time.sleep(AGAIN_SECONDS)
    raise _lost_sight(id, "its stream breaks off again and again")


def _lost_sight(id: str, why: str) -> BullpenError:
    return BullpenError(
        f"lost sight of task {id}: {why}",
        hint=f"it goes on without us · bullpen task show {id}",
        kind=Kind.UNAVAILABLE,
    )
