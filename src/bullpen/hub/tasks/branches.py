"""The branch that each task agent works on: of its current task, else of its last one.

Asked by `list` and `status`, so it is kept in memory. An agent in a terminal has its own branch in
its identity; one that takes tasks has a worktree for each conversation.
"""

import os
from collections.abc import Iterable
from datetime import UTC, datetime

from bullpen import clock
from bullpen.hub.tasks.board import Board
from bullpen.hub.tasks.rows import TaskSession
from bullpen.model.agent import Agent
from bullpen.model.event import Event


class TaskBranches:
    """By the names of agents."""

    def __init__(self, board: Board) -> None:
        self._board = board
        # By agent: when the task was asked for, its branch, and where that is checked out.
        self._last: dict[str, tuple[float, str, str]] = {}

    async def load(self) -> None:
        """Of the tasks that earlier hubs had."""
        for agent, created, session in await self._board.rows.last_sessions():
            self._last[agent] = created, _branch_of(session), session.directory

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, on the loop."""
        for event in events:
            if event.kind != "task.state" or event.data["state"] != "working":
                continue
            live = self._board.live.get(event.data["task"])
            if live is not None:
                session = live.session
                self._last[event.agent] = live.task.created, _branch_of(session), session.directory

    def find(self, agent: Agent) -> str:
        """Empty if its last task had no worktree, or that is gone. An earlier agent of its name is
        another one."""
        if not agent.takes_tasks or agent.name not in self._last:
            return agent.birth_branch
        created, branch, directory = self._last[agent.name]
        created_text = clock.to_exact_text(datetime.fromtimestamp(created, UTC))
        is_its = created_text >= agent.created
        return branch if is_its and os.path.lexists(directory) else ""


def _branch_of(session: TaskSession) -> str:
    """Its worktree is called as its branch, with `~` for `/`; of earlier versions that is all."""
    return session.branch or session.worktree.replace("~", "/")
