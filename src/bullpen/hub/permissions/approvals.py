"""Decisions that wait for a person: asked, answered once, found again after a restart.

Kept as events; what one is about is kept whole beside them while it waits (`inputs`). That an
answer is the first is decided by the event log itself: both ends of an approval share one key, and
who comes second gets the first one's event back. Whether an engine still waits for the answer is
known to this process alone. What is shown of one is made by `summary`.
"""

import asyncio
import contextlib
import logging
import math
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import ValidationError

from bullpen.engines import ENGINES
from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents.observe import Observer
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.background import Background
from bullpen.hub.permissions.asked_events import (
    ASKED,
    ENDED,
    REVIEWED,
    asked_key,
    ended_key,
    list_asked,
)
from bullpen.hub.permissions.inputs import Inputs, KeptInput
from bullpen.hub.permissions.summary import for_event, summarize
from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.model.approval import (
    DIRECTOR_RUN,
    GONE,
    LAND_ASK,
    OWNER,
    Answered,
    Approval,
    Closed,
    Decision,
    ToolRequest,
    Waiting,
    WholeApproval,
    decided_elsewhere,
    describe,
    is_abandoned,
    state_after,
    words,
)
from bullpen.model.event import Draft, Event
from bullpen.model.question import Choice
from bullpen.model.state import Blocked, EngineReport, State

log = logging.getLogger("bullpen.hub")

KEPT = 200  # that have ended
SOURCE = "approval"
# A hook asks again so soon after a hub is back.
BACK_SECONDS = 3.0
LOOK_SECONDS = 0.02


class Approvals:
    """All approvals that are open, and those that ended last."""

    def __init__(
        self, store: Store, registry: Registry, observer: Observer, background: Background
    ) -> None:
        self.store = store
        self._registry = registry
        self._observer = observer
        self._background = background
        self._known: dict[str, Approval] = {}  # by key
        self._inputs = Inputs(store)
        self._completing = asyncio.Lock()
        self._last = 0
        self._over: dict[str, asyncio.Event] = {}
        self._hooks: Counter[str] = Counter()  # that wait now, by key
        self._reviews: Counter[str] = Counter()  # under way, by key
        self._hooks_are_back_by = 0.0

    async def load(self) -> None:
        """Read them from the log, and close those that nobody can answer any more; after the
        agents were found, before anybody asks."""
        for event in await self.store.read(list_asked(KEPT)):
            self._take(event)
        waiting = [key for key, approval in self._known.items() if approval.is_open]
        for key, tool_input in (await self._inputs.load(waiting)).items():
            request = ToolRequest(tool=self._known[key].tool, input=tool_input)
            summary = await asyncio.to_thread(summarize, request)
            if self._known[key].digest in ("", summary["digest"]):
                self._describe(key, summary)
            else:  # of another question under its name
                await self._inputs.drop(key)
        self._hooks_are_back_by = math.inf  # the hub may have much to load before it serves
        await self._look_at_all()

    async def run(self) -> None:
        """The hub serves: hooks of before have a while to be back, and then it is looked at which
        are not."""
        self._hooks_are_back_by = time.monotonic() + BACK_SECONDS
        # A loop counts in milliseconds: a sleep may end a little before its time.
        while (left := self._hooks_are_back_by - time.monotonic()) > 0:
            await asyncio.sleep(left)
        await self._look_at_all()

    # ── reading ──

    def __iter__(self) -> Iterator[Approval]:
        for key, approval in self._known.items():
            yield self._shown(key, approval)

    def waiting(self) -> list[Approval]:
        """The approvals that nobody has decided, the oldest first."""
        return [approval for approval in self if approval.is_open]

    def for_person(self) -> list[Approval]:
        """Those of them that wait for a person, and not for the reviewer."""
        return [approval for approval in self.waiting() if not _is_reviewed(approval)]

    def open_of(self, run: str) -> int:
        """How many of that run wait."""
        return sum(approval.run == run for approval in self.waiting())

    def get(self, id: int) -> Approval:
        """The latest of that number."""
        approvals = [approval for approval in self if approval.id == id]
        if not approvals:
            raise BullpenError(f"no approval #{id}", hint="bullpen approvals", kind=Kind.NOT_FOUND)
        return approvals[-1]

    async def whole(self, id: int) -> WholeApproval:
        """The same, with all that it is about."""
        approval = self.get(id)
        key = _key(approval.run, approval.ask)
        tool_input = await self._inputs.find(key)
        if tool_input is None:
            return WholeApproval(**dict(approval))
        request = ToolRequest(tool=approval.tool, input=tool_input)
        text = await asyncio.to_thread(describe, request)
        return WholeApproval(**{**dict(approval), "text": text, "more": 0}, input=tool_input)

    def open_bytes(self, run: str) -> int:
        """How much is kept of what waits of that run."""
        mine = [key for key, approval in self._known.items() if approval.run == run]
        return self._inputs.size(mine)

    def find(self, run: str, request_id: str) -> Approval | None:
        key = _key(run, request_id)
        return self._shown(key, self._known[key]) if key in self._known else None

    def blocked_on(self, live: LiveAgent, besides: int = 0) -> Blocked | None:
        """What that agent waits for, whatever else becomes of its other calls."""
        for approval in self.for_person():
            if approval.run == live.agent.run and approval.id != besides:
                on: Literal["question", "permission"]
                on = "question" if approval.questions else "permission"
                return Blocked(on=on, tool=approval.tool)
        return None

    def _shown(self, key: str, approval: Approval) -> Approval:
        if not approval.is_open:
            return approval
        state = Waiting(reachable=self._is_waited_for(key), reviewing=self._reviews[key] > 0)
        return approval.model_copy(update={"state": state})

    # ── an approval's life ──

    async def ask(
        self, live: LiveAgent, request_id: str, request: ToolRequest, asked_at: float
    ) -> Approval | None:
        """Open one, and say that the agent is blocked, unless it is under review; the same
        `request_id` again is the same one. None if another request was first under that name."""
        key = _key(live.agent.run, request_id)
        summary = await asyncio.to_thread(summarize, request)
        if key not in self._known:
            self._last = number = self._last + 1
            draft = _ask_draft(
                number, live.agent.name, live.agent.run, request_id, request, summary, asked_at
            )
            state = live.view.state
            is_reviewed = self._reviews[key] > 0
            if not isinstance(state, Blocked) and not is_reviewed:
                state = Blocked(on="permission", tool=request.tool)
            says = f"#{number} {'is being reviewed' if is_reviewed else 'waits for you'}"
            seen = self._report(live, state, says, asked_at)
            kept = KeptInput(key, request.input)

            def keep(transaction: Transaction, event: Event) -> None:
                if event.data.get("digest") == summary["digest"]:
                    kept.put(transaction)

            (event, *_) = await self._observer.observe(live, seen, draft, along=keep)
            # At once: whoever counts those that are open and those being opened counts it once.
            self._opened(key, event, kept, summary)
        approval = self._known[key]
        return self._shown(key, approval) if approval.digest == summary["digest"] else None

    async def open(self, asker: str, run: str, request_id: str, request: ToolRequest) -> Approval:
        """Open one of somebody who is no agent, unless it is there."""
        key, now = _key(run, request_id), time.time()
        summary = await asyncio.to_thread(summarize, request)
        self._last = number = self._last + 1
        draft = _ask_draft(number, asker, run, request_id, request, summary, now)
        kept = KeptInput(key, request.input)

        def put(transaction: Transaction) -> Event:
            (event,) = transaction.append(draft)
            if event.data.get("digest") == summary["digest"]:
                kept.put(transaction)
            return event

        self._opened(key, await self.store.write(put), kept, summary)
        return self._shown(key, self._known[key])

    def _opened(self, key: str, event: Event, kept: KeptInput, summary: Mapping[str, Any]) -> None:
        self._take(event)
        if event.data.get("digest") == summary["digest"]:
            self._inputs.note(kept)
            self._describe(key, summary)

    def recall(self, events: Iterable[Event]) -> None:
        """Both ends of one that was forgotten here, as the log has them."""
        for event in events:
            self._take(event)

    async def is_about(self, approval: Approval, request: ToolRequest) -> bool:
        """Whether a hook that comes back asks for the same as before. One that an earlier version
        kept a part of is kept whole from now on."""
        key = _key(approval.run, approval.ask)
        summary = await asyncio.to_thread(summarize, request)
        async with self._completing:
            known = self._known.get(key, approval)  # another hook may have been first meanwhile
            if known.tool != request.tool or known.digest not in ("", summary["digest"]):
                return False
            if known.is_open and key not in self._inputs:
                await self._inputs.put(KeptInput(key, request.input))
                self._describe(key, summary)
        return True

    def _describe(self, key: str, fields: Mapping[str, Any]) -> None:
        """All of what `summarize` says: text, digest and rule are of one request."""
        if key in self._known:
            self._known[key] = self._known[key].model_copy(update=fields)

    @contextlib.contextmanager
    def under_review(self, run: str, request_id: str) -> Iterator[None]:
        """While the reviewer judges that request."""
        key = _key(run, request_id)
        self._reviews[key] += 1
        try:
            yield
        finally:
            self._reviews[key] -= 1
            if not self._reviews[key]:
                del self._reviews[key]

    async def leave_to_person(self, live: LiveAgent, approval: Approval) -> None:
        """The reviewer is not sure: now it waits for the person."""
        state = Blocked(on="permission", tool=approval.tool)
        says = f"#{approval.id} waits for you"
        await self._observer.observe(live, self._report(live, state, says, time.time()))

    @contextlib.contextmanager
    def hook_of(self, agent: str, run: str, request_id: str) -> Iterator[None]:
        """While a hook is there that asks; from before its approval is opened: one that no hook
        waits for is taken for abandoned."""
        key = _key(run, request_id)
        self._hooks[key] += 1
        try:
            yield
        finally:
            self._hooks[key] -= 1
            if not self._hooks[key]:
                del self._hooks[key]
                self._over.pop(key, None)
                self._begin_look(agent)

    @contextlib.asynccontextmanager
    async def waited_for(self, approval: Approval) -> AsyncIterator[asyncio.Event]:
        """While a hook waits for it; what it gets is set when there is something to say."""
        key = _key(approval.run, approval.ask)
        over = self._over.setdefault(key, asyncio.Event())
        if not self._known[key].is_open:
            over.set()
        with self.hook_of(approval.agent, approval.run, approval.ask):
            await self._look(approval.agent)  # it may have been decided before we heard of it
            yield over

    async def answer(
        self,
        id: int,
        decision: Decision,
        *,
        by: str = OWNER,
        reason: str = "",
        always: str = "",
        answers: Sequence[Choice] = (),
        answer: str = "",
        name: str = "",
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
        # It may have ended while a hook was waited for.
        if self._known[key].is_open and decision == "allow" and key not in self._inputs:
            raise BullpenError(
                f"#{id} cannot be allowed from here: an earlier version of Bullpen kept only a part"
                " of what it is about",
                hint=f"bullpen attach {approval.agent} · or: bullpen deny {id}",
                kind=Kind.CONFLICT,
            )
        fields: dict[str, Any] = {"decision": decision, "by": by, "reason": reason}
        fields |= {"name": name} if name else {}
        fields |= {"always": always, "answers": [choice.model_dump() for choice in answers]}
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
        draft = Draft(at, ENDED, approval.agent, data, key=ended_key(key))
        (event,) = await self.store.append(draft)
        if self._known[key].is_open:
            # Before the engine hears of it: what it says next is newer.
            await self._say(self._after(self._known[key], event))
            self._take(event)
            await self._inputs.drop(key)
        return event

    async def _say(self, approval: Approval) -> None:
        live = self._registry.find(approval.agent)
        if live is None or live.agent.run != approval.run or not live.is_running:
            return
        says = f"#{approval.id} {words(approval)}"
        state = self.blocked_on(live, besides=approval.id) or state_after(approval, live.view)
        await self._observer.observe(live, self._report(live, state, says, time.time()))

    def _report(self, live: LiveAgent, state: State, says: str, at: float) -> EngineReport:
        return EngineReport(at=max(at, live.view.told_at), source=SOURCE, says=says, state=state)

    def _is_waited_for(self, key: str) -> bool:
        """By a hook; or one is about to be back, after a restart of ours."""
        if _is_asked_on(key):
            return True
        return self._hooks[key] > 0 or time.monotonic() < self._hooks_are_back_by

    async def _is_reachable(self, key: str) -> bool:
        deadline = time.monotonic() + BACK_SECONDS
        while not _is_asked_on(key) and not self._hooks[key] and self._known[key].is_open:
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
                self._begin_look(agent)

    async def _look_at_all(self) -> None:
        for agent in {approval.agent for approval in self.waiting()}:
            await self._look(agent)

    async def _look(self, agent: str) -> None:
        live = self._registry.find(agent)
        for key, approval in list(self._known.items()):
            if approval.agent != agent or not approval.is_open:
                continue
            if approval.run.startswith(DIRECTOR_RUN):  # that one withdraws it itself
                continue
            if live is None or live.agent.run != approval.run:
                why = "the agent ended"
            else:
                is_waited_for = self._is_waited_for(key)
                why = decided_elsewhere(approval.asked, live.view, is_waited_for)
                engine = ENGINES.get(live.agent.engine)
                has_dialogs = engine is None or engine.is_model
                if not is_waited_for and not why and is_abandoned(live.view, has_dialogs):
                    why = GONE
            if why:
                await self.close(approval, why)

    def _begin_look(self, agent: str) -> None:
        self._background.begin(self._look(agent), f"approvals of {agent}")

    # ── events ──

    def take_review(self, event: Event) -> None:
        """What the reviewer said of one that is listed; other events are nothing to it."""
        if event.kind == REVIEWED:
            self._take(event)

    def _take(self, event: Event) -> None:
        if event.kind == REVIEWED and "ask" not in event.data:
            return  # of one that was not listed
        try:
            key = _key(event.data["run"], event.data["ask"])
            if event.kind == ASKED:
                approval = Approval(agent=event.agent, **event.data)
                self._known.setdefault(key, approval)
                self._last = max(self._last, approval.id)
                return
            if event.kind == REVIEWED:
                self._describe(key, {"review": str(event.data["reason"])})
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


def _is_reviewed(approval: Approval) -> bool:
    return isinstance(approval.state, Waiting) and approval.state.reviewing


def _ask_draft(
    number: int,
    asker: str,
    run: str,
    request_id: str,
    request: ToolRequest,
    summary: Mapping[str, Any],
    asked_at: float,
) -> Draft:
    data = {"id": number, "ask": request_id, "run": run, "review": ""}
    data |= {"asked": asked_at, **for_event(request.tool, summary)}
    return Draft(time.time(), ASKED, asker, data, key=asked_key(_key(run, request_id)))


def _is_asked_on(key: str) -> bool:
    """By a director, or by the hub itself at the end of a sequence: however long they take to be
    back after a restart, they ask until they withdraw it."""
    ask = key.partition(":")[2]
    return key.startswith(DIRECTOR_RUN) or ask.startswith(LAND_ASK)


def _key(run: str, request_id: str) -> str:
    return f"{run}:{request_id}"
