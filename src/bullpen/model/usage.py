"""What agents use: tokens, money, requests, time; how it is added up, limited and written.

Pure. `hub/usage/count.py` counts, `hub/usage/budgets.py` acts on what `check` returns.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from bullpen.model.role import Budget
from bullpen.model.value import Value

WARN_SHARE = 0.8

By = Literal["agent", "pod", "role", "day"]
Labels = tuple[str, str, str, str]  # agent, role, pod, model
Level = Literal["ok", "warned", "reached"]
What = Literal["tokens", "usd", "minutes"]


class Totals(Value):
    """What was used, added up. `work_seconds` is the time spent working, tools and all."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    usd: float = 0.0
    requests: int = 0
    tool_calls: int = 0
    tool_seconds: float = 0.0
    work_seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """What lists and budgets call tokens. Without those read from the cache: they are the
        same context again with every request, and would drown the rest."""
        return self.input + self.output + self.cache_write

    def __add__(self, other: "Totals") -> "Totals":
        return Totals.model_construct(
            **{name: getattr(self, name) + getattr(other, name) for name in FIELDS}
        )


FIELDS = tuple(Totals.model_fields)
NOTHING = Totals()


def added_up(parts: Iterable[Totals]) -> Totals:
    """The sum of these totals."""
    return sum(parts, NOTHING)


class UsageRow(Value):
    """One line of a report: what an agent, a pod, a role used, or what was used on a day."""

    name: str
    used: Totals


class UsageReport(Value):
    """Usage by something; `since` is the first day that counts, empty for all."""

    by: By
    since: str
    rows: tuple[UsageRow, ...]
    total: Totals


# ── budgets ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class BudgetVerdict:
    """How a budget stands; `what` is the part of it that is nearest to its end."""

    level: Level
    what: What = "tokens"
    used: float = 0.0
    limit: float = 0.0

    def words(self) -> str:
        """`41.2k of 40k tokens`, `$9.98 of $10.00`, `31 of 30 minutes`."""
        match self.what:
            case "tokens":
                return f"{short_count(self.used)} of {short_count(self.limit)} tokens"
            case "usd":
                return f"{short_usd(self.used)} of {short_usd(self.limit)}"
            case "minutes":
                return f"{int(self.used)} of {int(self.limit)} minutes"


def check(budget: Budget, totals: Totals, minutes: float) -> BudgetVerdict:
    """How far a budget is used up: warned from 80 %, reached at 100 %."""
    parts: list[tuple[What, float, float | None]] = [
        ("tokens", totals.tokens, budget.tokens),
        ("usd", totals.usd, budget.usd),
        ("minutes", minutes, budget.minutes),
    ]
    set_ones = [(what, used, limit) for what, used, limit in parts if limit is not None]
    if not set_ones:
        return BudgetVerdict("ok")
    what, used, limit = max(set_ones, key=lambda part: part[1] / part[2])
    # Rounded up to what a sum of many small amounts can be wrong by.
    share = used / limit + 1e-9
    level: Level = "reached" if share >= 1 else "warned" if share >= WARN_SHARE else "ok"
    return BudgetVerdict(level, what, used, limit)


def is_set(budget: Budget) -> bool:
    """Whether it limits anything."""
    return any(part is not None for part in (budget.tokens, budget.usd, budget.minutes))


# ── as text ──────────────────────────────────────────────────────────────────


def short_count(count: float) -> str:
    """`950`, `41.2k`, `1.5M`."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        # What would be rounded to 1000.0k is 1.0M.
        if count >= size * 0.99995:
            return f"{count / size:.1f}".removesuffix(".0") + unit
    return str(int(count))


def short_usd(usd: float) -> str:
    """`$0.38`; what is less than a cent, but something, is not shown as nothing."""
    return "<$0.01" if 0 < usd < 0.005 else f"${usd:,.2f}"


def short_seconds(seconds: float) -> str:
    """`0.4s`, `12s`, `3m20s`, `2h05m`."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(math.floor(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
