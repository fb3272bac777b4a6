"""What approvals that wait are about, as a whole: rows of the table `approval_inputs`.

Called by `approvals` alone. A row is written with the event of its approval, and deleted after it
has ended: nobody decides on it any more, and it may hold credentials and contents of files.
"""

import asyncio
import json
import sqlite3
from collections.abc import Collection
from functools import partial
from typing import Any

from bullpen.hub.store.events import encode
from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction


class KeptInput:
    """A row to be."""

    def __init__(self, key: str, tool_input: dict[str, Any]) -> None:
        self.key = key
        self.data = encode(tool_input)

    def put(self, transaction: Transaction) -> None:
        transaction.connection.execute(
            "INSERT OR REPLACE INTO approval_inputs (key, input) VALUES (?, ?)",
            (self.key, self.data),
        )


class Inputs:
    """The rows, and how big each is."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sizes: dict[str, int] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._sizes

    def size(self, keys: Collection[str]) -> int:
        """How many bytes are kept for these."""
        return sum(self._sizes.get(key, 0) for key in keys)

    async def load(self, wanted: Collection[str]) -> dict[str, dict[str, Any]]:
        """Those that are there of `wanted`. All others are deleted."""
        keys = await self._store.read(_list_keys)
        inputs = {}
        for key in keys:
            tool_input = await self.find(key) if key in wanted else None
            if tool_input is None:
                await self.drop(key)
            else:
                inputs[key] = tool_input
                self._sizes[key] = len(encode(tool_input))
        return inputs

    async def put(self, kept: KeptInput) -> None:
        await self._store.write(kept.put)
        self.note(kept)

    def note(self, kept: KeptInput) -> None:
        """It has been written."""
        self._sizes[kept.key] = len(kept.data)

    async def find(self, key: str) -> dict[str, Any] | None:
        data = await self._store.read(partial(_find, key=key))
        return None if data is None else await asyncio.to_thread(json.loads, data)

    async def drop(self, key: str) -> None:
        await self._store.write(partial(_drop, key=key))
        self._sizes.pop(key, None)


def _list_keys(connection: sqlite3.Connection) -> list[str]:
    return [key for (key,) in connection.execute("SELECT key FROM approval_inputs")]


def _find(connection: sqlite3.Connection, key: str) -> str | None:
    select = "SELECT input FROM approval_inputs WHERE key = ?"
    row = connection.execute(select, (key,)).fetchone()
    return row[0] if row else None


def _drop(transaction: Transaction, key: str) -> None:
    transaction.connection.execute("DELETE FROM approval_inputs WHERE key = ?", (key,))
