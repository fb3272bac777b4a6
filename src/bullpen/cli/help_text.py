"""How help looks: it fits the terminal, down to 40 columns, and breaks and cuts no word.

`cli/main` has click use `HelpText` for every command; groups of commands are made as `Group`.
"""

import re
import shutil
from collections.abc import Iterable

import click

LEAST_WIDTH = 30
LEAST_NAME = 4
NARROW = 60  # below that, long names of options stand above their texts
WHOLE = 10_000
# Wrapping breaks at a hyphen, and --no-wait would be no option any more. This one it leaves alone.
HYPHEN = "\u2011"


class HelpText(click.HelpFormatter):
    """Click's own never goes below 50 columns."""

    def __init__(
        self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None
    ) -> None:
        columns = min(shutil.get_terminal_size().columns, max_width or 80)
        super().__init__(indent_increment, width or max(columns - 2, LEAST_WIDTH))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args.replace("-", HYPHEN), prefix)

    def write_text(self, text: str) -> None:
        room = self.width - self.current_indent
        paragraphs = [_fitted(each, room) for each in text.split("\n\n")]
        super().write_text("\n\n".join(paragraphs).replace("-", HYPHEN))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        room = self.width - self.current_indent
        shown = [(_broken_choices(name, room), text.replace("-", HYPHEN)) for name, text in rows]
        if self.width < NARROW:
            longest = max((len(word) for _, text in shown for word in text.split()), default=0)
            room_for_text = room - col_spacing - longest
            col_max = max(LEAST_NAME, min(col_max, self.width // 3, room_for_text))
        super().write_dl(shown, col_max, col_spacing)

    def getvalue(self) -> str:
        return super().getvalue().replace(HYPHEN, "-")


class Group(click.Group):
    """Says of each of its commands a whole sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(WHOLE))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _broken_choices(name: str, width: int) -> str:
    """`--state [queued|…]` on several lines, where one is too short for all of it."""
    if len(name) <= width:
        return name
    first, *others = re.split(r"(?<=\|)", name)
    lines = [first]
    for part in others:
        if len(lines[-1]) + len(part) > width - 2:
            lines.append("    ")
        lines[-1] += part
    return "\n  ".join(lines)


def _fitted(paragraph: str, width: int) -> str:
    """A paragraph that is not to be wrapped: what does not fit behind a gap stands below."""
    if not paragraph.lstrip().startswith("\b"):
        return paragraph
    lines = []
    for line in paragraph.split("\n"):
        name, *text = re.split(r"(?<=\S) {2,}", line, maxsplit=1) if len(line) > width else [line]
        lines.append(name)
        for below in text:
            indent = " " * (len(name) - len(name.lstrip()) + 4)
            lines.append(click.wrap_text(below, width, indent, indent))
    return "\n".join(lines)
