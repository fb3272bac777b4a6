"""Messages between agents and people: kept in the database, queued in memory.

Each change is one transaction with its event, and is on disk before anybody is told. What is to
be done with them is `deliver`'s.
"""

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar

from bullpen.errors import BullpenError, Kind
from bullpen.hub.store import Store
from bullpen.model.event import Draft
from bullpen.model.message import Message

T = TypeVar("T")

COLUMNS = (
    *("id", "sender", "recipient", "text", "priority"),
    *("created", "sent", "channel", "delivered", "read"),
)
SELECT = f"SELECT {', '.join(COLUMNS)} FROM messages"
INSERT = (
    f"INSERT OR IGNORE INTO messages ({', '.join(COLUMNS)})"
    f" VALUES ({', '.join('?' * len(COLUMNS))})"
)
MOST = 100_000  # on their way to one receiver


class Messages:
    """All that are on their way, by receiver; those that arrived are in the database alone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[str, dict[str, Message]] = {}  # receiver -> id -> message, in order
        self._unread: Counter[str] = Counter()

    async def load(self) -> None:
        """What earlier hubs had not delivered, and how much nobody has read."""
        # What was typed as lines is never shown to have arrived.
        where = (
            f"{SELECT} WHERE delivered IS NULL AND read IS NULL"
            " AND NOT (sent IS NOT NULL AND channel = 'lines') ORDER BY number"
        )
        count = "SELECT recipient, COUNT(*) FROM messages WHERE read IS NULL GROUP BY recipient"
        rows = await self._write(lambda database: database.execute(where).fetchall())
        for row in rows:
            message = _message(row)
            self._open.setdefault(message.to, {})[message.id] = message
        counts = await self._write(lambda database: database.execute(count).fetchall())
        self._unread = Counter(dict(counts))

    # ── reading ──

    def queue(self, agent: str) -> list[Message]:
        """What is not delivered yet, in the order in which it was sent."""
        return list(self._open.get(agent, {}).values())

    def receivers(self) -> list[str]:
        """Those for whom something is on its way."""
        return [name for name, messages in self._open.items() if messages]

    def unread(self, agent: str) -> int:
        """How many it has not fetched; delivered ones count as read by an engine."""
        return self._unread[agent]

    async def inbox(self, agent: str, limit: int) -> list[Message]:
        """What was sent to it, the newest last."""
        where = f"{SELECT} WHERE recipient = ? ORDER BY number DESC LIMIT ?"
        rows = await self._write(
            lambda database: database.execute(where, (agent, limit)).fetchall()
        )
        return [_message(row) for row in reversed(rows)]

    # ── a message's life ──

    async def send(self, message: Message) -> Message:
        """Keep it. With an id that is there already it is the message of before."""
        if len(self._open.get(message.to, ())) >= MOST:
            raise BullpenError(
                f"{MOST} messages wait for {message.to}",
                hint=f"bullpen explain {message.to}",
                kind=Kind.CONFLICT,
            )

        def insert(database: sqlite3.Connection) -> Message:
            if database.execute(INSERT, _row(message)).rowcount:
                self._store.insert(_draft("message.sent", message))
                return message
            where = f"{SELECT} WHERE id = ?"
            return _message(database.execute(where, (message.id,)).fetchone())

        kept = await self._write(insert)
        if kept is message:
            self._open.setdefault(message.to, {})[message.id] = message
            self._unread[message.to] += 1
        elif (kept.sender, kept.to, kept.text) != (message.sender, message.to, message.text):
            raise BullpenError(f"{message.id} is another message", kind=Kind.CONFLICT)
        return kept

    async def mark_sent(self, messages: Sequence[Message], channel: str) -> None:
        """Recorded before they are handed over: what is then lost on the way is looked for."""
        await self._mark(messages, "sent", channel)

    async def mark_queued(self, messages: Sequence[Message]) -> None:
        """They did not arrive, and wait again."""
        ids = [message.id for message in messages]
        text = f"UPDATE messages SET sent = NULL WHERE id IN ({', '.join('?' * len(ids))})"
        await self._write(lambda database: database.execute(text, ids))
        for message in messages:
            if message.id in self._open.get(message.to, ()):
                self._open[message.to][message.id] = message.model_copy(update={"sent": None})

    def forget(self, messages: Sequence[Message]) -> None:
        """They were handed over to somebody who will not show it."""
        for message in messages:
            self._open.get(message.to, {}).pop(message.id, None)

    async def mark_delivered(self, messages: Sequence[Message]) -> None:
        """The engine showed them."""
        await self._mark(messages, "delivered")

    async def mark_read(self, messages: Sequence[Message]) -> None:
        """The receiver fetched them: nobody has to hand them over any more."""
        await self._mark([one for one in messages if one.read is None], "read")

    async def _mark(
        self,
        messages: Sequence[Message],
        what: Literal["sent", "delivered", "read"],
        channel: str | None = None,
    ) -> None:
        if not messages:
            return
        now = time.time()
        fields: dict[str, Any] = {what: now}
        if channel is not None:
            fields["channel"] = channel
        changed = [one.model_copy(update=fields) for one in messages]

        def update(database: sqlite3.Connection) -> None:
            text = f"UPDATE messages SET {what} = ?, channel = ? WHERE id = ? AND {what} IS NULL"
            database.executemany(text, [(now, one.channel, one.id) for one in changed])
            if what != "sent":
                self._store.insert(*(_draft(f"message.{what}", one) for one in changed))

        await self._write(update)
        for one in changed:
            queue = self._open.get(one.to, {})
            if what == "sent" and one.id in queue:
                queue[one.id] = one
            elif what != "sent":
                queue.pop(one.id, None)
                if what == "read":
                    self._unread[one.to] -= 1

    async def _write(self, function: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.wrap_future(self._store.write(function))


def _row(message: Message) -> tuple[Any, ...]:
    fields = message.model_dump()
    return tuple(fields["to" if name == "recipient" else name] for name in COLUMNS)


def _message(row: Iterable[Any]) -> Message:
    fields = dict(zip(COLUMNS, row, strict=True))
    return Message(to=fields.pop("recipient"), **fields)


def _draft(kind: str, message: Message) -> Draft:
    data = {
        "id": message.id,
        "from": message.sender,
        "priority": message.priority,
        "bytes": len(message.text.encode()),
    }
    return Draft(time.time(), kind, message.to, data, key=f"{kind}:{message.id}")
