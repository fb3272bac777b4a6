"""Directors as the page shows them: how the hub says that they stand, and what each says of itself.

Called by `web/routes`. A director is asked at its socket in the home, of which the hub has named
the process: never at a port or an address. One that does not answer is shown without its own words.
"""

import asyncio
import itertools
from pathlib import Path
from typing import Any

from bullpen.client import AsyncHub
from bullpen.client.call import Call, read_fields
from bullpen.client.directors import list_directors
from bullpen.component import ask
from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.model.director import DirectorShown

MOST = 100  # of whatever a director lists
LOG_ENTRIES = 30
NEXT_RUNS = 5


class Directors:
    """Those of one home. `hub` must not start one."""

    def __init__(self, hub: AsyncHub, home: Home) -> None:
        self._hub = hub
        self._home = home

    async def list(self) -> list[dict[str, Any]]:
        """All that have a file or are let in, by name."""
        shown = await self._hub.do(list_directors())
        return list(await asyncio.gather(*map(self._with_own_words, shown)))

    async def _with_own_words(self, one: DirectorShown) -> dict[str, Any]:
        said = None
        if one.pid is not None:
            said = await asyncio.to_thread(own_words, self._home.component_socket(one.pid))
        return {**one.model_dump(mode="json"), "says": said}


def own_words(socket: Path) -> dict[str, Any] | None:
    """What that director says of itself; None: nothing. `/status` is there in every director; what
    else it has to say depends on its type."""
    status = _answer(socket, "/status")
    if not status:
        return None
    held, agents = _answer(socket, "/tasks"), _answer(socket, "/agents")
    schedule = _answer(socket, "/schedule").get("schedule", [])
    runs = [(at, one["name"]) for one in schedule for at in one.get("next_runs", [])]
    return {
        "type": status["config"].get("type", ""),
        "version": status["version"],
        "current_task": status["current_task"],
        "log": status["log"][-LOG_ENTRIES:],
        "tasks": held.get("tasks", [])[:MOST],
        "problems": held.get("problems", [])[:MOST],
        "agents": agents.get("agents", [])[:MOST],
        "last_poll": agents.get("last_poll"),
        "next_runs": [
            {"at": at, "name": name} for at, name in itertools.islice(sorted(runs), NEXT_RUNS)
        ],
    }


def _answer(socket: Path, path: str) -> dict[str, Any]:
    """Empty where there is none."""
    try:
        fields = ask.do(socket, Call("GET", path, read=read_fields))
    except (ask.NoAnswerError, BullpenError):
        return {}
    return fields if isinstance(fields, dict) else {}
