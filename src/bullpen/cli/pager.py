"""Shows a long text page by page at a terminal, and says whether all of it was seen.

No program is started for it: what a person decides on is shown by us alone. The text is printable.
"""

import shutil
import sys

from bullpen.cli import output
from bullpen.text import LEAST_COLUMNS, broken

LEAST_LINES = 5


def show_whole(text: str) -> bool:
    """Write all of it; at a terminal in pages. False: the person stopped before its end."""
    if not is_at_terminal():
        output.write(text)
        return True
    size = shutil.get_terminal_size()
    rows = list(broken(text, max(size.columns, LEAST_COLUMNS)))
    page = max(size.lines, LEAST_LINES) - 2
    for start in range(0, len(rows), page):
        output.write("\n".join(rows[start : start + page]))
        end = min(start + page, len(rows))
        if end < len(rows) and not _goes_on(end, len(rows)):
            return False
    return True


def is_at_terminal() -> bool:
    """Whether a person sees what is written, and can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _goes_on(shown: int, total: int) -> bool:
    prompt = f"-- {shown} of {total} lines · Enter: more · q and Enter: stop -- "
    sys.stdout.write(output.colour(prompt, "dim"))
    sys.stdout.flush()
    answer = sys.stdin.readline()
    return bool(answer) and not answer.strip()
