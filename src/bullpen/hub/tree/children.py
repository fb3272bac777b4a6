"""What children owe their parents: a report. Tells each parent of each end exactly once.

A part of the hub. A child reports itself (`report`); one that ends without is reported here, with
its exit and its last output; one whose turn ends without is reminded once through its hook, then
its parent is told that it is idle (of a program whose hook takes no answer at once). Who is
blocked, or idle without a hook, for `PATIENCE_SECONDS` is told of, too. What was told is on disk
with the event itself: a killed hub tells nothing twice. Agents that a person started report to
`root`, are not reminded, and may be idle. What a parent on another machine is told, its own hub
puts into its queue: here it is written down for `hub/fleet_children`.
"""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, Protocol

from bullpen.engines import ENGINES
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.background import Background
from bullpen.hub.context import HubContext
from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.hub.tree.last_output import read_last_output
from bullpen.hub.tree.queue import OWNER, NewEvent, Queue, Receiver
from bullpen.model.agent import Agent
from bullpen.model.event import Draft, Event
from bullpen.model.message import ROOT
from bullpen.model.state import Blocked, Idle, words
from bullpen.model.tree import Family, is_elsewhere, is_without_turns
from bullpen.model.value import Value

PATIENCE_SECONDS = 60.0
ROOT_SECONDS = 3600.0  # what ended before that, while no hub ran, is no news for the person
REMINDER = (
    "You were started by the agent {parent}, which waits for your report. If your task is done, or"
    " cannot be done, call the tool notify_parent now: status success or failure, and a message"
    " that says what you did, what you checked and what is left. If you only wait for agents that"
    " you started, call wait_for_event. Else go on with your task."
)
MOST_SAID = 1 << 16  # characters of what it said last, as of a report: it may go to another machine
SAVE = "INSERT OR REPLACE INTO tree_children (agent, born, data) VALUES (?, ?, ?)"

Status = Literal["success", "failure"]


class Duty(Value):
    """How a child stands to its parent since it was last given something to do."""

    reported: Literal["", "success", "failure"] = ""
    reported_at: float = 0.0
    message: str = ""
    reminded: bool = False
    idle_told: bool = False
    exit_told: str = ""  # the run whose end was told


NOTHING = Duty()


class Elsewhere(Protocol):
    """Where it is written down what parents on other machines are told."""

    def tell(self, transaction: Transaction, agent: Agent, event: NewEvent | None) -> None:
        """Of that child; None: only that it is over."""
        ...

    def wake(self) -> None:
        """It is committed."""
        ...


WHOSE = {"tree_children": "agent", "tree_events": "recipient"}


class Children:
    """Of one hub. `has_mail` says whether something waits that the parent wrote to it."""

    def __init__(
        self,
        context: HubContext,
        store: Store,
        registry: Registry,
        queue: Queue,
        background: Background,
        has_mail: Callable[[str], bool],
        elsewhere: Elsewhere,
    ) -> None:
        self._context = context
        self._store = store
        self._registry = registry
        self._queue = queue
        self._background = background
        self._has_mail = has_mail
        self._elsewhere = elsewhere
        self._duties: dict[tuple[str, str], Duty] = {}
        self._is_loaded = False
        self._changed = asyncio.Event()
        self._telling = asyncio.Lock()  # of two that find out, one tells

    # ── reading ──

    def family(self) -> Family:
        """All agents that are known now."""
        return Family(live.agent for live in self._registry)

    def duty(self, agent: Agent) -> Duty:
        """How it stands to its parent."""
        return self._duties.get((agent.name, agent.created), NOTHING)

    def changed(self) -> asyncio.Event:
        """Set when any agent's state or report is another one than now."""
        return self._changed

    def receiver(self, name: str) -> Receiver:
        """The queue of that agent, or of `root`."""
        live = self._registry.find(name)
        return OWNER if live is None else Receiver(name, live.agent.created)

    def _heard_by(self, agent: Agent) -> Receiver:
        """Who is told of it: its parent; if that has ended and leaves its children to others, the
        next above it that lives. What becomes of one on another machine is that one's hub's."""
        if is_elsewhere(agent.parent):
            return Receiver(agent.parent)
        return self.heir_of(self.family().parent(agent.name))

    def heir_of(self, above: str) -> Receiver:
        """That agent of this machine, or who hears what it would have heard."""
        family = self.family()
        while (live := self._registry.find(above)) is not None and not live.is_running:
            if live.agent.orphans != "adopt" or live.is_returning:
                break
            above = family.parent(above)
        return self.receiver(above)

    # ── the hub's life ──

    async def load(self) -> None:
        """What earlier hubs knew, and what they did not come to tell."""
        await self.forget_gone()
        self._duties = await self._store.read(load_duties)
        self._is_loaded = True
        for live in self._registry:
            if live.is_running:
                self._watch_patience(live)
            elif live.agent.parent or time.time() - live.view.since < ROOT_SECONDS:
                await self._tell_exit(live)

    async def forget_gone(self) -> None:
        """Delete what is stored of agents that are gone, and for them; not of those whose beginning
        nobody knows. Called when a hub begins, and once a day by `upkeep`."""
        stored = await self._store.read(list_stored)
        # After that look: who began since is there, and who is gone never comes again.
        there = {(live.agent.name, live.agent.created) for live in self._registry}
        away = {live.agent.parent for live in self._registry if is_elsewhere(live.agent.parent)}
        others = {ROOT, *self._registry.broken, *away}
        gone = {
            table: [key for key in keys if key not in there and key[0] not in others]
            for table, keys in stored.items()
        }
        await self._store.write(lambda transaction: _delete(transaction, gone))
        for key in gone["tree_children"]:
            self._duties.pop(key, None)

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, on the loop."""
        for event in events if self._is_loaded else ():  # else `load` looks at all of them
            if event.kind in ("agent.state", "agent.stopped"):
                self._announce()
            live = self._registry.find(event.agent)
            if live is None:
                continue
            if event.kind == "agent.state":
                self._watch_patience(live)
            elif event.kind == "agent.stopped" and "failed" not in event.data:
                self._background.begin(self._tell_exit(live), f"tell the end of {event.agent}")
            elif event.kind == "message.sent" and is_without_turns(live.view):
                work = self._assign_later(live.agent, event.time)
                self._background.begin(work, f"message to {event.agent}")

    def _announce(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # ── what a child does ──

    async def report(self, live: LiveAgent, status: Status, message: str, request: str) -> str:
        """Put its report into its parent's queue; who that is. Stored when this returns. The same
        request reports once."""
        agent = live.agent
        to = self._heard_by(agent)
        duty = self.duty(agent).model_copy(
            update={"reported": status, "reported_at": time.time(), "message": message[:200]}
        )
        data = {"status": status, "message": message}
        key = f"report:{agent.run}:{request}"
        event = NewEvent(to, "child_finished", agent.name, data, key)
        note = Draft(
            time.time(), "child.reported", agent.name, {"run": agent.run, "status": status}, key
        )
        await self._tell(agent, duty, event, note)
        return to.name

    async def hooked(self, live: LiveAgent, hook: Mapping[str, Any]) -> str:
        """A hook of a child came. What it is answered, so that a turn that ends without a report
        goes on once more; empty: nothing."""
        agent, engine = live.agent, ENGINES.get(live.agent.engine)
        if engine is None or not agent.parent:
            return ""
        reminder = REMINDER.format(parent=self.family().parent(agent.name))
        prompt = engine.prompt_of(hook)
        if prompt:
            if reminder not in prompt:  # to some engines it is a prompt like any other
                await self._assign(agent)
            return ""
        hold_answer = engine.hold(hook, reminder)
        is_end = bool(hold_answer) or (
            not engine.is_model and hook.get("hook_event_name") == "Stop"
        )
        if not is_end or not self._owes(live):
            return ""
        if self.duty(agent).reminded or not hold_answer:  # a plain program cannot be reminded
            message = str(hook.get("last_assistant_message") or "")[-MOST_SAID:]
            await self._tell_idle(live, message)
            return ""
        await self._save(agent, self.duty(agent).model_copy(update={"reminded": True}))
        return hold_answer

    async def _assign(self, agent: Agent) -> None:
        """It was given something to do: what it reported before was of something else."""
        duty = self.duty(agent)
        fresh = Duty(exit_told=duty.exit_told)
        if duty != fresh:
            await self._save(agent, fresh)

    async def _assign_later(self, agent: Agent, at: float) -> None:
        """A message came to a program that says nothing of its prompts; no report came after it."""
        if self.duty(agent).reported_at < at:
            await self._assign(agent)

    def _owes(self, live: LiveAgent) -> bool:
        """Whether its parent, an agent, still has to hear of it. Not while it waits for children
        of its own, nor while a message waits that will give it more to do."""
        duty, name = self.duty(live.agent), live.agent.name
        is_busy = self._queue.is_waiting(name) or self._has_mail(name)
        has_parent = self.family().parent(name) != ROOT
        return has_parent and not (duty.reported or duty.idle_told or is_busy)

    # ── what is told of it ──

    async def _tell_idle(self, live: LiveAgent, message: str = "") -> None:
        agent, state = live.agent, live.view.state
        async with self._telling:
            if not self._owes(live):
                return
            duty = self.duty(agent).model_copy(update={"idle_told": True})
            message = message or await self._last_output(live)
            failed = state.failed if isinstance(state, Idle) else ""
            data = {"last_message": message, **({"failed": failed} if failed else {})}
            to = self._heard_by(agent)
            key = f"idle:{agent.run}:{live.view.since}"
            await self._tell(agent, duty, NewEvent(to, "child_idle", agent.name, data, key))

    async def _tell_blocked(self, live: LiveAgent) -> None:
        agent, state = live.agent, live.view.state
        to = self._heard_by(agent)
        data = {"state": words(state), "seconds": round(time.time() - live.view.since)}
        key = f"blocked:{agent.run}:{live.view.since}"
        await self._put(agent, NewEvent(to, "child_blocked", agent.name, data, key))

    async def _tell_exit(self, live: LiveAgent) -> None:
        agent = live.agent
        async with self._telling:
            duty = self.duty(agent)
            if live.is_running or duty.exit_told == agent.run:
                return
            if self._registry.is_claimed(agent.name):
                return  # its start is being taken back: it never was
            is_known = bool(duty.reported) and not self._has_mail(agent.name)
            duty = duty.model_copy(update={"exit_told": agent.run})
            if is_known:
                await self._save(agent, duty, is_over=True)
                return
            state = live.view.state
            data = {"how": words(state), **state.model_dump(mode="json", exclude_none=True)}
            data["last_output"] = await self._last_output(live)
            to = self._heard_by(agent)
            event = NewEvent(to, "child_exited", agent.name, data, f"exit:{agent.run}")
            await self._tell(agent, duty, event)

    async def tell_early_end(self, live: LiveAgent) -> None:
        """Its start cannot be taken back any more: if it has ended meanwhile, that counts."""
        if not live.is_running:
            await self._tell_exit(live)

    async def _last_output(self, live: LiveAgent) -> str:
        engine, session = ENGINES.get(live.agent.engine), self._context.home.session
        read = lambda: read_last_output(engine, live.agent, session(live.agent.name))  # noqa: E731
        return await self._context.trees.run(live.agent.name, read)

    def _watch_patience(self, live: LiveAgent) -> None:
        """Look again when it has been blocked or idle for long."""
        if isinstance(live.view.state, Blocked | Idle):
            left = max(0.0, live.view.since + PATIENCE_SECONDS - time.time())
            asyncio.get_running_loop().call_later(left, self._look, live, live.view.since)

    def _look(self, live: LiveAgent, since: float) -> None:
        if live.view.since != since or self._registry.find(live.agent.name) is not live:
            return
        name = live.agent.name
        if isinstance(live.view.state, Blocked):
            self._background.begin(self._tell_blocked(live), f"tell that {name} is blocked")
        elif isinstance(live.view.state, Idle) and self._owes(live):
            self._background.begin(self._tell_idle(live), f"tell that {name} is idle")

    # ── on disk ──

    async def _tell(self, agent: Agent, duty: Duty, event: NewEvent, *notes: Draft) -> None:
        """The event and what it changes, in one transaction."""

        def also(transaction: Transaction) -> None:
            _save(transaction, agent, duty)
            transaction.append(*notes)

        await self._put(agent, event, also)
        self._duties[agent.name, agent.created] = duty
        self._announce()

    async def _put(
        self, agent: Agent, event: NewEvent, also: Callable[[Transaction], None] | None = None
    ) -> None:
        """Into the queue of who is told of it; `also` is done if it was not there before."""
        goes_away = is_elsewhere(event.to.name)
        stored = replace(event, is_late=True) if goes_away else event  # nobody here waits for it

        def write(transaction: Transaction) -> None:
            if self._queue.write(transaction, stored):
                if goes_away:
                    self._elsewhere.tell(transaction, agent, event)
                if also is not None:
                    also(transaction)

        await self._store.write(write)
        self._queue.wake(event.to.name)
        if goes_away:
            self._elsewhere.wake()

    async def _save(self, agent: Agent, duty: Duty, *, is_over: bool = False) -> None:
        goes_away = is_over and is_elsewhere(agent.parent)

        def write(transaction: Transaction) -> None:
            _save(transaction, agent, duty)
            if goes_away:
                self._elsewhere.tell(transaction, agent, None)

        await self._store.write(write)
        self._duties[agent.name, agent.created] = duty
        self._announce()
        if goes_away:
            self._elsewhere.wake()


def load_duties(database: sqlite3.Connection) -> dict[tuple[str, str], Duty]:
    """Of all children."""
    rows = database.execute("SELECT agent, born, data FROM tree_children").fetchall()
    return {(agent, born): Duty.model_validate_json(data) for agent, born, data in rows}


def list_stored(database: sqlite3.Connection) -> dict[str, list[tuple[str, str]]]:
    """Of whom, and for whom, each table has something: names, and when those were born."""
    return {
        table: database.execute(f"SELECT DISTINCT {column}, born FROM {table}").fetchall()
        for table, column in WHOSE.items()
    }


def _delete(transaction: Transaction, gone: Mapping[str, list[tuple[str, str]]]) -> None:
    for table, keys in gone.items():
        delete = f"DELETE FROM {table} WHERE {WHOSE[table]} = ? AND born = ?"
        transaction.connection.executemany(delete, keys)


def _save(transaction: Transaction, agent: Agent, duty: Duty) -> None:
    row = (agent.name, agent.created, json.dumps(duty.model_dump()))
    transaction.connection.execute(SAVE, row)
