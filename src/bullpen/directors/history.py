"""What a director has done: the last 100 of it, kept in its memory, shown at `/history`. Pure.

Called by directors, which add rows, and by `director`, which shows pages of them.
"""

from typing import Annotated

from pydantic import ConfigDict, Field

from bullpen.errors import BullpenError
from bullpen.model.value import Value

KEPT = 100
PAGE = 20


class HistoryRow(Value):
    """Something that is over; directors add keys of their own."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str  # of the occurrence, the issue …
    state: str  # how it ended
    task_id: str = ""
    agent: str = ""
    created_at: float = 0.0  # seconds since 1970
    completed_at: float = 0.0
    reason: str = ""


class HistoryPage(Value):
    """A page of rows, newest first."""

    items: tuple[HistoryRow, ...]
    page: Annotated[int, Field(ge=1)]
    limit: Annotated[int, Field(ge=1, le=100)]
    total: int


def with_row(history: tuple[HistoryRow, ...], row: HistoryRow) -> tuple[HistoryRow, ...]:
    """Newest first; the oldest are dropped."""
    return (row, *history)[:KEPT]


def page_of(history: tuple[HistoryRow, ...], page: str, limit: str) -> HistoryPage:
    """One page; the numbers are as a request has them."""
    number, size = _number("page", page, 1_000_000, 1), _number("limit", limit, 100, PAGE)
    rows = history[(number - 1) * size : number * size]
    return HistoryPage(items=rows, page=number, limit=size, total=len(history))


def _number(name: str, text: str, most: int, default: int) -> int:
    if not text:
        return default
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= most:
        raise BullpenError(f"{name} is a number from 1 to {most}, not {text[:20]!r}")
    return int(text)
