"""`bullpen events`: what reached the queue of the person, or of an agent."""

from datetime import datetime
from typing import Any

import click

from bullpen.cli import output
from bullpen.cli.choose_agent import complete_running
from bullpen.cli.connect import connect_for
from bullpen.client.agents import list_agents
from bullpen.client.hub import Hub
from bullpen.client.tree import list_queue
from bullpen.errors import BullpenError, Kind
from bullpen.text import align

PAGE = 1000
LOOK_SECONDS = 30.0
SHOWN_CHARACTERS = 200


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Go on, as events come.")
@click.argument("given", metavar="[NAME]", required=False, shell_complete=complete_running)
@click.option(
    "--for",
    "name",
    help="The queue of this agent, not yours; as NAME.",
    shell_complete=complete_running,
)
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only later than this id.")
@output.json_option
def command(given: str | None, follow: bool, name: str | None, after: int, as_json: bool) -> None:
    """Show reports and ends of the agents that you started, or NAME did.

    With --json one event per line."""
    if given and name:
        raise click.UsageError("NAME or --for, not both")
    name = given or name or "root"
    hub, name = connect_for(name)
    last = _show(hub, name, after, 0.0, as_json)
    if last == after and not (follow or as_json):
        output.write("nothing was reported")
    while follow:
        try:
            last = _show(hub, name, last, LOOK_SECONDS, as_json)
        except BullpenError as error:
            if error.kind is not Kind.UNAVAILABLE:
                raise


def _show(hub: Hub, name: str, after: int, seconds: float, as_json: bool) -> int:
    while True:
        page = hub.do(list_queue(name, after, PAGE, seconds).unchecked())
        if as_json:
            for event in page.events:
                output.write_json_line(event)
        elif page.events:
            there = _names(hub)
            for line in align([_cells(event, there) for event in page.events]):
                output.write(line)
        after, seconds = page.last, 0.0
        if len(page.events) < PAGE:
            return after


def _names(hub: Hub) -> set[str]:
    listed = hub.do(list_agents().unchecked())
    return {agent.name for agent in listed.agents}.union(listed.broken)


def _cells(event: Any, there: set[str]) -> tuple[str, ...]:
    at = datetime.fromtimestamp(event.at).astimezone().strftime("%H:%M:%S")
    sender = event["from"]
    if sender not in there and event.kind.startswith("child"):
        sender = f"{sender} (removed)"
    text = event.data.get("message") or event.data.get("last_message") or ""
    parts = [
        event.data.get("status") or event.data.get("how") or event.data.get("state") or "",
        " ".join(str(text).split())[:SHOWN_CHARACTERS],
    ]
    detail = " · ".join(part for part in parts if part)
    cells = (str(event.id), at, sender, event.kind, detail)
    return tuple(output.printable(cell) for cell in cells)
