"""`bullpen doctor`: one line for each thing that has to be right, and how to put it right.

Here is which checks there are, in which order, and how they look; what they do is in
`cli/doctor/`. A new one is written there and added to one of the two tuples.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Literal

import click

from bullpen.cli import output
from bullpen.cli.doctor.check import Check
from bullpen.cli.doctor.engines import check_engine
from bullpen.cli.doctor.fleet import check_fleet
from bullpen.cli.doctor.home import check_home, check_modes, check_sockets
from bullpen.cli.doctor.identity import check_identity
from bullpen.cli.doctor.machine import (
    check_git,
    check_lingering,
    check_python,
    check_search_path,
)
from bullpen.cli.doctor.ports import check_ports
from bullpen.cli.doctor.sandbox import check_limits, check_sandbox
from bullpen.errors import BullpenError, Kind
from bullpen.home import credentials
from bullpen.home.paths import Home, current_home
from bullpen.text import wrapped

MACHINE = (check_git, check_search_path, check_python, check_sandbox, check_limits, check_lingering)
LEAST_TEXT = 40  # columns; in fewer the text is not beside the names
HOME = (check_home, check_modes, check_sockets, check_ports, check_identity, check_fleet)


def checks() -> Iterator[Check]:
    """All of them, in order; without a home, what can be said without one."""
    for look in MACHINE:
        if check := look():
            yield check
    home, no_home = _find_home()
    for engine in credentials.LOGINS:
        yield check_engine(engine, home)
    if no_home:
        yield no_home
    if home:
        for look_at in HOME:
            if check := look_at(home):
                yield check


def _find_home() -> tuple[Home, None] | tuple[None, Check]:
    try:
        return current_home(), None
    except BullpenError as error:
        status: Literal["warn", "fail"] = "warn" if error.kind is Kind.NOT_FOUND else "fail"
        return None, Check(status, "home", error.message, error.hint)


@click.command()
@output.json_option
def command(as_json: bool) -> None:
    """Check this machine and this home; exit code 1 if something fails."""
    results = list(checks())
    failed = any(check.status == "fail" for check in results)
    if as_json:
        output.write_json({"ok": not failed, "checks": [asdict(check) for check in results]})
    else:
        _write(results)
    if failed:
        click.get_current_context().exit(1)


def _write(results: list[Check]) -> None:
    size = max(len(check.name) for check in results)
    columns = output.terminal_columns()
    indent = size + len("warn    ")
    is_narrow = 0 < columns < indent + LEAST_TEXT
    if is_narrow:  # the text goes below the name
        indent = len("warn  ")
    for check in results:
        text = output.printable(" · ".join(filter(None, (check.text, check.fix))))
        lines = [
            line
            for part in (text, *(f"lacks: {lack}" for lack in check.lacks))
            for line in wrapped(part, columns and max(1, columns - indent))
        ]
        status = output.colour(f"{check.status:4}", check.status)
        first = "" if is_narrow else f"  {lines.pop(0)}"
        output.write(f"{status}  {check.name:{0 if is_narrow else size}}{first}")
        for line in lines:
            output.write(f"{'':{indent}}{line}")
