"""`bullpen send`: write to an agent, to all of a pod, or to the person."""

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.client.hub import HubClient
from bullpen.errors import BullpenError, Kind

TEXT_BYTES = 256 << 10


@click.command()
@click.argument("words", nargs=-1, metavar="[NAME] TEXT")
@click.option(
    "--priority",
    type=click.Choice(["normal", "urgent", "interrupt"]),
    default="normal",
    show_default=True,
    help="To one that works: at the end of its turn, at its next tool, or end its turn first.",
)
@click.option("--pod", help="To all others of this pod that run, in place of NAME.")
@click.option("--from", "sender", help="Who writes, if not you; for the owner alone.")
@click.option("--id", "given_id", hidden=True, help="Sent twice with the same, it is one message.")
@output.json_option
def command(
    words: Sequence[str],
    priority: str,
    pod: str | None,
    sender: str | None,
    given_id: str | None,
    as_json: bool,
) -> None:
    """Write to an agent; root is the person at the top. TEXT - is standard input.

    It is kept until the agent can take it, and arrives as it is: bullpen inbox NAME says
    how far it got.
    """
    *names, text = words or [""]
    if len(names) != (0 if pod else 1):
        raise BullpenError(
            "what is sent to whom?", hint="bullpen send NAME TEXT · bullpen send --pod POD TEXT"
        )
    body = {"text": _checked(text), "priority": priority, "sender": sender}
    hub = connect()
    if pod:
        _send_to_all(hub, _members(hub, pod), body, as_json)
    elif as_json:
        output.write_json(_send(hub, names[0], body, given_id))
    else:
        asked = {**body, "id": given_id or _new_id()}
        sys.stdout.write(hub.post_text("agents", names[0], "messages", body=asked, again=True))


def _send(hub: HubClient, name: str, body: dict[str, Any], given_id: str | None = None) -> Any:
    # Asked again with the same id, a hub that had kept it before it died keeps it once.
    asked = {**body, "id": given_id or _new_id()}
    return hub.post("agents", name, "messages", body=asked, again=True)


def _new_id() -> str:
    return f"m-{os.urandom(6).hex()}"


def _checked(text: str) -> str:
    """What is to be sent, of which the hub would say less clearly that it cannot be."""
    if text == "-":
        text = _from_input()
    if not text:
        raise BullpenError("there is nothing to send")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise BullpenError("the text is no UTF-8") from error
    if size > TEXT_BYTES:
        raise _too_long()
    return text


def _from_input() -> str:
    data = sys.stdin.buffer.read(TEXT_BYTES + 1)
    if len(data) > TEXT_BYTES:
        raise _too_long()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BullpenError(
            f"standard input is no UTF-8: byte {error.start + 1}", hint="iconv -t UTF-8"
        ) from error


def _too_long() -> BullpenError:
    return BullpenError(
        f"a message has at most {TEXT_BYTES >> 10} KiB",
        hint="put it into a file, and send where that is",
    )


# ── a pod ──


def _members(hub: HubClient, pod: str) -> list[str]:
    found = hub.get("agents", pod=pod)["agents"]
    if not found:
        raise BullpenError(f"no pod called {pod}", hint="bullpen list", kind=Kind.NOT_FOUND)
    own = os.environ.get("BULLPEN_ACTOR")
    names = [agent["name"] for agent in found if agent["running"] and agent["name"] != own]
    if not names:
        raise BullpenError(
            f"nobody else runs in pod {pod}", hint=f"bullpen list --pod {pod}", kind=Kind.CONFLICT
        )
    return names


def _send_to_all(hub: HubClient, names: Sequence[str], body: dict[str, Any], as_json: bool) -> None:
    """A line each; what failed is said for each, and the first of it raised."""
    sent, failed = [], []
    for name in names:
        try:
            message = _send(hub, name, body)
        except BullpenError as error:
            failed.append(
                BullpenError(f"{name}: {error.message}", hint=error.hint, kind=error.kind)
            )
            continue
        sent.append(message)
        if not as_json:
            why = f" {message['why']}" if message["why"] else ""
            output.write(output.printable(f"{name}: {message['status']}{why} · {message['id']}"))
    if as_json:
        output.write_json(sent)
    for other in failed[1:]:
        output.write_error(other.message, other.hint)
    if failed:
        raise failed[0]
