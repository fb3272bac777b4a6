"""Following a task to its end, whatever happens to the hub meanwhile.

Called by `cli/tasks/wait.py`. Prints nothing.
"""

from collections.abc import Iterator

from bullpen.client import tasks
from bullpen.client.hub import Hub
from bullpen.client.task_events import TaskEvent
from bullpen.errors import BullpenError, Kind


def follow(hub: Hub, id: str, agent: str = "") -> Iterator[TaskEvent]:
    """What it says and does, from its beginning until it is over; the last is `end`. What was
    told is not told again, but for `state`."""
    try:
        for event in hub.follow(tasks.stream_task(id, agent)):
            if event.name:
                yield event
    except BullpenError as error:
        if error.kind is not Kind.UNAVAILABLE:
            raise
        raise BullpenError(
            f"lost sight of task {id}: {error.message}",
            hint=f"it goes on without us · bullpen task show {id}",
            kind=Kind.UNAVAILABLE,
        ) from error
