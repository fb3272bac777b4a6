"""Letters to hubs of other machines, in the database: what they have not taken yet, and what was
taken of theirs.

Used by `box` and `hub/fleet_children`, in the same transactions as what they are about, and by
`hub/fleet_mail`, which sends them. Knows nothing of how they travel. A machine that is in no fleet
has no row.
"""

import asyncio
import secrets
import sqlite3
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.model.letter import About, Heard, Letter, Written, place_in_line

ABOUT: TypeAdapter[About] = TypeAdapter(About)


class NotNextError(Exception):
    """It was taken before, or an earlier one was not."""

    def __init__(self, is_missing: bool) -> None:
        super().__init__()
        self.is_missing = is_missing


@dataclass(frozen=True)
class Outgoing:
    """A letter that waits, and the text that goes along."""

    letter: Letter
    text: str


class Letters:
    """Of one hub."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.changed = asyncio.Event()  # there may be a new one

    # ── to others ──

    def add(self, transaction: Transaction, host: str, about: About) -> None:
        """The next of the line to that host. Set `changed` when it is committed."""
        database = transaction.connection
        database.execute(
            "INSERT INTO fleet_sent (host, line, number) VALUES (?, ?, 1)"
            " ON CONFLICT (host) DO UPDATE SET number = number + 1",
            (host, secrets.token_hex(8)),
        )
        database.execute(
            "INSERT INTO fleet_outbox (host, number, message, data)"
            " SELECT host, number, ?, ? FROM fleet_sent WHERE host = ?",
            (about.id if isinstance(about, Written) else "", about.model_dump_json(), host),
        )

    async def list_hosts(self) -> list[str]:
        """Those for whom a letter waits."""
        rows = await self._read("SELECT DISTINCT host FROM fleet_outbox ORDER BY host")
        return [host for (host,) in rows]

    async def first(self, host: str, count: int) -> list[Outgoing]:
        """So many of those that wait for it, in their order."""
        rows = await self._read(
            "SELECT line, fleet_outbox.number, data, coalesce(text, '') FROM fleet_outbox"
            " JOIN fleet_sent USING (host) LEFT JOIN messages ON messages.id = message"
            " WHERE host = ? ORDER BY fleet_outbox.number LIMIT ?",
            *(host, count),
        )
        taken = rows[0][1] - 1 if rows else 0
        return [
            Outgoing(
                Letter(line=line, number=number, taken=taken, about=ABOUT.validate_json(data)), text
            )
            for line, number, data, text in rows
        ]

    def drop(self, transaction: Transaction, host: str, heard: Heard) -> list[str]:
        """The host has taken these; their messages, empty for what is none."""
        rows = transaction.connection.execute(
            "DELETE FROM fleet_outbox WHERE host = ? AND number <= ?"
            " AND (SELECT line FROM fleet_sent WHERE fleet_sent.host = fleet_outbox.host) = ?"
            " RETURNING number, message",
            (host, heard.number, heard.line),
        ).fetchall()
        return [message for _, message in sorted(rows)]

    # ── from others ──

    async def find_last(self, host: str, line: str) -> int | None:
        """The last one that was taken of that line."""
        return await self._store.read(lambda database: _find_last(database, host, line))

    def take(self, transaction: Transaction, host: str, letter: Letter) -> None:
        """It counts as taken, with all else of this transaction. NotNextError if it must not be."""
        database = transaction.connection
        position = place_in_line(letter, _find_last(database, host, letter.line))
        if position != "next":
            raise NotNextError(position == "too soon")
        database.execute(
            "INSERT OR REPLACE INTO fleet_taken (host, line, number) VALUES (?, ?, ?)",
            (host, letter.line, letter.number),
        )

    async def _read(self, select: str, *values: str | int) -> list[Any]:
        return await self._store.read(lambda database: database.execute(select, values).fetchall())


def _find_last(database: sqlite3.Connection, host: str, line: str) -> int | None:
    row = database.execute(
        "SELECT number FROM fleet_taken WHERE host = ? AND line = ?", (host, line)
    ).fetchone()
    return int(row[0]) if row else None
