"""Landings in the database: rows in, rows out. Each change is one transaction with its event."""

import json
import time
from collections.abc import Sequence

from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.model.event import Draft
from bullpen.model.landing import Landing

PUT = (
    "INSERT INTO landings (id, name, repo, target, is_open, created, data) VALUES"
    " (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET is_open = excluded.is_open,"
    " data = excluded.data"
)
KIND = "landing.state"


class LandingRows:
    """All entries, those that are over too."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, *landings: Landing) -> None:
        """Keep them as they stand now. On disk when this returns."""

        def write(transaction: Transaction) -> None:
            for landing in landings:
                row = (landing.id, landing.name, landing.repo, landing.target)
                data = json.dumps(landing.model_dump(mode="json"))
                values = (*row, int(landing.is_open), landing.created, data)
                transaction.connection.execute(PUT, values)
                transaction.append(_moved(landing))

        await self._store.write(write)

    async def open(self) -> list[Landing]:
        """Those that a hub has something to do for, in the order in which they were asked for."""
        return await self._read("WHERE is_open ORDER BY number")

    async def last(self, limit: int) -> list[Landing]:
        """The last ones, the oldest of them first."""
        return list(reversed(await self._read(f"ORDER BY number DESC LIMIT {limit:d}")))

    async def find(self, id: str) -> Landing | None:
        landings = await self._read("WHERE id = ?", id)
        return landings[0] if landings else None

    async def drop_old(self, keep: int) -> list[str]:
        """Forget all but the last of those that are over; the ids of what was forgotten."""

        def drop(transaction: Transaction) -> list[str]:
            select = (
                "SELECT id FROM landings WHERE NOT is_open ORDER BY number DESC LIMIT -1 OFFSET ?"
            )
            rows = transaction.connection.execute(select, (keep,)).fetchall()
            transaction.connection.executemany("DELETE FROM landings WHERE id = ?", rows)
            return [row[0] for row in rows]

        return await self._store.write(drop)

    async def _read(self, rest: str, *values: str) -> list[Landing]:
        select = f"SELECT data FROM landings {rest}"
        rows: Sequence[tuple[str]] = await self._store.read(
            lambda database: database.execute(select, values).fetchall()
        )
        return [Landing.model_validate_json(row[0]) for row in rows]


def _moved(landing: Landing) -> Draft:
    data = {
        "landing": landing.id,
        "branch": landing.branch,
        "target": landing.target,
        "tip": landing.tip,
        "status": landing.status.model_dump(mode="json"),
    }
    return Draft(time.time(), KIND, landing.name, data)
