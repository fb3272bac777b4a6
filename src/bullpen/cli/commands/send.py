"""`bullpen send`: write to an agent, to all of a pod, or to the person."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.cli.forgotten_quotes import forgotten_quotes
from bullpen.cli.missing_text import missing_text
from bullpen.client.agents import list_agents
from bullpen.client.call import Call
from bullpen.client.hub import Hub
from bullpen.client.messages import send_message
from bullpen.errors import BullpenError, Kind

if TYPE_CHECKING:
    from bullpen.model.message import SentMessage

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
    priority: Literal["normal", "urgent", "interrupt"],
    pod: str | None,
    sender: str | None,
    given_id: str | None,
    as_json: bool,
) -> None:
    """Write to an agent; root is the person at the top. TEXT - is standard input.

    It is kept until the agent can take it: bullpen inbox NAME says how far it got. Before the
    text the agent sees who wrote, [message from root · ID], and then the text as it is. To a
    program that takes lines (deliver: lines in its role) both are typed as one line.
    """
    *names, text = words or [""]
    if not words or len(names) != (0 if pod else 1):
        raise _unclear(words, pod)
    text = _checked(text)

    def message(name: str, id: str | None = None) -> "Call[SentMessage]":
        return send_message(name, text, priority=priority, sender=sender, id=id)

    hub = connect()
    if pod:
        _send_to_all(hub, [(name, message(name)) for name in _members(hub, pod)], as_json)
    elif as_json:
        output.write_json(hub.do(message(names[0], given_id).as_json()))
    else:
        sys.stdout.write(hub.do(message(names[0], given_id).as_text()))


def _unclear(words: Sequence[str], pod: str | None) -> BullpenError:
    """With the form, and the quotes that were probably forgotten."""
    if not pod and not any(words):
        usage = "bullpen send NAME TEXT · bullpen send --pod POD TEXT"
        return BullpenError("what is sent to whom?", hint=usage)
    to = ["--pod", pod] if pod else [words[0]]
    text = words[0 if pod else 1 :]
    if not text:
        named = f"pod {pod}" if pod else words[0]
        return missing_text("text", named, ["bullpen", "send", *to])
    return forgotten_quotes("text", text, ["bullpen", "send", *to])


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


def _members(hub: Hub, pod: str) -> list[str]:
    agents = hub.do(list_agents(pod).unchecked()).agents
    if not agents:
        raise BullpenError(f"no pod called {pod}", hint="bullpen list", kind=Kind.NOT_FOUND)
    own = os.environ.get("BULLPEN_ACTOR")
    names = [agent.name for agent in agents if agent.running and agent.name != own]
    if not names:
        raise BullpenError(
            f"nobody else runs in pod {pod}", hint=f"bullpen list --pod {pod}", kind=Kind.CONFLICT
        )
    return names


def _send_to_all(hub: Hub, calls: "Sequence[tuple[str, Call[SentMessage]]]", as_json: bool) -> None:
    """A line each; what failed is said for each, and the first of it raised."""
    sent, failed = [], []
    for name, call in calls:
        try:
            message = hub.do(call.unchecked())
        except BullpenError as error:
            failed.append(
                BullpenError(f"{name}: {error.message}", hint=error.hint, kind=error.kind)
            )
            continue
        sent.append(message)
        if not as_json:
            why = f" {message.why}" if message.why else ""
            output.write(output.printable(f"{name}: {message.status}{why} · {message.id}"))
    if as_json:
        output.write_json({"messages": sent})
    for other in failed[1:]:
        output.write_error(other.message, other.hint)
    if failed:
        raise failed[0]
