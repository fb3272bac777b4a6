"""Which agent is meant by a command without a name: the only one that runs in a terminal, else the
one that a person chooses. Needs no hub; one that answers says what each agent does.
"""

import sys

import click

from bullpen.cli import output
from bullpen.client.agents import list_agents
from bullpen.client.holder import running, running_terminals
from bullpen.client.hub import Hub
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home, current_home
from bullpen.text import align

HUB_SECONDS = 1.0


def complete_running(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of running agents for the shell; silent when there is no home."""
    try:
        return [name for name in running(current_home()) if name.startswith(incomplete)]
    except BullpenError:
        return []


def choose_agent(home: Home) -> str:
    """Its name; raises if there is none, or nobody to ask."""
    names = running_terminals(home)
    if not names:
        raise BullpenError(
            "no agent runs in a terminal", hint="bullpen run --role ROLE", kind=Kind.NOT_FOUND
        )
    if len(names) == 1:
        return names[0]
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BullpenError("which agent?", hint=f"running: {', '.join(names)}")
    words = _words(home)
    rows = [
        (f"{number:>3}", name, output.printable(words.get(name, "")))
        for number, name in enumerate(names, 1)
    ]
    click.echo("\n".join(align(rows)), err=True)
    chosen: str = click.prompt(
        "Which one", err=True, value_proc=lambda text: pick(text, names), prompt_suffix="? "
    )
    return chosen


def pick(text: str, names: list[str]) -> str:
    """The one of that number, name, or beginning of a name."""
    text = text.strip()
    if text.isdecimal() and 1 <= int(text) <= len(names):
        return names[int(text) - 1]
    meant = [text] if text in names else [name for name in names if name.startswith(text)]
    if len(meant) != 1:
        raise click.UsageError(f"a number up to {len(names)}, or a name")
    return meant[0]


def _words(home: Home) -> dict[str, str]:
    try:
        hub = Hub(home, start=False, seconds=HUB_SECONDS)
        return {agent.name: agent.words for agent in hub.do(list_agents().unchecked()).agents}
    except (BullpenError, OSError):
        return {}
