"""`bullpen components`: how everything is that serves in this home."""

import click

from bullpen.cli import output
from bullpen.cli.component_health import ComponentHealth, HomeComponents
from bullpen.home.paths import current_home

HEADERS = ("TYPE", "NAME", "STATE", "HEALTH", "PORT", "VERSION", "PROBLEM")
NOTHING = "nothing serves in this home · bullpen hub start"


@click.command()
@click.option("--watch", "-w", is_flag=True, help="Go on showing it.")
@output.json_option
def command(watch: bool, as_json: bool) -> None:
    """Say how the hub, agents' ports, directors, views and bridges of this home are, and what holds
    them up. One that does not answer is late, and unreachable after three times; its state is then
    the last that is known. One whose process is gone is unreachable at once, and listed for a day
    unless it comes back. Agents' ports are the hub's: without it they are unreachable."""
    if watch and as_json:
        raise click.UsageError("--watch draws for a person, --json prints once")
    components = HomeComponents(current_home())
    if watch:
        from bullpen.cli.watch_list import watch_screen

        watch_screen(lambda: "\n".join(_lines(components.look())), "components")
    elif as_json:
        output.write_json({"components": [vars(one) for one in components.look()]})
    else:
        for line in _lines(components.look()):
            output.write(line)


def _lines(components: list[ComponentHealth]) -> list[str]:
    if not components:
        return [NOTHING]
    rows = [
        (
            one.type,
            one.name,
            _state(one),
            one.health,
            str(one.port),
            one.version or "–",
            one.problem or "–",
        )
        for one in components
    ]
    return output.table_lines(HEADERS, rows, drop=("VERSION", "TYPE"), cut=("PROBLEM", "NAME"))


def _state(one: ComponentHealth) -> str:
    if one.state is None:
        return "–"
    return one.state if one.health == "healthy" else f"was {one.state}"
