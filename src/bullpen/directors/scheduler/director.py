"""The scheduler as a component: its rules, its file, and the routes below `/schedule`.

Started as every director (`directors/process`). Routes change the person's file; the loop reads it
again when it has changed, whoever changed it.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from bullpen.component.routes import parse_object
from bullpen.directors.config import config_file
from bullpen.directors.director import Director, Shown
from bullpen.directors.history import HistoryRow
from bullpen.directors.scheduler.config import STARTER, Entry, SchedulerConfig, entry_fields
from bullpen.directors.scheduler.cron import NextRuns
from bullpen.directors.scheduler.file import ScheduleFile, no_entry
from bullpen.directors.scheduler.ledger import Given, Ledger, Pending, SchedulerAction, extra_id
from bullpen.directors.scheduler.plan import Snapshot
from bullpen.directors.scheduler.rules import SchedulerRules
from bullpen.directors.scheduler.zone import local_zone
from bullpen.errors import BullpenError

NEXT_RUNS = 3


class Scheduler(Director[Snapshot, Ledger, SchedulerAction, str]):
    """One scheduler."""

    config_type = SchedulerConfig
    starter = STARTER
    config: SchedulerConfig

    def make_rules(self) -> SchedulerRules:
        self.file = ScheduleFile(self.home, config_file(self.home, self.name))
        self._zone = local_zone()
        self._noted_problem = ""
        self._runs = NextRuns(NEXT_RUNS)
        return SchedulerRules(
            self.name, self.hub, self._schedule, lambda: self.loop.refusals, time.time
        )

    def _schedule(self) -> tuple[Mapping[str, Entry], Mapping[str, str]]:
        """As the file says now, or said when it was right."""
        if self.file.look():
            if self.file.problem and self.file.problem != self._noted_problem:
                note = "the file has errors: the schedule of before counts"
                self.life.note("error", note, reason=self.file.problem)
            if self._noted_problem and not self.file.problem:
                self.life.note("info", "the file is right again")
            if not self.file.problem:
                schedule = tuple(self.file.entries.values())
                self.config = self.config.model_copy(update={"schedule": schedule})
            self._noted_problem = self.file.problem
        entries = self.file.entries
        return entries, {name: self.zone_of(entry) for name, entry in entries.items()}

    def zone_of(self, entry: Entry) -> str:
        """The entry's, or this machine's."""
        return entry.timezone or self._zone

    # ── what is shown ──

    def tasks(self, memory: Ledger) -> Sequence[Shown]:
        return [*map(_row_of, memory.given.values()), *map(_row_of, memory.pending)]

    def history(self, memory: Ledger) -> tuple[HistoryRow, ...]:
        return memory.history

    def agents(self, memory: Ledger) -> Sequence[Shown]:
        last = {row.agent: row for row in reversed(memory.history) if row.agent}
        return [
            {"name": name, "last": row.id, "state": row.state, "since": row.completed_at}
            for name, row in sorted(last.items())
        ]

    # ── routes ──

    def more_routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/schedule", self._get_schedule, methods=["GET"]),
            Route("/schedule", self._put_schedule, methods=["PUT"]),
            Route("/schedule/task", self._add_entry, methods=["POST"]),
            Route("/schedule/task/{name}", self._remove_entry, methods=["DELETE"]),
            Route("/schedule/task/{name}/run", self._run_entry, methods=["POST"]),
        ]

    async def _get_schedule(self, _: Request) -> Response:
        return JSONResponse(self._shown())

    def _shown(self) -> dict[str, Any]:
        entries, zones = self._schedule()
        self._runs.forget_others({(one.cron, zones[name]) for name, one in entries.items()})
        running = self.loop.memory.by_entry()
        shown = [self._entry(one, zones[name], running) for name, one in entries.items()]
        return {"schedule": shown, "problem": self.file.problem or None}

    def _entry(
        self, entry: Entry, zone: str, running: Mapping[str, Sequence[str]]
    ) -> dict[str, Any]:
        tracked = self.loop.memory.tracked.get(entry.name)
        ids, troubles = running.get(entry.name, ()), self.loop.troubles
        return {
            **entry_fields(entry),
            "timezone": zone,
            "next_runs": self._runs.of(entry.cron, zone, time.time()),
            "last": tracked.last.model_dump(mode="json") if tracked and tracked.last else None,
            "running": [*ids],
            "waits_for": next((troubles[id].reason for id in ids if id in troubles), None),
        }

    async def _put_schedule(self, request: Request) -> Response:
        schedule = parse_object(await request.body()).get("schedule")
        if not isinstance(schedule, list) or not all(isinstance(one, dict) for one in schedule):
            raise BullpenError("schedule is a list of entries")
        self.file.replace(schedule)
        self.loop.wake()
        return JSONResponse(self._shown())

    async def _add_entry(self, request: Request) -> Response:
        entry = self.file.add(parse_object(await request.body()))
        self.loop.wake()
        shown = self._entry(entry, self.zone_of(entry), self.loop.memory.by_entry())
        return JSONResponse(shown, 201)

    async def _remove_entry(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.file.remove(name)
        self.loop.wake()
        return JSONResponse({"removed": name})

    async def _run_entry(self, request: Request) -> Response:
        """Run it now, besides its times; on disk before this is answered."""
        name, now = request.path_params["name"], time.time()
        entries, _ = self._schedule()
        if name not in entries:
            raise no_entry(name, list(entries))
        id = extra_id(name, now, uuid.uuid4().hex[:8])
        one = Pending(id=id, name=name, due=now, noted=now)
        await self.loop.change(
            lambda ledger: ledger.model_copy(update={"pending": (*ledger.pending, one)})
        )
        self.loop.wake()
        return JSONResponse({"id": id}, 202)


def _row_of(one: Pending | Given) -> dict[str, object]:
    is_given = isinstance(one, Given)
    return {
        "id": one.id,
        "state": "given" if is_given else "pending",
        "task_id": one.task_id if isinstance(one, Given) else None,
        "created_at": one.due,
    }
