"""`bullpen down`: stop what `bullpen up` starts, directors first."""

import click

from bullpen.cli import output
from bullpen.cli.configured import list_configured, pick
from bullpen.errors import BullpenError
from bullpen.home.paths import current_home


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@output.json_option
def command(names: tuple[str, ...], as_json: bool) -> None:
    """Stop directors, the view and agents that take tasks whose files say `autostart: true`.

    With names, those, whatever their files say; others that you started by hand go on. A task that
    runs is waited for half a minute; one that takes longer goes on, and its agent leaves after it.
    The hub and agents in terminals go on: bullpen shutdown ends them all.
    """
    everything = list_configured(current_home())
    chosen = pick(everything, names) if names else [one for one in everything if one.autostart]
    results: list[tuple[str, str, str]] = []
    for one in reversed(chosen):  # who brings work in goes first
        try:
            result = "stopped" if one.stop() else ""
        except BullpenError as error:
            result = f"failed: {error.message}"
        if result or names:
            results.append((one.kind, one.name, result or "was not running"))
    if as_json:
        rows = [{"kind": kind, "name": name, "result": result} for kind, name, result in results]
        output.write_json({"stopped": rows})
    elif not results:
        output.write("nothing with `autostart: true` was running · bullpen down NAME stops one")
    for kind, name, result in results if not as_json else []:
        output.write(output.printable(f"{kind} {name}: {result}", lines=True))
    if any(result.startswith("failed") for _, _, result in results):
        raise click.exceptions.Exit(1)
