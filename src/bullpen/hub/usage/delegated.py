"""What agents spent by tasks that others do for them: it is part of their budgets.

Called by `tasks/delegations`, in the transaction that ends such a task, and by `budgets`. Writes
the table `delegated`: one row for each agent that ever gave a task. What a task may still spend
that is not over is held back: together they cannot spend more than there is.
"""

from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.hub.usage.rows import Key
from bullpen.model.rights import LIMITS
from bullpen.model.role import Budget
from bullpen.model.value import Value

ADD = (
    "INSERT INTO delegated (agent, born, tokens, usd, minutes) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (agent, born) DO UPDATE SET tokens = tokens + excluded.tokens,"
    " usd = usd + excluded.usd, minutes = minutes + excluded.minutes"
)


class Spent(Value):
    """What one task has used, or several."""

    tokens: int = 0
    usd: float = 0.0
    minutes: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            tokens=self.tokens + other.tokens,
            usd=self.usd + other.usd,
            minutes=self.minutes + other.minutes,
        )


class DelegatedCosts:
    """Of all agents of one hub."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._over: dict[Key, Spent] = {}
        self._open: dict[Key, dict[str, tuple[Budget, Spent]]] = {}  # by task

    async def load(self) -> None:
        """Read what was spent in the time of earlier hubs."""
        select = "SELECT agent, born, tokens, usd, minutes FROM delegated"
        rows = await self._store.read(lambda database: database.execute(select).fetchall())
        self._over = {
            (agent, born): Spent(tokens=tokens, usd=usd, minutes=minutes)
            for agent, born, tokens, usd, minutes in rows
        }

    @staticmethod
    def write(transaction: Transaction, giver: Key, spent: Spent) -> None:
        """A task is over. Call `note_over` afterwards."""
        row = (*giver, spent.tokens, spent.usd, spent.minutes)
        transaction.connection.execute(ADD, row)

    def note_over(self, giver: Key, task: str, spent: Spent) -> None:
        """What `write` wrote. On the loop."""
        self._open.get(giver, {}).pop(task, None)
        self._over[giver] = self._over.get(giver, Spent()) + spent

    def note_open(self, giver: Key, task: str, budget: Budget, spent: Spent) -> None:
        """A task that is not over was given that budget, and has spent that."""
        self._open.setdefault(giver, {})[task] = (budget, spent)

    def spent(self, giver: Key) -> Spent:
        """By all tasks that it ever gave."""
        running = (spent for _, spent in self._open.get(giver, {}).values())
        return sum(running, self._over.get(giver, Spent()))

    def reserved(self, giver: Key) -> dict[str, float]:
        """What tasks that are not over may spend besides, by limit."""
        kept = dict.fromkeys(LIMITS, 0.0)
        for budget, spent in self._open.get(giver, {}).values():
            for name in LIMITS:
                kept[name] += max(0.0, (getattr(budget, name) or 0.0) - getattr(spent, name))
        return kept
