"""`bullpen hub`: the daemon of this home."""

import os
import sys
import time
from pathlib import Path

import click

from bullpen import __version__, proc
from bullpen.cli import output
from bullpen.cli.component_log import write_log
from bullpen.cli.connect import connect, warn_of_logout
from bullpen.cli.help_text import Group
from bullpen.client.start import answers, start_hub
from bullpen.client.status import get_status, shut_down
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home, current_home, short_path
from bullpen.home.settings import load_settings
from bullpen.hot.own_python import module_command

STOP_SECONDS = 30.0
LOOK_AGAIN_SECONDS = 0.02


@click.group(cls=Group)
def command() -> None:
    """Start, stop and look at the hub. Stopping it never ends agents."""


@command.command()
@click.option("--foreground", is_flag=True, help="Stay, for a supervisor such as systemd.")
@output.json_option
def start(foreground: bool, as_json: bool) -> None:
    """Start the hub, unless it runs."""
    home = current_home()
    if foreground:
        if os.environ.get("BULLPEN_ACTOR"):
            start_hub(home, os.environ)  # refuses, and says why
        env = proc.with_absolute_path({**os.environ, "BULLPEN_DIR": str(home.root)})
        os.chdir(home.root)
        os.execve(sys.executable, module_command("bullpen.hub.main"), env)
    if not answers(home):
        is_first = not (home.root / "hub.json").exists()
        start_hub(home, os.environ)
        if is_first:
            warn_of_logout()
    _show(home, as_json)


@command.command()
@output.json_option
def stop(as_json: bool) -> None:
    """Stop the hub; agents go on."""
    home = current_home()
    stopped = _stop(home)
    if as_json:
        output.write_json({"stopped": stopped})
    else:
        output.write("hub stopped; agents go on" if stopped else "the hub is not running")


@command.command()
@output.json_option
def restart(as_json: bool) -> None:
    """Stop the hub and start it again, in this command's version; agents go on."""
    home = current_home()
    if os.environ.get("BULLPEN_ACTOR"):
        start_hub(home, os.environ)  # refuses before anything is stopped
    load_settings(home.config_file)  # what the next hub could not read ends no hub that serves
    _stop(home, restart=True)
    start_hub(home, os.environ)
    _show(home, as_json)


@command.command()
@output.json_option
def status(as_json: bool) -> None:
    """Say whether the hub runs; exit code 3 when it does not."""
    _show(current_home(), as_json)


@command.command()
@click.option("-f", "--follow", is_flag=True, help="Go on as more is written.")
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=50, show_default=True, help="How many lines."
)
@output.json_option
def logs(follow: bool, lines: int, as_json: bool) -> None:
    """Print the hub's log. With --json one entry per line, as the file has it."""
    path = current_home().logs / "hub.log"
    write_log(path, start="bullpen hub start", follow=follow, lines=lines, as_json=as_json)


@command.command("install-service")
def install_service() -> None:
    """Write systemd user units: the hub, and what says `autostart: true`, start when you log in."""
    from bullpen.component import service

    paths, commands = service.install(current_home(), Path(sys.executable))
    for path in paths:
        output.write(f"Written: {output.printable(str(path))}")
    for command_line in commands:
        output.write(f"Next:    {output.printable(command_line)}")


def _stop(home: Home, *, restart: bool = False) -> bool:
    """Whether there was one to stop; returns when it is gone."""
    if not answers(home):
        return False
    pid = connect(start=False).do(shut_down(restart=restart).unchecked()).pid
    began = proc.start_time(pid)
    deadline = time.monotonic() + STOP_SECONDS
    while began is not None and proc.start_time(pid) == began:
        if time.monotonic() > deadline:
            raise BullpenError(
                f"the hub (pid {pid}) did not end within {STOP_SECONDS:g} s",
                hint="agents do not need it: kill it",
                kind=Kind.UNAVAILABLE,
            )
        time.sleep(LOOK_AGAIN_SECONDS)
    return True


def _show(home: Home, as_json: bool) -> None:
    hub = connect(start=False).do(get_status().unchecked())
    if as_json:
        output.write_json(hub)
        return
    output.write(
        f"hub {hub.version} serves {output.printable(short_path(home.root))}"
        f" · pid {hub.pid} · port {hub.port}"
        f" · {hub.running} of {hub.agents} agents running"
    )
    if note := getattr(hub, "settings_note", ""):  # of a hub of this version
        output.write(output.printable(note))
    if hub.version != __version__:
        output.write(f"this command is version {__version__} · bullpen hub restart")
