"""`bullpen attach`: an agent's terminal on this one."""

import os
import signal
import sys

import click

from bullpen.cli import output
from bullpen.cli.choose_agent import choose_agent, complete_running
from bullpen.cli.elsewhere import logs_of, name_here
from bullpen.client.holder import Connection, connect
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import current_home
from bullpen.home.ssh_link import point_ssh_agent
from bullpen.terminal.attach import (
    AgentEnded,
    Attachment,
    ConnectionLost,
    Detached,
    Outcome,
    OutputView,
    Signalled,
)
from bullpen.terminal.attach_settings import attach_settings
from bullpen.terminal.keys import Keys
from bullpen.terminal.raw import Raw
from bullpen.terminal.status import status_of
from bullpen.terminal.tty import Tty


@click.command()
@click.argument("name", required=False, shell_complete=complete_running)
@click.option("--read-only", is_flag=True, help="Watch: nothing that is typed gets to the agent.")
@click.option("--status", "wants_status", is_flag=True, help="Draw a status row at the bottom.")
@click.option("--tree", is_flag=True, help="With all agents that it started, side by side in tmux.")
def command(name: str | None, read_only: bool, wants_status: bool, tree: bool = False) -> None:
    """Attach this terminal to an agent's. Without NAME: the one that runs; of several you choose.

    Ctrl-\\ (detach_key in config.yaml) leaves, as a line says on entering; the agent goes on. The
    exit code is 0 when you leave and when the agent's program ends, however it ends. Needs no
    hub. The bell rings when the agent begins to wait for you.
    """
    home = current_home()
    name = name or choose_agent(home)
    if tree:
        name = name_here(name, "alone: bullpen attach")
        from bullpen.cli import tmux_panes
        from bullpen.cli.connect import connect as connect_hub

        tmux_panes.show(
            connect_hub(), name, tmux_panes.of_tree(name), ["pod", "follow", "--tree", name]
        )
        return
    if os.environ.get("BULLPEN_ACTOR") == name:
        raise BullpenError(f"{name} cannot attach to itself: it would feed on its own output")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BullpenError(
            "attach needs a terminal",
            hint=f"bullpen peek {name} prints its screen · {logs_of(name)} follows it",
        )
    settings = attach_settings(home)
    has_row = wants_status or settings.status_row  # which names the key all the time
    with connect(home, name) as connection:
        view = _choose_view(connection, read_only, has_row)
        point_ssh_agent(home, os.environ)
        sys.stdout.flush()
        tty = Tty()
        try:
            attachment = Attachment(
                connection,
                tty,
                view,
                Keys(settings.detach_key),
                lambda: status_of(home, name),
                read_only,
                settings.bell,
                "" if has_row else f"{settings.detach_key} leaves · {name} goes on",
            )
            outcome = attachment.run()
        finally:
            tty.close()
    _report(name, outcome)


def _choose_view(connection: Connection, read_only: bool, wants_status: bool) -> OutputView:
    greeting = connection.greeting
    if greeting.get("mode") != "pty":
        raise BullpenError(
            f"{connection.name} has no terminal: it works on tasks",
            hint=logs_of(connection.name),
            kind=Kind.UNSUPPORTED,
        )
    if not (read_only or wants_status):
        return Raw()
    from bullpen.terminal.row import Drawn

    size = (int(str(greeting["rows"])), int(str(greeting["cols"])))
    return Drawn(wants_status, read_only, size)


def _report(name: str, outcome: Outcome) -> None:
    match outcome:
        case Detached():
            output.write(f"[detached from {name} · bullpen attach {name}]")
        case AgentEnded(record):
            output.write(f"{name} ended: {_how(record)}")
        case ConnectionLost() if "/" in name:
            raise BullpenError(
                f"the connection to {name} was lost; it may go on",
                hint=f"bullpen status {name} · bullpen fleet status",
                kind=Kind.UNAVAILABLE,
            )
        case ConnectionLost():
            raise BullpenError(
                f"{name}'s holder is gone, and its program with it",
                hint=f"bullpen logs {name} shows what it wrote",
                kind=Kind.UNAVAILABLE,
            )
        case Signalled(number):
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def _how(record: dict[str, object]) -> str:
    number = record.get("signal")
    if not isinstance(number, int):
        return f"exit code {record.get('code')}"
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
