"""On which machine an agent starts, and what it gets of this one's shell. For `bullpen run`."""

import os
from collections.abc import Sequence
from dataclasses import replace

from bullpen.cli.tasks.options import labels_of
from bullpen.client.fleet import get_fleet
from bullpen.client.hub import Hub
from bullpen.client.shell import Shell, this_shell
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import absolute, current_directory, person_home

CARRIED = ("LANG", "LC_ALL", "COLORTERM")  # of an environment that is otherwise this machine's


def choose_host(hub: Hub, where: Sequence[str], host: str) -> str:
    """The one of the hosts that can be reached and have these labels on which the fewest run."""
    wanted = labels_of(where, option="--where")
    fleet = hub.do(get_fleet())
    fitting = [
        each.state
        for each in fleet.hosts
        if each.reachable
        and wanted.items() <= each.state.labels.items()
        and host in ("", each.state.name)
    ]
    if not fitting:
        labels = ", ".join(where)
        raise BullpenError(
            f"{host} cannot be reached, or has not {labels}"
            if host
            else f"no machine of the fleet that can be reached has {labels}",
            hint="bullpen fleet status",
            kind=Kind.NOT_FOUND,
        )
    return min(fitting, key=lambda state: (state.running, state.name)).name


def shell_for(host: str, directory: str | None) -> Shell:
    """What an agent gets of this shell: all of it here, on another machine little."""
    shell = this_shell()
    if directory is not None:
        # Of another machine's directories this one knows nothing.
        cwd = directory if host else str(absolute(directory, current_directory(), person_home()))
        shell = replace(shell, cwd=cwd)
    if not host:
        return shell
    if not shell.cwd.startswith("/"):
        raise BullpenError(f"--dir {directory}: on another machine it begins with /")
    return replace(shell, env={name: os.environ[name] for name in CARRIED if name in os.environ})
