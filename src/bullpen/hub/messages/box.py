"""Messages between agents and people: stored in the database, queued in memory.

Called by `deliver`, by `http/messages` and by `tasks/driver`. Each change is one transaction with
its event, and is on disk before anybody hears of it. Never decides what to do with a message.
"""

import itertools
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal

from bullpen.errors import BullpenError, Kind
from bullpen.hub.background import wholly
from bullpen.hub.messages.letters import Letters
from bullpen.hub.messages.open_queue import OpenQueue
from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.model.event import Draft
from bullpen.model.letter import Heard, Letter, Receipt
from bullpen.model.message import BULLPEN, FLEET, ROOT, Message

COLUMNS = (
    *("id", "sender", "recipient", "text", "priority"),
    *("created", "sent", "channel", "delivered", "read", "quotes", "origin", "refused", "reason"),
)
SELECT = f"SELECT {', '.join(COLUMNS)} FROM messages"
INSERT = (
    f"INSERT OR IGNORE INTO messages ({', '.join(COLUMNS)})"
    f" VALUES ({', '.join('?' * len(COLUMNS))})"
)
MOST = 100_000  # on their way to one receiver
# Of one agent on their way to one receiver, which may not run: they are held in memory.
MOST_OF_ONE, MOST_BYTES_OF_ONE = 1000, 8 << 20
EXPIRE_ROWS = 500  # deleted in one write, so that others get in between
# Those whose receiver has them, or is gone; what is still on its way stays. What was typed as lines
# is never shown to have arrived. To another machine everything is on its way that it has not taken.
EXPIRE = (
    "DELETE FROM messages WHERE number IN (SELECT number FROM messages WHERE created < ?"
    " AND (delivered IS NOT NULL OR read IS NOT NULL OR refused IS NOT NULL"
    " OR (sent IS NOT NULL AND channel = 'lines')"
    " OR recipient NOT IN (SELECT value FROM json_each(?)))"
    " AND id NOT IN (SELECT message FROM fleet_outbox) LIMIT ?)"
)
# What `load` would bring back, but for those of some senders.
END = (
    "UPDATE messages SET refused = ?, reason = ? WHERE recipient = ?"
    " AND delivered IS NULL AND read IS NULL AND refused IS NULL"
    " AND NOT (sent IS NOT NULL AND channel = 'lines')"
    f" AND sender NOT IN (SELECT value FROM json_each(?)) RETURNING {', '.join(COLUMNS)}"
)


class Messages:
    """All messages on their way, by receiver; those that arrived are in the database alone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.letters = Letters(store)
        self._open: defaultdict[str, OpenQueue] = defaultdict(OpenQueue)  # by receiver
        self._unread: Counter[str] = Counter()

    async def load(self) -> None:
        """What earlier hubs had not delivered, and how much nobody has read."""
        # What was typed as lines is never shown to have arrived.
        where = (
            f"{SELECT} WHERE delivered IS NULL AND read IS NULL AND refused IS NULL"
            " AND NOT (sent IS NOT NULL AND channel IN ('lines', 'fleet')) ORDER BY number"
        )
        count = (
            "SELECT recipient, COUNT(*) FROM messages WHERE read IS NULL AND refused IS NULL"
            " GROUP BY recipient"
        )
        rows = await self._read(where)
        for row in rows:
            message = _message(row)
            self._open[message.to].put(message)
        counts = await self._read(count)
        self._unread = Counter(dict(counts))

    # ── reading ──

    def queue(self, agent: str) -> list[Message]:
        """What is not delivered yet, in the order in which it was sent."""
        return list(self._open[agent]) if agent in self._open else []

    def oldest_open(self, agent: str, count: int) -> list[Message]:
        """The first so many of them."""
        return list(itertools.islice(self._open[agent], count)) if agent in self._open else []

    def count_open(self, agent: str) -> int:
        """How many are not delivered yet."""
        return len(self._open[agent]) if agent in self._open else 0

    def find_open(self, agent: str, ids: Iterable[str]) -> list[Message]:
        """Those of them that are not delivered yet."""
        return self._open[agent].find(ids) if agent in self._open else []

    def list_sent(self, agent: str) -> list[Message]:
        """What was handed over to it, and was not shown to have arrived."""
        return self._open[agent].sent() if agent in self._open else []

    def next_ones(
        self,
        agent: str,
        *,
        is_urgent: bool = False,
        may_go: Callable[[Message], bool] | None = None,
    ) -> list[Message]:
        """What is handed over next, by priority: as much as ever goes at once."""
        if agent not in self._open:
            return []
        return self._open[agent].next_ones(is_urgent=is_urgent, may_go=may_go)

    def receivers(self) -> list[str]:
        """The agents for whom a message is on its way."""
        return [name for name, messages in self._open.items() if messages]

    def unread(self, agent: str) -> int:
        """How many it has not fetched; delivered ones count as read by an engine."""
        return self._unread[agent]

    async def inbox(self, agent: str, limit: int) -> list[Message]:
        """What was sent to it, the newest last."""
        where = f"{SELECT} WHERE recipient = ? ORDER BY number DESC LIMIT ?"
        rows = await self._read(where, agent, limit)
        return [_message(row) for row in reversed(rows)]

    # ── a message's life ──

    async def send(
        self, message: Message, also: Callable[[Transaction, bool], None] | None = None
    ) -> Message:
        """Keep it. With an id that is there already it is the message of before. `also` is done in
        the same transaction, and is told whether the message is new."""
        if self.count_open(message.to) >= MOST or self._is_too_much(message):
            raise BullpenError(
                f"too many messages wait for {message.to}",
                hint=f"bullpen explain {message.to}",
                kind=Kind.CONFLICT,
            )

        def insert(transaction: Transaction) -> Message:
            database, stored = transaction.connection, message
            is_new = bool(database.execute(INSERT, _row(message)).rowcount)
            if is_new:
                transaction.append(_draft("message.sent", message))
            else:
                where = f"{SELECT} WHERE id = ?"
                stored = _message(database.execute(where, (message.id,)).fetchone())
                _refuse_another(stored, message)
            if also is not None:
                also(transaction, is_new)
            return stored

        async def store() -> Message:
            stored = await self._store.write(insert)
            if stored is message:
                self._open[message.to].put(message)
                self._unread[message.to] += 1
            return stored

        return await wholly(store())  # what is in the database is in the queue, too

    def _is_too_much(self, message: Message) -> bool:
        """Of an agent: what the person and Bullpen itself write is theirs to limit. On another
        machine any name may be written to: all of them together count as one receiver."""
        if message.sender in (ROOT, BULLPEN):
            return False
        count, size = 0, len(message.text)
        for queue in self._queues_of(message.to):
            more, bytes_more = queue.of_sender(message.sender)
            count, size = count + more, size + bytes_more
        return count >= MOST_OF_ONE or size > MOST_BYTES_OF_ONE

    def _queues_of(self, to: str) -> list[OpenQueue]:
        host, slash, _ = to.partition("/")
        if slash:
            return [queue for name, queue in self._open.items() if name.startswith(f"{host}/")]
        return [self._open[to]] if to in self._open else []

    async def expire(self, before: float, agents: Collection[str]) -> int:
        """Delete messages of before that have arrived, or whose receiver is none of these agents
        and not the person; how many."""
        there = {ROOT, *agents}
        values = (before, json.dumps(sorted(there)), EXPIRE_ROWS)
        deleted, count = 0, EXPIRE_ROWS
        while count == EXPIRE_ROWS:
            count = await self._store.write(
                lambda transaction: transaction.connection.execute(EXPIRE, values).rowcount
            )
            deleted += count
        for name in {name for name in self._open.keys() - there if "/" not in name}:
            old = [message for message in self.queue(name) if message.created < before]
            self.forget(old)
            self._unread[name] -= len(old)
        return deleted

    async def mark_sent(self, messages: Sequence[Message], channel: str) -> list[Message]:
        """Recorded before they are handed over: what is then lost on the way is looked for. Those
        that nobody else is handing over."""
        return await self._mark(messages, "sent", channel)

    async def mark_queued(self, messages: Sequence[Message]) -> None:
        """They did not arrive, and wait again."""
        ids = [message.id for message in messages]
        statement = (
            f"UPDATE messages SET sent = NULL WHERE id IN ({', '.join('?' * len(ids))})"
            " AND delivered IS NULL AND read IS NULL"
        )
        await self._store.write(lambda transaction: transaction.connection.execute(statement, ids))
        for message in messages:
            self._change(message, {"sent": None})

    async def redirect(self, name: str, heir: str, senders: Sequence[str]) -> None:
        """Give what these wrote to `name`, and it never got, to another receiver."""
        moved = [one for one in self.queue(name) if one.sender in senders]
        if not moved:
            return
        ids = [one.id for one in moved]
        statement = (
            f"UPDATE messages SET recipient = ?, sent = NULL WHERE id IN"
            f" ({', '.join('?' * len(ids))}) AND delivered IS NULL AND read IS NULL"
        )
        await self._store.write(
            lambda transaction: transaction.connection.execute(statement, (heir, *ids))
        )
        still_open = self.find_open(name, ids)
        self.forget(still_open)
        for one in still_open:
            self._open[heir].put(one.model_copy(update={"to": heir, "sent": None}))
            self._unread[name] -= 1
            self._unread[heir] += 1

    async def end(self, name: str, reason: str, but_of: Collection[str]) -> None:
        """Refuse what waits for that agent, but for what these senders wrote."""

        def update(transaction: Transaction) -> list[Message]:
            values = (time.time(), reason, name, json.dumps(sorted(but_of)))
            rows = transaction.connection.execute(END, values).fetchall()
            ended = [_message(row) for row in rows]
            transaction.append(*(_draft("message.refused", message) for message in ended))
            self._add_receipts(transaction, "refused", ended)
            return ended

        async def store() -> None:
            ended = await self._store.write(update)
            self.forget(ended)
            self._unread[name] -= len(ended)
            if any(message.origin for message in ended):
                self.letters.changed.set()

        if any(message.sender not in but_of for message in self.queue(name)):
            await wholly(store())

    def forget(self, messages: Sequence[Message]) -> None:
        """They were handed over to somebody who will not show it."""
        for message in messages:
            if message.to in self._open:
                self._open[message.to].drop(message.id)
                if not self._open[message.to]:
                    del self._open[message.to]

    async def mark_delivered(self, messages: Sequence[Message]) -> None:
        """The engine showed them."""
        await self._mark(messages, "delivered")

    async def mark_read(self, messages: Sequence[Message]) -> None:
        """The receiver fetched them: nobody has to hand them over any more."""
        await self._mark([one for one in messages if one.read is None], "read")

    async def _mark(
        self,
        messages: Sequence[Message],
        step: Literal["sent", "delivered", "read"],
        channel: str = "",
    ) -> list[Message]:
        """Those that had not come so far before. The callers' copies may be old: nothing of them
        is written back."""
        if not messages:
            return []
        fields: dict[str, Any] = {step: time.time()}
        if step == "sent":
            fields["channel"] = channel
        columns = ", ".join(f"{name} = ?" for name in fields)
        statement = (
            f"UPDATE messages SET {columns} WHERE id = ? AND {step} IS NULL AND refused IS NULL"
        )

        def update(transaction: Transaction) -> list[Message]:
            database, values = transaction.connection, tuple(fields.values())
            marked = [
                message
                for message in messages
                if database.execute(statement, (*values, message.id)).rowcount
            ]
            if step != "sent":
                transaction.append(*(_draft(f"message.{step}", message) for message in marked))
                self._add_receipts(transaction, step, marked)
            return marked

        marked = await self._store.write(update)
        if any(message.origin for message in marked):
            self.letters.changed.set()
        if step == "sent":
            for message in marked:
                self._change(message, fields)
        else:
            self.forget(messages)
        if step == "read":
            self._unread.subtract(message.to for message in marked)
        return marked

    # ── to other machines ──

    async def mark_taken(self, host: str, heard: Heard) -> bool:
        """That machine has these letters; whether it did not have them before."""

        def update(transaction: Transaction) -> list[str]:
            ids = self.letters.drop(transaction, host, heard)
            statement = "UPDATE messages SET sent = ?, channel = ? WHERE id = ? AND sent IS NULL"
            now = time.time()
            transaction.connection.executemany(statement, [(now, FLEET, id) for id in ids])
            return ids

        async def mark() -> list[str]:
            ids = await self._store.write(update)
            for name in [name for name in self._open if name.startswith(f"{host}/")]:
                self.forget(self.find_open(name, ids))
            return ids

        return bool(await wholly(mark()))

    def _add_receipts(
        self,
        transaction: Transaction,
        step: Literal["delivered", "read", "refused"],
        messages: list[Message],
    ) -> None:
        """Have the machines told from which these came."""
        for message in messages:
            host, slash, id = message.origin.partition("/")
            if slash:
                receipt = Receipt(id=id, step=step, at=time.time(), reason=message.reason)
                self.letters.add(transaction, host, receipt)

    async def find_sent_to(self, host: str, id: str) -> Message | None:
        """The message of that id, if it is one for that machine."""
        rows = await self._read(f"{SELECT} WHERE id = ?", id)
        message = _message(rows[0]) if rows else None
        return message if message and message.to.startswith(f"{host}/") else None

    async def take_receipt(
        self, message: Message | None, note: Callable[[Transaction], None]
    ) -> None:
        """How far a message to another machine got; `note` is `note_receipt` of it."""

        async def take() -> None:
            await self._store.write(note)
            if message is not None:
                self.forget([message])

        await wholly(take())

    def note_receipt(
        self,
        host: str,
        letter: Letter,
        receipt: Receipt,
        message: Message | None,
        transaction: Transaction,
    ) -> None:
        """Take the letter, and note what it says of that message. NotNextError if it is not its
        turn."""
        self.letters.take(transaction, host, letter)
        if message is None:
            return
        at = max(message.created, min(receipt.at, time.time()))  # the clock there may be wrong
        statement = (
            f"UPDATE messages SET {receipt.step} = ?, reason = ?, sent = coalesce(sent, ?),"
            f" channel = ? WHERE id = ? AND {receipt.step} IS NULL"
        )
        row = (at, receipt.reason, at, FLEET, message.id)
        if transaction.connection.execute(statement, row).rowcount:
            noted = message.model_copy(update={"reason": receipt.reason})
            transaction.append(_draft(f"message.{receipt.step}", noted))

    async def refuse(self, host: str, letter: Letter, receipt: Receipt) -> None:
        """Take the letter without its message, and have its writer told. NotNextError as above."""

        def update(transaction: Transaction) -> None:
            self.letters.take(transaction, host, letter)
            self.letters.add(transaction, host, receipt)

        await self._store.write(update)
        self.letters.changed.set()

    def _change(self, message: Message, fields: dict[str, Any]) -> None:
        for open_message in self.find_open(message.to, [message.id]):
            self._open[message.to].put(open_message.model_copy(update=fields))

    async def _read(self, select: str, *values: str | int) -> list[Any]:
        return await self._store.read(lambda database: database.execute(select, values).fetchall())


def _refuse_another(stored: Message, message: Message) -> None:
    if (stored.sender, stored.to, stored.text) != (message.sender, message.to, message.text):
        raise BullpenError(f"{message.id} is another message", kind=Kind.CONFLICT)


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
    if message.reason:
        data["reason"] = message.reason
    return Draft(time.time(), kind, message.to, data, key=f"{kind}:{message.id}")
