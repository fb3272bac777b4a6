"""`bullpen up`: start everything that is configured to run by itself, or what you name."""

import click

from bullpen.cli import output
from bullpen.cli.configured import Configured, list_configured, pick
from bullpen.client.start import wait_for_hub
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import current_home


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--after-boot",
    is_flag=True,
    help="Wait for the hub, and leave agents to it: for the unit of `hub install-service`.",
)
@output.json_option
def command(names: tuple[str, ...], after_boot: bool, as_json: bool) -> None:
    """Start agents, directors and the view whose files say `autostart: true`.

    With names, those, whatever their files say. Who runs already goes on. Exit code 1 if one could
    not be started; the others are.
    """
    home = current_home()
    everything = list_configured(home)
    if after_boot:
        wait_for_hub(home)
        everything = [one for one in everything if one.kind != "agent"]
    chosen = pick(everything, names) if names else [one for one in everything if one.autostart]
    results = [(one, *_start(one)) for one in chosen]
    if as_json:
        rows = [
            {"kind": one.kind, "name": one.name, "result": result, "error": error or None}
            for one, result, error in results
        ]
        output.write_json({"started": rows})
    elif not results:
        output.write("nothing has `autostart: true` · bullpen up NAME starts one all the same")
    for one, result, error in results if not as_json else []:
        line = f"{one.kind} {one.name}: {result}" + (f": {error}" if error else "")
        output.write(output.printable(line, lines=True))
    if any(error for _, _, error in results):
        raise click.exceptions.Exit(1)


def _start(one: Configured) -> tuple[str, str]:
    try:
        return ("started" if one.start() else "runs already"), ""
    except BullpenError as error:
        if error.kind is Kind.DENIED:
            raise
        return "failed", error.message
