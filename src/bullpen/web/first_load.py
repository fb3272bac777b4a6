"""What a page needs before it can show anything, in one answer: one request of the browser instead
of six, and it is made before the page's script is there.

Called by `web/routes`. `position` is read first: a stream of events from there misses nothing that
the parts do not have.
"""

import asyncio
from typing import Any

from bullpen.client import AsyncHub
from bullpen.client.agents import list_agents
from bullpen.client.approvals import list_approvals
from bullpen.client.async_hub import RawAnswer
from bullpen.client.call import Call
from bullpen.client.events import list_events
from bullpen.client.landings import list_landings
from bullpen.client.tasks import list_tasks
from bullpen.client.usage import get_usage

NEWEST = 1 << 62


async def first_load(hub: AsyncHub) -> RawAnswer:
    """The parts as the hub answered them, each under its name; or the first that it refused."""
    newest = await hub.do(list_events(before=NEWEST, limit=1))
    calls: dict[str, Call[Any]] = {
        "agents": list_agents(),
        "approvals": list_approvals(),
        "landings": list_landings(everything=True),
        "tasks": list_tasks(),
        "usage": get_usage(by="day", since_seconds=0),
    }
    answers = await asyncio.gather(*(hub.fetch(call) for call in calls.values()))
    for answer in answers:
        if answer.status >= 400:
            return answer
    position = newest.events[0].id if newest.events else 0
    parts = [f'"{name}":'.encode() + one.body for name, one in zip(calls, answers, strict=True)]
    body = b'{"position":%d,%s}' % (position, b",".join(parts))
    return RawAnswer(200, body, "application/json")
