"""`bullpen send-keys`: type into an agent's terminal."""

from collections.abc import Sequence

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
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
    text = "".join(keys if literal else map(key_text, keys))
    typed = connect().post("agents", name, "input", body={"text": text})
    if as_json:
        output.write_json(typed)
