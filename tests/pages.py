"""The commands that pages show, as they stand behind a prompt in code blocks. Pure.

A block under `<!-- not run: REASON -->` shows what cannot be run in a test.
"""

import re
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
_BLOCK = re.compile(
    r"(?:^<!-- not run: ([^\n]+) -->\n)?^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Shown:
    """A command line, the error that the page shows for it, and why it is not run."""

    line: str
    error: str = ""
    not_run: str = ""


def shown_commands(text: str) -> list[Shown]:
    """In the order of the page; a line that ends in a backslash goes on."""
    return [
        Shown(line.replace("\\\n", " "), _error(output), reason)
        for reason, block in _BLOCK.findall(text)
        for line, output in re.findall(
            r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE
        )
    ]


def _error(output: str) -> str:
    first = output.partition("\n")[0]
    return first if first.startswith("error: ") else ""
