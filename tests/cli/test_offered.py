"""Nothing is offered before it works: whatever command or option a file of ours or a help text
names is there."""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import click
import pytest

from bullpen.cli.main import ALIASES, VERBS, cli
from bullpen.home.role_template import TEMPLATE

PACKAGE = Path(str(files("bullpen")))
# A command as texts write it: in a rule, after a line's begin, or between marks.
NAMED = re.compile(r"(?:^|[(`:·,] ?|: )bullpen ([a-z][a-z-]*)((?: [a-z-]+)*)([^\n·`)]*)", re.M)
NO_VERBS = {"help"}


def commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{prefix}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")


EVERY = dict(commands(cli))


def texts() -> Iterator[tuple[str, str]]:
    for path in sorted((PACKAGE / "home/starter").rglob("*")):
        if path.is_file():
            yield str(path.relative_to(PACKAGE)), path.read_text()
    for path in sorted((PACKAGE / "instructions").glob("*.md")):
        yield path.name, path.read_text()
    yield "role_template.py", TEMPLATE
    for name, command in EVERY.items():
        yield f"help of {name}", command.get_help(click.Context(command, info_name=name))


@pytest.mark.parametrize(("where", "text"), list(texts()), ids=lambda value: value[:60])
def test_a1_every_command_that_a_text_names_is_there(where: str, text: str) -> None:
    for verb, more, rest in NAMED.findall(text):
        assert verb in {*VERBS, *ALIASES, *NO_VERBS}, f"{where}: bullpen {verb}"
        inner = f"{verb} {more.split()[0]}" if more.split() else verb
        command = EVERY.get(inner) or EVERY.get(verb)
        if command is None:
            continue
        offered = {word for option in command.params for word in option.opts}
        wanted = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest))
        assert wanted <= {*offered, "--help", "--json"}, f"{where}: bullpen {inner}"
