"""Hands messages over, and looks for the proof that they arrived.

Called by `http/messages` (send), `http/agents` (hooks) and by parts that send messages themselves.
`model/message` decides when; `channels` writes; `arrival` decides whether to hand over again.
That a message is sent is recorded before it is handed over. It is delivered when the engine's own
prompt event or transcript shows its id.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bullpen.engines import ENGINES, Engine
from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.holders import link as holder_link
from bullpen.hub.messages import arrival
from bullpen.hub.messages.arrival import BeforeLook, HandOverAgain, LookAgain, plan_missing
from bullpen.hub.messages.box import Messages
from bullpen.hub.messages.channels import (
    HOOK,
    PASTE,
    SOCKET,
    Program,
    channel_of,
    type_messages,
    write_to_socket,
)
from bullpen.hub.store.events import find_last, walk_back
from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.model.agent import Agent
from bullpen.model.authority import vouch
from bullpen.model.event import Event
from bullpen.model.message import (
    LINES,
    ROOT,
    TYPING_SECONDS,
    HandOver,
    Interrupt,
    Message,
    Wait,
    at_a_tool,
    ids_in,
    joined,
    may_be_typed,
    next_step,
)
from bullpen.model.state import Idle

log = logging.getLogger("bullpen.hub")

CONTEXT_BYTES = 8 << 10  # of what a hook may add
AGAIN_SECONDS = 0.2
NEXT_TASK = "waits for its next task"
OWNERS_LINES = "only its owner's are typed to it: it has to look into its inbox"
NO_ANSWER = "its terminal does not answer: somebody may be typing there"
INTERRUPT_SECONDS = 5.0
FAILED_SECONDS = 2.0  # a full disk, most often


@dataclass
class Receiver:
    """What is known of one agent that gets messages."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)
    worker: "asyncio.Task[None] | None" = None
    why: str = ""  # its messages wait
    program: Program = field(default_factory=Program)


class Delivery:
    """One worker per agent for whom something waits; it sleeps until something changes."""

    def __init__(self, home: Home, store: Store, registry: Registry, messages: Messages) -> None:
        self._home = home
        self._store = store
        self._registry = registry
        self._messages = messages
        self._receivers: dict[str, Receiver] = {}  # by name

    async def load(self) -> None:
        """Go on where an earlier hub was. It may have removed an agent and come no further."""
        for name in self._messages.receivers():
            if self._is_gone(name):
                await self.end(name)
            self.kick(name)

    def leave(self) -> None:
        """The hub stops; what waits is on disk."""
        for receiver in self._receivers.values():
            if receiver.worker is not None:
                receiver.worker.cancel()

    async def send(
        self, message: Message, also: Callable[[Transaction, bool], None] | None = None
    ) -> Message:
        """Store it, and see to it that it arrives. `also` is done in the same transaction."""
        stored = await self._messages.send(message, also)
        self.kick(message.to)
        return stored

    def _is_gone(self, name: str) -> bool:
        """Whether no agent here has that name, nor left anything that cannot be read."""
        is_here = name != ROOT and "/" not in name
        return is_here and self._registry.find(name) is None and name not in self._registry.broken

    async def end(self, name: str) -> None:
        """That agent was removed: a later one of its name gets nothing of what waits. What its
        children wrote goes where they go (`tree/orphans`)."""
        children = [
            live.agent.name
            for live in self._registry
            if live.agent.parent == name and live.is_running
        ]
        await self._messages.end(name, f"{name} was removed", children)
        if name in self._receivers:
            self._receivers[name].changed.set()  # its worker has nothing left to do

    async def redirect(self, name: str, heir: str, senders: Sequence[str]) -> None:
        """What these wrote to that agent, and it never got, is for another one now."""
        await self._messages.redirect(name, heir, senders)
        self.kick(heir)

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, on the loop."""
        for event in events:
            if event.kind in ("agent.state", "agent.started"):
                self.kick(event.agent)
            elif event.kind == "agent.stopped":
                self._forget(event.agent, str(event.data.get("run", "")))

    def _forget(self, name: str, run: str) -> None:
        receiver = self._receivers.get(name)
        if receiver is not None and receiver.program.run == run:
            receiver.program.hang_up()
            receiver.program = Program()

    def why(self, name: str) -> str:
        """Why a message waits; empty if none does."""
        if not self._messages.count_open(name):
            return ""
        if self._takes_tasks(name):
            return NEXT_TASK
        return self._receivers[name].why if name in self._receivers else ""

    def _takes_tasks(self, name: str) -> bool:
        """Its messages are put in front of its next prompt, by `tasks/driver`."""
        live = self._registry.find(name)
        return live is not None and live.agent.takes_tasks

    def kick(self, name: str) -> None:
        """Something has changed for that agent: hand over what waits. Messages to `root` are only
        fetched, never handed over."""
        if not self._messages.count_open(name) or self._registry.find(name) is None:
            return
        if self._takes_tasks(name):
            return
        receiver = self._receivers.setdefault(name, Receiver())
        receiver.changed.set()
        if receiver.worker is None:
            receiver.worker = asyncio.create_task(
                self._work(name, receiver), name=f"messages for {name}"
            )
            receiver.worker.add_done_callback(lambda done: self._ended(name, receiver, done))

    def _ended(self, name: str, receiver: Receiver, done: "asyncio.Task[None]") -> None:
        receiver.worker = None
        if done.cancelled():
            return
        if done.exception() is not None:
            log.error("messages could not be delivered", exc_info=done.exception())
            asyncio.get_running_loop().call_later(FAILED_SECONDS, self.kick, name)
        else:
            self.kick(name)  # what came in its last moment

    def _program(self, live: LiveAgent) -> Program:
        """Of the run that there is now."""
        receiver = self._receivers.setdefault(live.agent.name, Receiver())
        if receiver.program.run != live.agent.run:
            receiver.program.hang_up()
            receiver.program = Program(live.agent.run)
        return receiver.program

    # ── hooks ──

    async def hooked(self, live: LiveAgent, hook: Mapping[str, Any]) -> str:
        """Take the receipts that are in a hook; what its answer adds to the conversation."""
        engine, name = ENGINES.get(live.agent.engine), live.agent.name
        if engine is None:
            return ""
        event = str(hook.get("hook_event_name", ""))
        prompt = engine.prompt_of(hook)
        if prompt:
            self._program(live).prompted_at = time.time()
            shown = await self._receive(name, ids_in(prompt))
            if shown:
                return engine.add_to_prompt(event, self._vouch(live, shown))
        urgent: Sequence[Message] = ()
        if not self._messages.list_sent(name):  # nothing while others are under way
            urgent = at_a_tool(self._messages.next_ones(name, is_urgent=True), CONTEXT_BYTES)
        if not urgent or not engine.add(event, joined(urgent)):
            return ""
        marked = await self._messages.mark_sent(urgent, HOOK)
        if not marked:
            return ""
        return engine.add(event, f"{self._vouch(live, marked)}\n\n{joined(marked)}")

    def _vouch(self, live: LiveAgent, messages: Sequence[Message]) -> str:
        """Who wrote these, for the model that gets them."""
        senders = {each.agent.name: each.agent for each in self._registry}
        return vouch(messages, live.agent, senders)

    async def _receive(self, name: str, ids: set[str]) -> list[Message]:
        """These messages have arrived; those that nobody knew to have."""
        shown = self._messages.find_open(name, ids)
        await self._messages.mark_delivered(shown)
        return shown

    # ── one agent ──

    async def _work(self, name: str, receiver: Receiver) -> None:
        while self._messages.count_open(name):
            receiver.changed.clear()
            again = await self._look(name, receiver)
            try:
                async with asyncio.timeout(again):
                    await receiver.changed.wait()
            except TimeoutError:
                continue

    async def _look(self, name: str, receiver: Receiver) -> float | None:
        """Do what is due; in how many seconds to look again if nothing changes before."""
        live = self._registry.find(name)
        engine = ENGINES.get(live.agent.engine) if live else None
        if live is None or engine is None or not live.is_running:
            receiver.why = "it is not running"
            return None
        if not channel_of(engine, live):
            receiver.why = "its engine takes none: it has to look into its inbox"
            return None
        self._program(live)
        if self._messages.list_sent(name):
            return await self._look_for(live, engine, receiver)
        return await self._do(live, engine, receiver)

    async def _do(self, live: LiveAgent, engine: Engine, receiver: Receiver) -> float | None:
        known_idle = await self._idle_input_seconds(live, receiver.program)
        idle_input = 0.0 if known_idle is None else known_idle
        name, state, may_go = live.agent.name, live.view.state, None
        if live.agent.deliver:
            state = Idle()  # a program that takes lines takes them at any time
            may_go = partial(may_be_typed, live.agent.deliver)
            receiver.why = OWNERS_LINES
        queue = self._messages.next_ones(name, may_go=may_go)
        match next_step(state, queue, idle_input):
            case HandOver(messages=messages):
                return await self._hand_over(live, engine, receiver, messages, idle_input)
            case Interrupt():
                return await self._interrupt(live, engine, receiver, idle_input)
            case Wait(why=why):
                is_typing = isinstance(state, Idle) and idle_input < TYPING_SECONDS
                receiver.why = NO_ANSWER if is_typing and known_idle is None else why
                return TYPING_SECONDS - idle_input if is_typing else None
            case _:
                return None

    async def _idle_input_seconds(self, live: LiveAgent, program: Program) -> float | None:
        """For how long nobody has typed into its terminal; None: it does not say."""
        if live.link is None:
            return None
        try:
            status = await live.link.ask(b"S")
        except (OSError, TimeoutError, BullpenError):
            return None
        last, typed_at = status.get("last_input"), max(program.typed_at, live.prompt_typed_at)
        if not isinstance(last, int | float) or last <= typed_at:
            return float("inf")  # nobody but us
        return time.time() - last

    async def _hand_over(
        self,
        live: LiveAgent,
        engine: Engine,
        receiver: Receiver,
        messages: Sequence[Message],
        idle_input: float,
    ) -> float | None:
        channel, program = channel_of(engine, live), receiver.program
        if channel == PASTE:
            await self._remember_prompt(live, engine, program)
        if channel == PASTE and not _is_prompt_empty(program, idle_input):
            receiver.why = "somebody may have typed half a line in its terminal"
            return None
        receiver.why = "being handed over"
        messages = await self._messages.mark_sent(messages, channel)
        if not messages:
            return 0.0  # a hook took them in this moment
        try:
            if channel == SOCKET:
                await write_to_socket(program, live.agent.message_socket, engine, messages)
            else:
                terminal = self._home.socket(live.agent.name)
                await type_messages(program, terminal, engine, channel, messages)
        except (OSError, TimeoutError, BullpenError) as error:
            await self._messages.mark_queued(messages)
            receiver.why = f"its program does not take it yet: {error}"
            return AGAIN_SECONDS
        if channel == LINES:
            self._messages.forget(messages)  # nobody will show that it arrived
            return 0.0
        return arrival.SHOWN_SECONDS

    async def _remember_prompt(self, live: LiveAgent, engine: Engine, program: Program) -> None:
        """When a prompt was last taken is in the log, should an earlier hub have heard of it."""
        if program.prompted_at is not None or not engine.taken:
            return
        prompted_at = await self._store.read(partial(_find_last_prompt, live.agent, engine.taken))
        if program.prompted_at is None:  # a hook may have come meanwhile
            program.prompted_at = prompted_at

    async def _interrupt(
        self, live: LiveAgent, engine: Engine, receiver: Receiver, idle_input: float
    ) -> float | None:
        receiver.why = "its turn is being interrupted"
        program, now = receiver.program, time.monotonic()
        if engine.interrupt and now - program.interrupted_at > INTERRUPT_SECONDS:
            program.interrupted_at = now
            # Our own key is no half line of a person; an empty prompt stays one.
            was_empty = _is_prompt_empty(program, idle_input)
            try:
                await holder_link.type_into(self._home.socket(live.agent.name), engine.interrupt)
                if was_empty:
                    program.typed_at = time.time()
            except (OSError, TimeoutError, BullpenError) as error:
                receiver.why = f"it cannot be interrupted: {error}"
        return INTERRUPT_SECONDS

    async def _look_for(self, live: LiveAgent, engine: Engine, receiver: Receiver) -> float | None:
        """Handed over, and no prompt showed it: the transcript may."""
        name, program = live.agent.name, receiver.program
        before = BeforeLook(live.view, program.has_unread(), time.time())
        sent = self._messages.list_sent(name)
        ids = {message.id for message in sent}
        since = min(message.sent or 0.0 for message in sent)
        shown = await asyncio.to_thread(engine.find_shown, live.agent, ids, since)
        await self._receive(name, shown)
        missing = self._messages.find_open(name, ids)
        if not missing:
            program.hang_up()
            return 0.0
        receiver.why = "handed over; its engine has not shown it yet"
        last_sent = max(message.sent or 0.0 for message in missing)
        match plan_missing(before, live.view, last_sent):
            case LookAgain(seconds=seconds):
                return seconds
            case HandOverAgain():
                await self._messages.mark_queued(missing)
                return 0.0


def _find_last_prompt(agent: Agent, hook: str, connection: sqlite3.Connection) -> float:
    """When that hook was last heard of in the agent's present run; 0 if never."""
    begun = find_last(agent.name, "agent.starting")(connection)
    for event in walk_back(
        connection, ("hook.received",), agent.name, first=begun.id if begun else 1
    ):
        if event.data.get("event") == hook and event.data.get("run") == agent.run:
            return event.time
    return 0.0


def _is_prompt_empty(program: Program, idle_input: float) -> bool:
    """Nobody has typed since its prompt was last taken, or ever."""
    if idle_input == float("inf"):
        return True
    return program.prompted_at is not None and time.time() - idle_input <= program.prompted_at
