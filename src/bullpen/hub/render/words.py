"""Words and columns that several texts share. Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from bullpen.text import printable, width


def to_the_right(rows: Sequence[tuple[str, ...]], columns: Iterable[int]) -> list[tuple[str, ...]]:
    """With the cells of those columns under each other's ends; empty ones stay empty."""
    sizes = {column: max(width(row[column]) for row in rows) for column in columns}
    return [
        tuple(
            " " * (sizes[n] - width(cell)) + cell if cell and n in sizes else cell
            for n, cell in enumerate(row)
        )
        for row in rows
    ]


def count_messages(count: int) -> str:
    """`1 message`, `2 messages`."""
    return "1 message" if count == 1 else f"{count} messages"


def waiting_text(count: int, why: str) -> str:
    """`2 messages wait: it is working: at the end of its turn`."""
    verb = "waits" if count == 1 else "wait"
    return f"{count_messages(count)} {verb}" + (f": {printable(why)}" if why else "")


def age(seconds: float) -> str:
    """`12s`, `40m`, `3h`, `6d`."""
    seconds = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def moment(at: float) -> str:
    """Local time of day; with the date when it is not today's."""
    local = datetime.fromtimestamp(at).astimezone()
    today = local.date() == datetime.now().astimezone().date()
    return local.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")
