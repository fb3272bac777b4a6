"""Directors as the page shows them: how the hub says that they stand, and what each says of itself;
and an entry of a scheduler that is run now.

Called by `web/routes`. A director is asked at its socket in the home, of which the hub has named
the process: never at a port or an address. One that does not answer is shown without its own words.
"""

import asyncio
import itertools
from pathlib import Path
from typing import Any

from bullpen.client import AsyncHub
from bullpen.client.call import Call, path, read_fields
from bullpen.client.directors import list_directors
from bullpen.component import ask
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.model.director import DirectorShown

MOST = 100  # of whatever a director lists
LOG_ENTRIES = 30
NEXT_RUNS = 5
SHOWN = ("name", "cron", "timezone", "last", "running")  # of an entry of a schedule


class Directors:
    """Those of one home. `hub` must not start one."""

    def __init__(self, hub: AsyncHub, home: Home) -> None:
        self._hub = hub
        self._home = home

    async def list(self) -> list[dict[str, Any]]:
        """All that have a file or are let in, by name."""
        shown = await self._hub.do(list_directors())
        return list(await asyncio.gather(*map(self._with_own_words, shown)))

    async def run_entry(self, name: str, entry: str) -> dict[str, Any]:
        """Run that entry of that scheduler now: the occurrence's id."""
        shown = await self._hub.do(list_directors())
        director = next((one for one in shown if one.name == name), None)
        if director is None:
            raise BullpenError(f"no director called {name[:80]}", kind=Kind.NOT_FOUND)
        hint = f"bullpen director start {name}"
        if director.pid is None:
            raise BullpenError(f"{name} does not run", hint=hint, kind=Kind.UNAVAILABLE)
        socket = self._home.component_socket(director.pid)
        call = Call("POST", path("schedule", "task", entry, "run"), read=read_fields)
        try:
            return dict(await asyncio.to_thread(ask.do, socket, call))
        except ask.NoAnswerError as error:
            raise BullpenError(f"{name} does not answer", kind=Kind.UNAVAILABLE) from error

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
        "schedule": [{key: one.get(key) for key in SHOWN} for one in schedule[:MOST]],
        "next_runs": [
            {"at": at, "name": name} for at, name in itertools.islice(sorted(runs), NEXT_RUNS)
        ],
    }


def _answer(socket: Path, target: str) -> dict[str, Any]:
    """Empty where there is none."""
    try:
        fields = ask.do(socket, Call("GET", target, read=read_fields))
    except (ask.NoAnswerError, BullpenError):
        return {}
    return fields if isinstance(fields, dict) else {}
