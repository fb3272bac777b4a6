"""`bullpen approvals`: what waits for a person's decision."""

import time
from typing import Any

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.text import align

SHOWN_CHARACTERS = 160


@click.command()
@output.json_option
def command(as_json: bool) -> None:
    """List what waits for your decision; answer with approve or deny."""
    found = connect().get("approvals")["approvals"]
    if as_json:
        output.write_json(found)
        return
    if not found:
        output.write("nothing waits for you")
        return
    now = time.time()
    rows = [
        (f"#{one['id']}", one["agent"], output.printable(one["tool"]), _age(now - one["asked"]))
        for one in found
    ]
    for line, one in zip(align([[*row, ""] for row in rows]), found, strict=True):
        output.write(f" {line}   {_excerpt(one)}")
        if one["review"]:
            output.write(f"     reviewer said: {output.printable(one['review'])}")
        if not one["state"]["reachable"]:
            output.write(f"     answer in the terminal · bullpen attach {one['agent']}")


def _excerpt(one: dict[str, Any]) -> str:
    """One line; what is not shown is counted, so that nobody takes a part for the whole."""
    text = output.printable(one["text"])
    hidden = max(0, len(text) - SHOWN_CHARACTERS) + one["more"]
    if not hidden:
        return text
    return f"{text[:SHOWN_CHARACTERS]}… (+{hidden} characters · bullpen approvals --json)"


def _age(seconds: float) -> str:
    seconds = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
