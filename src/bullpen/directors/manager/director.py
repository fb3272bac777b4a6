"""A manager as a component: goals come in at `POST /task`, its agent at the hub leads.

A goal is one task of one task agent, whose role may delegate and change nothing. So everything
that tasks have counts for goals, too: a sandbox, a budget, one report, a request that is one task
however often it is sent, a hub that may be killed. The model could also be started by this process,
or in a terminal; then all of that would be built a second time, and this director would need the
right to start agents. `director start` starts the agent, as the owner; this process may only give
it tasks.
"""

import contextlib
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from bullpen.component.routes import parse_object
from bullpen.directors.config import load_director
from bullpen.directors.director import Director, Shown
from bullpen.directors.history import HistoryRow
from bullpen.directors.manager.config import STARTER, ManagerConfig, starter_for
from bullpen.directors.manager.goals import (
    OVER,
    Goal,
    GoalAction,
    GoalRequest,
    Goals,
    TaskSeen,
    cancelled,
    find_again,
    with_goal,
)
from bullpen.directors.manager.rules import ManagerRules
from bullpen.errors import BullpenError, Kind

MOST_OPEN = 1000


class Manager(Director[Mapping[str, TaskSeen], Goals, GoalAction, str]):
    """One manager."""

    config_type = ManagerConfig
    starter = STARTER
    config: ManagerConfig
    rules: ManagerRules

    @classmethod
    def starter_in(cls, repository: Path | None) -> str:
        return starter_for(repository) if repository else cls.starter

    def make_rules(self) -> ManagerRules:
        self._last_config = self.config
        self.rules = ManagerRules(self.name, self.hub, self._read_config, time.time)
        return self.rules

    def _read_config(self) -> ManagerConfig:
        """As the file is by now; while it has errors, which lists show, as it was before."""
        with contextlib.suppress(BullpenError):
            _, config = load_director(self.home, self.name)
            if isinstance(config, ManagerConfig):
                self._last_config = config
        return self._last_config

    # ── what is shown ──

    def tasks(self, memory: Goals) -> Sequence[Shown]:
        return [self._shown(goal) for goal in memory.open.values()]

    def history(self, memory: Goals) -> tuple[HistoryRow, ...]:
        return memory.history

    def agents(self, memory: Goals) -> Sequence[Shown]:
        worked_on = next((self._shown(goal) for goal in memory.open.values() if goal.task_id), None)
        state = worked_on["state"] if worked_on else "idle"
        return [{"name": self.config.agent_of(self.name), "state": state}]

    def _shown(self, goal: Goal) -> dict[str, object]:
        task = self.rules.seen.get(goal.task_id, TaskSeen(state="queued"))
        # Of a goal that is over the report is on disk: until then it is not.
        state = "working" if task.state in OVER else task.state
        return {
            "id": goal.id,
            "state": "cancelling" if goal.is_cancelled else state,
            "goal": goal.asked.prompt,
            "task_id": goal.task_id or None,
            "agent": task.agent or None,
            "branch": task.branch or None,
            "created_at": goal.created_at,
        }

    # ── routes ──

    def more_routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/task", self._take_goal, methods=["POST"]),
            Route("/task/{id}", self._get_goal, methods=["GET"]),
            Route("/task/{id}/cancel", self._cancel_goal, methods=["POST"]),
        ]

    async def _take_goal(self, request: Request) -> Response:
        """On disk before this is answered."""
        request_body = _parse(await request.body())
        memory = self.loop.memory
        known = find_again(memory, request_body.request)
        if known:
            return JSONResponse({"task_id": known}, 202)
        if len(memory.open) >= MOST_OPEN:
            raise BullpenError(f"{MOST_OPEN} goals wait already", kind=Kind.CONFLICT)
        goal = Goal(id=f"g-{uuid.uuid4().hex[:12]}", asked=request_body, created_at=time.time())
        await self.loop.change(lambda goals: with_goal(goals, goal))
        self.loop.wake()
        return JSONResponse({"task_id": goal.id}, 202)

    async def _get_goal(self, request: Request) -> Response:
        id = request.path_params["id"]
        memory = self.loop.memory
        if id in memory.open:
            return JSONResponse(self._shown(memory.open[id]))
        return JSONResponse(self._find_row(id).model_dump(mode="json"))

    async def _cancel_goal(self, request: Request) -> Response:
        """One that is over stays as it is."""
        id = request.path_params["id"]
        if id not in self.loop.memory.open:
            return JSONResponse(self._find_row(id).model_dump(mode="json"))
        await self.loop.change(lambda goals: cancelled(goals, id))
        await self.loop.try_now(id)
        return JSONResponse({"id": id, "state": "cancelling"}, 202)

    def _find_row(self, id: str) -> HistoryRow:
        row = next((row for row in self.loop.memory.history if row.id == id), None)
        if row is None:
            hint = f"bullpen director goals {self.name}"
            raise BullpenError(f"no goal {id[:40]}", hint=hint, kind=Kind.NOT_FOUND)
        return row


def _parse(body: bytes) -> GoalRequest:
    fields: dict[str, Any] = parse_object(body)
    try:
        return GoalRequest.model_validate(fields)
    except ValidationError as error:
        keys = {str(each["loc"][0]) for each in error.errors()}
        wrong = ", ".join(sorted(keys - {"prompt"}))
        what = (
            f"not allowed: {wrong[:200]}" if wrong else "the prompt is missing, empty or too long"
        )
        raise BullpenError(f"that is no goal: {what}") from error
