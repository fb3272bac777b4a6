"""Directors as the page shows them: how the hub says that they stand, and what each says of itself;
and an entry of a scheduler that is run now.

Called by `web/routes`. A director is asked at its socket in the home, of which the hub has named
the process: never at a port or an address. One that does not answer is shown without its own words.
"""

import asyncio
from pathlib import Path
from typing import Any, TypeVar

from bullpen.client import AsyncHub
from bullpen.client.call import Call
from bullpen.client.directors import list_directors
from bullpen.component import ask
from bullpen.directors import calls
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.model.director import DirectorShown

T = TypeVar("T")

MOST = 100  # of whatever a director lists
LOG_ENTRIES = 30
NEXT_RUNS = 5
LAST = 10  # of what is over
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
        return (await self._ask(name, calls.run_entry(entry))).to_json()

    async def give_goal(self, name: str, prompt: str, request: str | None) -> dict[str, Any]:
        """Have that manager lead others to it: the goal's id."""
        return (await self._ask(name, calls.give_goal(prompt, request))).model_dump()

    async def cancel_goal(self, name: str, id: str) -> dict[str, Any]:
        """End a goal; one that is over stays as it is."""
        return (await self._ask(name, calls.cancel_goal(id))).to_json()

    async def _ask(self, name: str, call: Call[T]) -> T:
        """At the director's own socket; only of one that the hub knows."""
        shown = await self._hub.do(list_directors())
        director = next((one for one in shown if one.name == name), None)
        if director is None:
            raise BullpenError(f"no director called {name[:80]}", kind=Kind.NOT_FOUND)
        hint = f"bullpen director start {name}"
        if director.pid is None:
            raise BullpenError(f"{name} does not run", hint=hint, kind=Kind.UNAVAILABLE)
        socket = self._home.component_socket(director.pid)
        try:
            return await asyncio.to_thread(ask.do, socket, call)
        except ask.NoAnswerError as error:
            raise BullpenError(f"{name} does not answer", kind=Kind.UNAVAILABLE) from error

    async def _with_own_words(self, one: DirectorShown) -> dict[str, Any]:
        words = None
        if one.pid is not None:
            words = await asyncio.to_thread(own_words, self._home.component_socket(one.pid))
        return {**one.model_dump(mode="json"), "says": words}


def own_words(socket: Path) -> dict[str, Any] | None:
    """What that director says of itself; None: nothing. `/status` is there in every director; what
    else it has to say depends on its type."""
    try:
        status = ask.get_status(socket)
    except (ask.NoAnswerError, BullpenError):
        return None
    work, agents = _find(socket, calls.list_tasks()), _find(socket, calls.list_agents())
    schedule, history = _find(socket, calls.get_schedule()), _find(socket, calls.list_history())
    entries = schedule.schedule if schedule else ()
    runs = sorted((at, one.name) for one in entries for at in one.next_runs)
    shown = [one.to_json() for one in entries[:MOST]]
    return {
        "type": status.config.get("type", ""),
        "version": status.version,
        "current_task": status.current_task and status.current_task.model_dump(mode="json"),
        "log": [one.model_dump(mode="json") for one in status.log[-LOG_ENTRIES:]],
        "tasks": [one.to_json() for one in work.tasks[:MOST]] if work else [],
        "problems": [one.model_dump(mode="json") for one in work.problems[:MOST]] if work else [],
        "agents": [one.to_json() for one in agents.agents[:MOST]] if agents else [],
        "last_poll": agents.last_poll if agents else None,
        "schedule": [{key: one.get(key) for key in SHOWN} for one in shown],
        "over": [one.model_dump(mode="json") for one in history.items[:LAST]] if history else [],
        "next_runs": [{"at": at, "name": name} for at, name in runs[:NEXT_RUNS]],
    }


def _find(socket: Path, call: Call[T]) -> T | None:
    """None where there is no answer that fits: a type of directors has not all of them."""
    try:
        return ask.do(socket, call)
    except (ask.NoAnswerError, BullpenError):
        return None
