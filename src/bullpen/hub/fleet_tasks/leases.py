"""Tasks of the fleet that agents of this machine do, in the database: what a next hub has to know
to go on with them."""

from bullpen.hub.store.store import Store
from bullpen.model.value import Value


class Lease(Value):
    """One: written before the server is asked for it. `local` is the task here, once there is."""

    asker: str
    id: str
    epoch: int
    agent: str
    subject: str  # where it waited
    asked: str  # what was asked, in base64
    local: str = ""

    @property
    def key(self) -> str:
        return f"{self.asker}/{self.id}"


class LeaseRows:
    """All of this hub."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self) -> list[Lease]:
        rows = await self._store.read(
            lambda database: database.execute("SELECT data FROM fleet_leases").fetchall()
        )
        return [Lease.model_validate_json(row[0]) for row in rows]

    async def put(self, lease: Lease) -> None:
        """On disk when this returns."""
        row = (lease.key, lease.model_dump_json())
        await self._store.write(
            lambda transaction: transaction.connection.execute(
                "INSERT OR REPLACE INTO fleet_leases (key, data) VALUES (?, ?)", row
            )
        )

    async def drop(self, lease: Lease) -> None:
        """That one, and not the one with which this machine has taken the task again."""
        await self._store.write(
            lambda transaction: transaction.connection.execute(
                "DELETE FROM fleet_leases WHERE key = ? AND json_extract(data, '$.epoch') = ?",
                (lease.key, lease.epoch),
            )
        )


def name_branch(asker: str, id: str, epoch: int) -> str:
    """Where its agent commits: one for each attempt, so that the work of one that was given up
    stays."""
    return f"fleet-{asker}-{id}-{epoch}"
