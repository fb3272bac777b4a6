"""Rows of cells as lines that fit a terminal. Pure.

Called by `cli/output.py` and by `hub/render/`, so that all tables give way alike: long texts are
cut first, then columns are dropped in a set order, then whatever is left is cut further. Of what
a person looks at for its text nothing is cut (`lay_out_whole`).
"""

from collections.abc import Collection, Sequence

from bullpen.text import cut_to, width, wrapped

GAP = "  "
LEAST_COLUMNS = 28  # what a text that may be cut keeps, as long as a column can be dropped
BELOW = "    "  # in front of what goes below its own line
FEWEST_COLUMNS = 8  # what it keeps before anything else is cut


def lay_out(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    columns: int = 0,
    *,
    drop: Sequence[str] = (),
    cut: Collection[str] | None = None,
    figures: Collection[str] = (),
) -> list[str]:
    """A line for each row of printable cells, no longer than so many columns; 0 is no limit.
    `names` are those of the cells. Those named by `drop` are left out if need be, the first of
    them first; those named by `cut` (else the last one) may be cut; `figures` are aligned to the
    right."""
    cells = {name: [row[number] for row in rows] for number, name in enumerate(names)}
    sizes = {name: max(map(width, column), default=0) for name, column in cells.items()}
    sizes = {name: size for name, size in sizes.items() if size}  # empty ones take no room
    if columns:
        sizes = _fitted(sizes, columns, drop, names[-1:] if cut is None else cut)
    lines = [
        GAP.join(
            _padded(cells[name][number], size, name in figures) for name, size in sizes.items()
        ).rstrip()
        for number in range(len(rows))
    ]
    return [cut_to(line, columns) for line in lines] if columns else lines


def lay_out_whole(
    names: Sequence[str], rows: Sequence[Sequence[str]], columns: int, text: str
) -> list[str]:
    """The same with nothing left out: where the rows do not fit, the cells named `text` go below
    the others of their row, and no word is broken."""
    lines = lay_out(names, rows)
    if not columns or all(width(line) <= columns for line in lines):
        return lines
    number = list(names).index(text)
    return [line for row in rows for line in _stacked(row, number, columns)]


def hang(line: str, columns: int) -> list[str]:
    """A line whose words that do not fit go below it."""
    first, *more = wrapped(line, columns and columns - len(BELOW))
    return [first, *(f"{BELOW}{part}" for part in more)]


def _stacked(row: Sequence[str], number: int, columns: int) -> list[str]:
    first, *others = [cell for at, cell in enumerate(row) if at != number]
    head = GAP.join([first, *others])
    heads = [head] if width(head) <= columns else [first, *(f"{BELOW}{cell}" for cell in others)]
    below = wrapped(row[number], columns - len(BELOW)) if row[number] else []
    return [*heads, *(f"{BELOW}{line}" for line in below)]


def _fitted(
    sizes: dict[str, int], columns: int, drop: Sequence[str], cut: Collection[str]
) -> dict[str, int]:
    """The sizes of the columns that are shown."""
    wanted = {name: min(size, columns) for name, size in sizes.items()}
    least = {
        name: min(size, LEAST_COLUMNS) if name in cut else size for name, size in wanted.items()
    }
    for name in drop:
        if _total(least) <= columns:
            break
        least.pop(name, None)
    shown = {name: wanted[name] for name in least}
    texts = [name for name in shown if name in cut]
    shown = _shrunk(shown, columns, texts, FEWEST_COLUMNS)
    return _shrunk(shown, columns, list(shown), 1)


def _shrunk(sizes: dict[str, int], columns: int, which: list[str], floor: int) -> dict[str, int]:
    """With the widest of those columns narrowed, step by step, until all fit or none can be."""
    sizes = dict(sizes)
    while _total(sizes) > columns:
        widest = max(which, key=lambda name: sizes[name], default="")
        if sizes.get(widest, 0) <= floor:
            break
        sizes[widest] -= 1
    return sizes


def _total(sizes: dict[str, int]) -> int:
    return sum(sizes.values()) + len(GAP) * (len(sizes) - 1)


def _padded(cell: str, size: int, is_figure: bool) -> str:
    shown = cut_to(cell, size)
    blanks = " " * (size - width(shown))
    return blanks + shown if is_figure else shown + blanks
