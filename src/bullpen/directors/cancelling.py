"""Ending a task at the hub, for directors that may ask for it twice."""

from bullpen.client import AsyncHub
from bullpen.client.tasks import cancel_task
from bullpen.errors import BullpenError, Kind


async def cancel(hub: AsyncHub, task_id: str) -> None:
    """Fine if it is over already, or nobody knows it any more."""
    try:
        await hub.do(cancel_task(task_id))
    except BullpenError as error:
        if error.kind not in (Kind.NOT_FOUND, Kind.CONFLICT):
            raise
