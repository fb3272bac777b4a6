"""`bullpen discover`: what serves on this machine."""

from typing import get_args

import click

from bullpen.cli import output
from bullpen.cli.components import look
from bullpen.component.discovery import having
from bullpen.home.paths import current_home
from bullpen.home.settings import load_settings
from bullpen.model.component import Interface

HEADERS = ("TYPE", "NAME", "STATE", "PORT", "VERSION", "HOME")


@click.command()
@click.option(
    "--interface", type=click.Choice(get_args(Interface)), help="Only those that have it."
)
@output.json_option
def command(interface: Interface | None, as_json: bool) -> None:
    """Find hubs, agents' ports, directors, views and bridges on this machine. Those of other homes
    are shown as foreign; who only says that it is of this one, as "says own"."""
    home = current_home()
    home_id = home.id
    seen = look(home, load_settings(home.config_file))
    shown = having([one.component for one in seen], interface)
    whose = {one.component: one.whose(home_id) for one in seen}
    if as_json:
        output.write_json(
            {
                "components": [
                    {
                        "type": one.type,
                        "name": one.name,
                        "state": one.state,
                        "address": one.address,
                        "port": one.port,
                        "version": one.version,
                        "interfaces": one.interfaces,
                        "home_id": one.home_id,
                        "home": whose[one],
                    }
                    for one in shown
                ]
            }
        )
        return
    if not shown:
        output.write("nothing serves here · bullpen hub start")
        return
    registered = {one.component for one in seen if one.is_registered}
    rows = [
        (
            one.type,
            one.name,
            one.state or ("no answer" if one in registered else "announced"),
            str(one.port or "–"),
            one.version or "–",
            whose[one],
        )
        for one in shown
    ]
    output.write_table(HEADERS, rows, drop=("VERSION", "HOME", "TYPE"), cut=("NAME",))
