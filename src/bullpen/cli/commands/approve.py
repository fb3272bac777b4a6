"""`bullpen approve`: let an agent go on."""

import uuid

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.errors import BullpenError


@click.command()
@click.argument("id")
@click.option("--always", is_flag=True, help="Do not ask this agent again for exactly this.")
@click.option("--role", is_flag=True, help="Nor any other agent of its role: adds it to the file.")
@output.json_option
def command(id: str, always: bool, role: bool, as_json: bool) -> None:
    """Allow what an agent waits for; ID is its number in `bullpen approvals`."""
    body = {"decision": "allow", "always": always or role, "role": role}
    body["answer"] = uuid.uuid4().hex
    found = connect().post("approvals", str(number(id)), body=body, again=True)
    if as_json:
        output.write_json(found)
        return
    output.write(f"{found['agent']} goes on.")
    if found["state"]["always"]:
        where = "it and its role" if role else "it"
        rule = output.printable(found["state"]["always"])
        output.write(f"allowed to {where} from now on: {rule}")


def number(text: str) -> int:
    """`7` or `#7`."""
    digits = text.removeprefix("#")
    if not (digits.isascii() and digits.isdecimal() and 0 < len(digits) < 16):
        raise BullpenError(f"no number of an approval: {text}", hint="bullpen approvals")
    return int(digits)
