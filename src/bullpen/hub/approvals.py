"""Decisions that wait for a person: asked, answered once, found again after a restart.

Kept as events only. That an answer is the first is decided by the event log itself: both ends of
an approval share one key, and who comes second gets the first one's event back. Whether an engine
still waits for the answer is known to this process alone.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bullpen.component.redact import Redactor
from bullpen.errors import BullpenError, Kind
from bullpen.hub.registry import Live
from bullpen.hub.supervise import Supervisor
from bullpen.model.approval import (
    OWNER,
    TEXT_CHARACTERS,
    Answered,
    Approval,
    Closed,
    Decision,
    Request,
    Rule,
    Waiting,
    describe,
    rule_for,
    settled_elsewhere,
    words,
)
from bullpen.model.event import Draft, Event
from bullpen.model.state import Blocked, State, Told, View, Working

log = logging.getLogger("bullpen.hub")

ASKED, ENDED = "approval.asked", "approval.answered"
PAGE = 1000
KEPT = 200  # that have ended
SOURCE = "approval"
# A hook asks again so soon after a hub is back.
BACK_SECONDS = 3.0
LOOK_SECONDS = 0.02

_redactor = Redactor()


class Approvals:
    """All that are open, and those that ended last."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.store = supervisor.store
        self._known: dict[str, Approval] = {}  # by key
        self._last = 0
        self._over: dict[str, asyncio.Event] = {}
        self._hooks: Counter[str] = Counter()  # that wait now, by key
        self._hooks_are_back_by = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    async def load(self) -> None:
        """Read them from the log, and close those that nobody can answer any more; after the
        agents were found, before anybody asks."""
        seen = 0
        while events := await asyncio.to_thread(self.store.after, seen, PAGE, kinds=(ASKED, ENDED)):
            for event in events:
                self._take(event)
            seen = events[-1].id
        self._hooks_are_back_by = time.monotonic() + BACK_SECONDS
        await self._look_at_all()
        self._later(self._look_later())

    # ── reading ──

    def __iter__(self) -> Iterator[Approval]:
        for key, approval in self._known.items():
            yield self._shown(key, approval)

    def waiting(self) -> list[Approval]:
        """Those that nobody has decided, the oldest first."""
        return [approval for approval in self if approval.is_open]

    def open_of(self, run: str) -> int:
        """How many of that run wait."""
        return sum(approval.run == run for approval in self.waiting())

    def get(self, id: int) -> Approval:
        """The latest of that number."""
        found = [approval for approval in self if approval.id == id]
        if not found:
            raise BullpenError(f"no approval #{id}", hint="bullpen approvals", kind=Kind.NOT_FOUND)
        return found[-1]

    def find(self, run: str, ask: str) -> Approval | None:
        key = _key(run, ask)
        return self._shown(key, self._known[key]) if key in self._known else None

    def blocked_on(self, live: Live, besides: int = 0) -> Blocked | None:
        """What that agent waits for, whatever else becomes of its other calls."""
        for approval in self.waiting():
            if approval.run == live.agent.run and approval.id != besides:
                return Blocked(on="permission", tool=approval.tool)
        return None

    def _shown(self, key: str, approval: Approval) -> Approval:
        if not approval.is_open:
            return approval
        state = Waiting(reachable=self._is_waited_for(key))
        return approval.model_copy(update={"state": state})

    # ── an approval's life ──

    async def ask(
        self, live: Live, ask: str, request: Request, asked: float, review: str
    ) -> Approval:
        """Open one, and say that the agent is blocked; the same `ask` again is the same one."""
        key = _key(live.agent.run, ask)
        if key not in self._known:
            self._last = number = self._last + 1
            data = {"id": number, "ask": ask, "run": live.agent.run, "review": review}
            data |= {"asked": asked, **await asyncio.to_thread(_contents, request)}
            draft = Draft(time.time(), ASKED, live.agent.name, data, key=f"ask:{key}")
            says = f"#{number} waits for you"
            state = live.view.state
            if not isinstance(state, Blocked):
                state = Blocked(on="permission", tool=request.tool)
            seen = self._told(live, state, says, asked)
            (event, *_) = await self.supervisor.record.observe(live, seen, draft)
            self._take(event)
        return self._shown(key, self._known[key])

    @contextlib.asynccontextmanager
    async def waited_for(self, approval: Approval) -> AsyncIterator[asyncio.Event]:
        """While a hook waits for it; what it gets is set when there is something to say."""
        key = _key(approval.run, approval.ask)
        over = self._over.setdefault(key, asyncio.Event())
        if not self._known[key].is_open:
            over.set()
        self._hooks[key] += 1
        try:
            await self._look(approval.agent)  # it may have been decided before we heard of it
            yield over
        finally:
            self._hooks[key] -= 1
            if not self._hooks[key]:
                del self._hooks[key]
                self._over.pop(key, None)
                self._later(self._look(approval.agent))

    async def answer(
        self,
        id: int,
        decision: Decision,
        *,
        by: str = OWNER,
        reason: str = "",
        always: str = "",
        answer: str = "",
    ) -> Approval:
        """End it by an answer; an error that says who was first if it has ended. With the same
        `answer` it may be repeated."""
        approval = self.get(id)
        key, answer = _key(approval.run, approval.ask), answer or uuid.uuid4().hex
        if approval.is_open and not await self._is_reachable(key):
            raise BullpenError(
                f"#{id} can only be answered in {approval.agent}'s terminal: its engine no longer"
                " waits for an answer from here",
                hint=f"bullpen attach {approval.agent}",
                kind=Kind.CONFLICT,
            )
        fields = {"decision": decision, "by": by, "reason": reason, "always": always}
        event = await self._end(approval, {**fields, "answer": answer})
        if event.data.get("answer") != answer:
            first = self.get(id)
            raise BullpenError(
                f"#{id} was decided before: {words(first)}",
                hint="bullpen approvals",
                kind=Kind.CONFLICT,
                details={"state": first.state.model_dump(mode="json")},
            )
        return self.get(id)

    async def close(self, approval: Approval, why: str) -> None:
        """It was decided elsewhere; fine if it has ended already."""
        await self._end(approval, {"why": why})

    async def _end(self, approval: Approval, fields: dict[str, Any]) -> Event:
        key, at = _key(approval.run, approval.ask), time.time()
        same = {"id": approval.id, "ask": approval.ask, "run": approval.run}
        data = {**same, "tool": approval.tool, **fields, "at": at}
        draft = Draft(at, ENDED, approval.agent, data, key=f"approval:{key}")
        (event,) = await self.store.append(draft)
        if self._known[key].is_open:
            # Before the engine hears of it: what it says next is newer.
            await self._say(self._after(self._known[key], event))
            self._take(event)
        return event

    async def _say(self, approval: Approval) -> None:
        live = self.supervisor.registry.find(approval.agent)
        if live is None or live.agent.run != approval.run or not live.is_running:
            return
        match approval.state:
            case Answered(decision="allow"):
                state: State = Working(tool=approval.tool)
            case Answered():
                state = Working(doing="thinking")
            case _:
                state = _present(live.view, approval.asked)
        says = f"#{approval.id} {words(approval)}"
        state = self.blocked_on(live, besides=approval.id) or state
        await self.supervisor.record.observe(live, self._told(live, state, says, time.time()))

    def _told(self, live: Live, state: State, says: str, at: float) -> Told:
        return Told(at=max(at, live.view.told_at), source=SOURCE, says=says, state=state)

    def _is_waited_for(self, key: str) -> bool:
        """By a hook; or one is about to be back, after a restart of ours."""
        return self._hooks[key] > 0 or time.monotonic() < self._hooks_are_back_by

    async def _is_reachable(self, key: str) -> bool:
        deadline = time.monotonic() + BACK_SECONDS
        while not self._hooks[key] and self._known[key].is_open:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return True

    # ── what is decided elsewhere ──

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, on the loop: a state may show that a dialog is gone."""
        agents = {event.agent for event in events if event.kind == "agent.state"}
        if agents:
            for agent in {approval.agent for approval in self.waiting()} & agents:
                self._later(self._look(agent))

    async def _look_later(self) -> None:
        await asyncio.sleep(BACK_SECONDS)
        await self._look_at_all()

    async def _look_at_all(self) -> None:
        for agent in {approval.agent for approval in self.waiting()}:
            await self._look(agent)

    async def _look(self, agent: str) -> None:
        live = self.supervisor.registry.find(agent)
        for key, approval in list(self._known.items()):
            if approval.agent != agent or not approval.is_open:
                continue
            if live is None or live.agent.run != approval.run:
                why = "the agent ended"
            else:
                is_waited_for = self._is_waited_for(key)
                why = settled_elsewhere(approval.asked, live.view, is_waited_for)
            if why:
                await self.close(approval, why)

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ── events ──

    def _take(self, event: Event) -> None:
        try:
            key = _key(event.data["run"], event.data["ask"])
            if event.kind == ASKED:
                approval = Approval(agent=event.agent, **event.data)
                self._known.setdefault(key, approval)
                self._last = max(self._last, approval.id)
                return
            if key in self._known and self._known[key].is_open:
                self._known[key] = self._after(self._known[key], event)
        except (KeyError, TypeError, ValidationError):  # written by another version
            log.warning("cannot read an approval", extra={"event": event.id})
            return
        if key in self._over:
            self._over[key].set()
        self._forget()

    def _after(self, approval: Approval, event: Event) -> Approval:
        fields = event.data
        state = Closed(**fields) if "why" in fields else Answered(**fields)
        return approval.model_copy(update={"state": state})

    def _forget(self) -> None:
        ended = [key for key, approval in self._known.items() if not approval.is_open]
        for key in ended[: max(0, len(ended) - KEPT)]:
            if not self._hooks[key]:
                del self._known[key]


def _present(view: View, asked: float) -> State:
    """What is known of it now, without the question."""
    if view.filed is not None and view.filed_at > asked:
        return view.filed
    return view.told or view.state


def _contents(request: Request) -> dict[str, Any]:
    """What is kept of a request, without credentials."""
    whole = describe(request)
    text = _redactor.text(whole[:TEXT_CHARACTERS])
    rule = rule_for(request)
    if rule.rule and _redactor.text(rule.rule) != rule.rule:
        rule = Rule(why_not="it holds what looks like a credential")
    if rule.rule.startswith(("Read(", "Edit(")) and Path(rule.rule[6:-1]).is_dir():
        rule = Rule(why_not="a rule for a directory is one for all that is in it")
    more = max(0, len(whole) - TEXT_CHARACTERS)
    return {"tool": request.tool, "text": text, "more": more, "rule": rule.model_dump()}


def _key(run: str, ask: str) -> str:
    return f"{run}:{ask}"


async def _logged(work: Any) -> None:
    """Top of a task beside: whatever fails there is said, and goes no further."""
    try:
        await work
    except Exception:
        log.exception("a task failed")
