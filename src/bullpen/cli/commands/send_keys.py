"""`bullpen send-keys`: type into an agent's terminal."""

from collections.abc import Sequence

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.client.agents import type_into
from bullpen.model.keys import key_text


@click.command()
@click.option("--literal", "-l", is_flag=True, help="Type the words as they are.")
@click.argument("name")
@click.argument("keys", nargs=-1, required=True)
@output.json_option
def command(name: str, keys: Sequence[str], literal: bool, as_json: bool) -> None:
    """Type into an agent's terminal.

    Each word is a key's name (Enter, Escape, Tab, Up, F1, C-c, M-x …) or text:
    bullpen send-keys amy 'make test' Enter
    """
    typed = connect().do(type_into(name, _parts(keys, literal)).unchecked())
    if as_json:
        output.write_json(typed)


def _parts(words: Sequence[str], literal: bool) -> list[str]:
    """What to type, text and keys apart: text and Enter at once would be taken for a paste, in
    which Enter is a new line."""
    if literal:
        return ["".join(words)]
    parts = [""]
    was_key = False
    for word in words:
        keys = key_text(word)
        is_key = keys != word
        if is_key != was_key and parts[-1]:
            parts.append("")
        parts[-1] += keys
        was_key = is_key
    return [part for part in parts if part] or [""]
