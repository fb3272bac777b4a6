"""A command that takes any word first, but for a few that are commands of their own.

`bullpen task amy "…"` gives a task to amy, and `bullpen task show ID` shows one: the words are
reserved there, and the help has to say so.
"""

from typing import Any

import click

from bullpen.cli.help_text import Group


class FirstWord(Group):
    """Its commands if the first word is one of them, `otherwise` for everything else."""

    def __init__(self, otherwise: click.Command, **settings: Any) -> None:
        super().__init__(**settings)
        self.otherwise = otherwise

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args and args[0] in self.commands:
            return super().make_context(info_name, args, parent, **extra)
        return self.otherwise.make_context(info_name, args, parent, **extra)
