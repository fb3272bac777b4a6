"""The tasks that wait for an agent, in line. Called by `queue` alone.

One line for each need: of two tasks that need the same, none or both find somebody, so that a
thousand that wait for one role are looked at by their first.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

from bullpen.hub.tasks.board import LiveTask
from bullpen.model.agent import Agent
from bullpen.model.task import fits

# agent, role, labels, whether in a sandbox alone
Need: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...], bool]
QueuePosition: TypeAlias = tuple[int, int]


class WaitingTasks:
    """By priority, then in the order in which they were asked for."""

    def __init__(self) -> None:
        self._lines: dict[Need, list[QueuePosition]] = {}
        self._tasks: dict[QueuePosition, LiveTask] = {}
        self._needs: dict[QueuePosition, Need] = {}
        self._by_session: defaultdict[str, set[QueuePosition]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._tasks)

    def put(self, live: LiveTask) -> None:
        """To its position, also if it had left it."""
        need, position = _need_of(live), _position_of(live)
        insort(self._lines.setdefault(need, []), position)
        self._tasks[position], self._needs[position] = live, need
        self._by_session[live.session.id].add(position)

    def drop(self, live: LiveTask) -> None:
        """Fine if it does not wait."""
        position = _position_of(live)
        if self._tasks.pop(position, None) is None:
            return
        need = self._needs.pop(position)
        line = self._lines[need]
        del line[bisect_left(line, position)]
        if not line:
            del self._lines[need]
        positions = self._by_session[live.session.id]
        positions.discard(position)
        if not positions:
            del self._by_session[live.session.id]

    def claim(self, session: str, agent: str) -> None:
        """Those that wait for the same conversation wait for that agent from now on."""
        for position in sorted(self._by_session.get(session, ())):
            live = self._tasks[position]
            self.drop(live)
            live.session = live.session.model_copy(update={"agent": agent})
            self.put(live)

    def take(self, free: Mapping[str, Agent], in_vain: set[Need]) -> tuple[LiveTask, str] | None:
        """The first task that one of these agents can do, out of its line, and who takes it.
        `in_vain`: what none of them can; they only get fewer."""
        while heads := [
            (line[0], need) for need, line in self._lines.items() if need not in in_vain
        ]:
            position, need = min(heads)
            live = self._tasks[position]
            name = choose_agent(live, free)
            if name:
                self.drop(live)
                return live, name
            in_vain.add(need)
        return None


def choose_agent(live: LiveTask, free: Mapping[str, Agent]) -> str:
    """Which of the free ones takes it; empty if none fits. Pure."""
    wanted, *_ = _need_of(live)
    for name in (wanted,) if wanted else free:
        agent = free.get(name)
        # One that was named takes it: its run says what is wrong.
        if (
            agent is not None
            and fits(live.task, agent.role, agent.labels)
            and (wanted or agent.is_sandboxed or live.task.wish.sandboxed is None)
        ):
            return name
    return ""


def _need_of(live: LiveTask) -> Need:
    """What `choose_agent` goes by. A conversation belongs to one agent."""
    wanted = live.task.agent or live.session.agent
    labels = tuple(sorted(live.task.labels.items()))
    return wanted, live.task.role, labels, live.task.wish.sandboxed is not None


def _position_of(live: LiveTask) -> QueuePosition:
    return -live.task.priority, live.number
