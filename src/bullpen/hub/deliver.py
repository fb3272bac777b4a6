"""Hands messages over, and looks for the proof that they arrived.

What is to be done when is `model/message.py`'s; how, the engine's: its program's own socket for
messages where it has one, the answer of a hook between two tools, a paste where nothing else is
there. That a message is sent is recorded before it is handed over. It is delivered when the
engine's own prompt event or transcript shows its id; one that was handed over and is not there
although the agent is idle is handed over again.
"""

import asyncio
import fcntl
import logging
import socket
import sqlite3
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bullpen.engines import ENGINES, Engine
from bullpen.errors import BullpenError
from bullpen.hub import holders
from bullpen.hub.messages import Messages
from bullpen.hub.registry import Live
from bullpen.hub.supervise import Supervisor
from bullpen.model.event import Event
from bullpen.model.message import (
    TYPING_SECONDS,
    HandOver,
    Interrupt,
    Message,
    Wait,
    at_a_tool,
    envelope,
    ids_in,
    joined,
    next_step,
)
from bullpen.model.state import Idle

log = logging.getLogger("bullpen.hub")

SOCKET, HOOK, PASTE, LINES = "socket", "hook", "paste", "lines"
CONTEXT_BYTES = 8 << 10  # of what a hook may add
LINE_BYTES = 4000
SHOWN_SECONDS = 10.0  # idle for so long after a hand-over, it has not arrived
LAST_PROMPT = (
    "SELECT time FROM events WHERE kind = 'hook.received' AND agent = ?"
    " AND json_extract(data, '$.event') = ? AND json_extract(data, '$.run') = ?"
    " ORDER BY id DESC LIMIT 1"
)
SIOCOUTQ = 0x5411  # how many bytes the other side has not read yet
AGAIN_SECONDS = 0.2
NEXT_TASK = "waits for its next task"
INTERRUPT_SECONDS = 5.0
FAILED_SECONDS = 2.0  # a full disk, most often


class Delivery:
    """One worker per agent for whom something waits; it sleeps until something changes."""

    def __init__(self, supervisor: Supervisor, messages: Messages) -> None:
        self._supervisor = supervisor
        self._messages = messages
        self._changed: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._why: dict[str, str] = {}
        self._interrupted: dict[str, float] = {}  # run -> when
        self._links: dict[str, socket.socket] = {}  # run -> where messages were written to last
        self._typed: dict[str, float] = {}  # run -> when we typed last
        self._prompted: dict[str, float] = {}  # run -> when its prompt was last taken

    def load(self) -> None:
        """Go on where an earlier hub was."""
        for name in self._messages.receivers():
            self.kick(name)

    def close(self) -> None:
        """The hub stops; what waits is on disk."""
        for task in self._tasks.values():
            task.cancel()

    async def send(self, message: Message) -> Message:
        """Keep it, and see to it that it arrives."""
        kept = await self._messages.send(message)
        self.kick(message.to)
        return kept

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, on the loop."""
        for event in events:
            if event.kind in ("agent.state", "agent.started"):
                self.kick(event.agent)
            elif event.kind == "agent.stopped":
                self._forget(str(event.data.get("run", "")))

    def _forget(self, run: str) -> None:
        self._hang_up(run)
        for known in (self._interrupted, self._typed, self._prompted):
            known.pop(run, None)

    def why(self, name: str) -> str:
        """Why a message waits; empty if none does."""
        if not self._messages.queue(name):
            return ""
        return NEXT_TASK if self._takes_tasks(name) else self._why.get(name, "")

    def _takes_tasks(self, name: str) -> bool:
        """Its messages come in front of the next prompt, by who gives it that."""
        live = self._supervisor.registry.find(name)
        return live is not None and live.agent.kind == "headless"

    def kick(self, name: str) -> None:
        """Something has changed for that agent. (Nobody hands anything to the person.)"""
        if not self._messages.queue(name) or self._supervisor.registry.find(name) is None:
            return
        if self._takes_tasks(name):
            return
        self._changed.setdefault(name, asyncio.Event()).set()
        if name not in self._tasks:
            task = asyncio.create_task(self._work(name), name=f"messages for {name}")
            self._tasks[name] = task
            task.add_done_callback(lambda done: self._ended(name, done))

    def _ended(self, name: str, done: "asyncio.Task[None]") -> None:
        self._tasks.pop(name, None)
        if done.cancelled():
            return
        if done.exception() is not None:
            log.error("messages could not be delivered", exc_info=done.exception())
            asyncio.get_running_loop().call_later(FAILED_SECONDS, self.kick, name)
        else:
            self.kick(name)  # what came in its last moment

    # ── hooks ──

    async def hooked(self, live: Live, hook: Mapping[str, Any]) -> str:
        """Take the receipts that are in a hook; what its answer adds to the conversation."""
        engine, name = ENGINES.get(live.agent.engine), live.agent.name
        if engine is None:
            return ""
        prompt = engine.prompt_of(hook)
        if prompt:
            self._prompted[live.agent.run] = time.time()
            await self._receive(name, ids_in(prompt))
        urgent = at_a_tool(self._messages.queue(name), CONTEXT_BYTES)
        reply = engine.add(str(hook.get("hook_event_name", "")), joined(urgent)) if urgent else ""
        if reply:
            await self._messages.mark_sent(urgent, HOOK)
        return reply

    async def _receive(self, name: str, ids: set[str]) -> None:
        found = [message for message in self._messages.queue(name) if message.id in ids]
        await self._messages.mark_delivered(found)

    # ── one agent ──

    async def _work(self, name: str) -> None:
        changed = self._changed[name]
        while self._messages.queue(name):
            changed.clear()
            again = await self._look(name)
            try:
                async with asyncio.timeout(again):
                    await changed.wait()
            except TimeoutError:
                continue

    async def _look(self, name: str) -> float | None:
        """Do what is due; in how many seconds to look again if nothing changes before."""
        live = self._supervisor.registry.find(name)
        engine = ENGINES.get(live.agent.engine) if live else None
        if live is None or engine is None or not live.is_running:
            self._why[name] = "it is not running"
            return None
        if not _channel(engine, live):
            self._why[name] = "its engine takes none: it has to look into its inbox"
            return None
        queue, idle_input = self._messages.queue(name), await self._idle_input_seconds(live)
        if any(message.status == "sent" for message in queue):
            return await self._look_for(live, engine, queue)
        return await self._do(live, engine, queue, idle_input)

    async def _do(
        self, live: Live, engine: Engine, queue: Sequence[Message], idle_input: float
    ) -> float | None:
        # A program that takes lines takes them at any time.
        state = Idle() if live.agent.deliver == LINES else live.view.state
        match next_step(state, queue, idle_input):
            case HandOver(messages=messages):
                return await self._hand_over(live, engine, messages, idle_input)
            case Interrupt():
                return await self._interrupt(live, engine, idle_input)
            case Wait(why=why):
                self._why[live.agent.name] = why
                is_typing = isinstance(state, Idle) and idle_input < TYPING_SECONDS
                return TYPING_SECONDS - idle_input if is_typing else None
            case _:
                return None

    async def _idle_input_seconds(self, live: Live) -> float:
        """For how long nobody has typed into its terminal."""
        if live.link is None:
            return 0.0
        try:
            status = await live.link.ask(b"S")
        except (OSError, TimeoutError, BullpenError):
            return 0.0
        last = status.get("last_input")
        if not isinstance(last, int | float) or last <= self._typed.get(live.agent.run, 0.0):
            return float("inf")  # nobody but us
        return time.time() - last

    async def _hand_over(
        self, live: Live, engine: Engine, messages: Sequence[Message], idle_input: float
    ) -> float | None:
        channel = _channel(engine, live)
        if channel == PASTE:
            await self._remember_prompt(live, engine)
        if channel == PASTE and not self._is_prompt_empty(live, idle_input):
            self._why[live.agent.name] = "somebody may have typed half a line in its terminal"
            return None
        self._why[live.agent.name] = "being handed over"
        await self._messages.mark_sent(messages, channel)
        try:
            await self._write(live, engine, channel, messages)
        except (OSError, TimeoutError, BullpenError) as error:
            self._why[live.agent.name] = f"its program does not take it yet: {error}"
            await self._messages.mark_queued(messages)
            return AGAIN_SECONDS
        if channel == LINES:
            self._messages.forget(messages)  # nobody will show that it arrived
            return 0.0
        return SHOWN_SECONDS

    async def _write(
        self, live: Live, engine: Engine, channel: str, messages: Sequence[Message]
    ) -> None:
        if channel == SOCKET:
            self._hang_up(live.agent.run)
            link = await asyncio.to_thread(_connect, live.agent.message_socket)
            self._links[live.agent.run] = link
            line = engine.message_line(joined(messages))
            async with asyncio.timeout(holders.ANSWER_SECONDS):
                await asyncio.get_running_loop().sock_sendall(link, line)
            return
        keys: Sequence[bytes] = engine.typed(joined(messages))
        if channel == LINES:
            keys = [b"".join(map(_line, messages))]
        for number, part in enumerate(keys):
            if number:
                await asyncio.sleep(engine.typing_seconds)
            await holders.type_into(self._supervisor.home.socket(live.agent.name), part)
            self._typed[live.agent.run] = time.time()

    def _hang_up(self, run: str) -> None:
        link = self._links.pop(run, None)
        if link is not None:
            link.close()

    def _is_unread(self, run: str) -> bool:
        """Whether its program has yet to read what was written to its socket: it is stopped, or
        the machine is busy. It will come to it, and must not get it twice."""
        link = self._links.get(run)
        if link is None:
            return False
        try:
            return bool(struct.unpack("i", fcntl.ioctl(link, SIOCOUTQ, bytes(4)))[0])
        except OSError:
            return False

    async def _remember_prompt(self, live: Live, engine: Engine) -> None:
        """When a prompt was last taken is in the log, should an earlier hub have heard of it."""
        run, name = live.agent.run, live.agent.name
        if run in self._prompted or not engine.taken:
            return

        def last(database: sqlite3.Connection) -> list[tuple[float]]:
            return database.execute(LAST_PROMPT, (name, engine.taken, run)).fetchall()

        found = await asyncio.wrap_future(self._supervisor.store.write(last))
        self._prompted[run] = found[0][0] if found else 0.0

    def _is_prompt_empty(self, live: Live, idle_input: float) -> bool:
        """Nobody has typed since its prompt was last taken, or ever."""
        prompted = self._prompted.get(live.agent.run)
        if idle_input == float("inf"):
            return True
        return prompted is not None and time.time() - idle_input <= prompted

    async def _interrupt(self, live: Live, engine: Engine, idle_input: float) -> float | None:
        self._why[live.agent.name] = "its turn is being interrupted"
        run, now = live.agent.run, time.monotonic()
        if engine.interrupt and now - self._interrupted.get(run, -1e9) > INTERRUPT_SECONDS:
            self._interrupted[run] = now
            # Our own key is no half line of a person; an empty prompt stays one.
            was_empty = self._is_prompt_empty(live, idle_input)
            try:
                await holders.type_into(
                    self._supervisor.home.socket(live.agent.name), engine.interrupt
                )
                if was_empty:
                    self._typed[run] = time.time()
            except (OSError, TimeoutError, BullpenError) as error:
                self._why[live.agent.name] = f"it cannot be interrupted: {error}"
        return INTERRUPT_SECONDS

    async def _look_for(self, live: Live, engine: Engine, queue: Sequence[Message]) -> float | None:
        """Handed over, and no prompt showed it: the transcript may. Of an agent that is idle and
        was for a while, what is not there did not arrive."""
        under_way = [message for message in queue if message.status == "sent"]
        ids = {message.id for message in under_way}
        since = min(message.sent or 0.0 for message in under_way)
        shown = await asyncio.to_thread(engine.find_shown, live.agent, ids, since)
        await self._receive(live.agent.name, shown)
        missing = [message for message in under_way if message.id not in shown]
        if not missing:
            self._hang_up(live.agent.run)
            return 0.0
        self._why[live.agent.name] = "handed over; its engine has not shown it yet"
        if self._is_unread(live.agent.run):
            return AGAIN_SECONDS
        if not isinstance(live.view.state, Idle):
            return None
        latest = max(live.view.since, *(message.sent or 0.0 for message in missing))
        left = latest + SHOWN_SECONDS - time.time()
        if left > 0:
            return left
        await self._messages.mark_queued(missing)
        return 0.0


def _line(message: Message) -> bytes:
    """For a program that takes lines; what would be a key to its terminal is a space. A terminal
    cuts a line at 4095 bytes: of a longer one the beginning, and where the rest is."""
    text = "".join(c if c.isprintable() else " " for c in envelope(message))
    line = " ".join(text.split()).encode()
    if len(line) > LINE_BYTES:
        rest = f" … {len(line)} bytes, see bullpen inbox --full"
        line = line[:LINE_BYTES].decode(errors="ignore").encode() + rest.encode()
    return line + b"\n"


def _connect(path: str) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(holders.ANSWER_SECONDS)
        link.connect(path)
        link.setblocking(False)
    except BaseException:
        link.close()
        raise
    return link


def _channel(engine: Engine, live: Live) -> str:
    """How messages reach that agent; empty: not at all."""
    if live.agent.deliver == LINES:
        return LINES
    if live.agent.message_socket and engine.message_line(""):
        return SOCKET
    return PASTE if engine.typed("x") else ""
