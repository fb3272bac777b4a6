"""`bullpen up`: start everything that is configured to run by itself, or what you name."""

import os
from dataclasses import dataclass

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
    not be started, with where, why and what to do; the others are.
    """
    home = current_home()
    everything = list_configured(home)
    if after_boot:
        wait_for_hub(home)
        everything = [one for one in everything if one.kind != "agent"]
    chosen = pick(everything, names) if names else [one for one in everything if one.autostart]
    results = [_start(one) for one in chosen]
    if as_json:
        output.write_json({"started": [vars(one) for one in results]})
    elif not results:
        output.write("nothing has `autostart: true` · bullpen up NAME starts one all the same")
    for one in results if not as_json else []:
        output.write(output.printable(one.text, lines=True))
    if failed := [one.name for one in results if one.error is not None]:
        if not as_json and len(results) > 1:
            output.write(f"not started: {', '.join(failed)} · the others run")
        raise click.exceptions.Exit(1)


@dataclass(frozen=True)
class _Result:
    """What became of one of them; `hint` says what to do about an error."""

    kind: str
    name: str
    result: str
    error: str | None = None
    hint: str | None = None

    @property
    def text(self) -> str:
        lines = [f"{self.kind} {self.name}: {self.result}"]
        if self.error is not None:
            lines = [f"{lines[0]}: {self.error}", f"  hint: {self.hint}"]
        return "\n".join(lines)


def _start(one: Configured) -> _Result:
    again = f"bullpen up {one.name}"
    try:
        return _Result(one.kind, one.name, "started" if one.start() else "runs already")
    except BullpenError as error:
        if error.kind is Kind.DENIED and os.environ.get("BULLPEN_ACTOR"):
            raise  # an agent may start none of them
        hint = error.hint or (f"correct it, then: {again}" if error.details else again)
        return _Result(one.kind, one.name, "failed", error.message, hint)
    except OSError as error:
        return _Result(one.kind, one.name, "failed", str(error), again)
