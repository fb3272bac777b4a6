"""Calls of `/agents/{name}/messages`: write to an agent, read what was written to it. No I/O."""

import os
from typing import TYPE_CHECKING, Literal

from bullpen.client.call import Call, Model, given, path

if TYPE_CHECKING:
    from bullpen.model.message import MessageList, SentMessage


def send_message(
    name: str,
    text: str,
    *,
    priority: Literal["normal", "urgent", "interrupt"] | None = None,
    sender: str | None = None,
    id: str | None = None,
) -> "Call[SentMessage]":
    """Write to an agent, or to `root`, the person. Answered when it is on disk. Sent twice with
    the same `id` it is one message; only the owner says another `sender`."""
    body = given(text=text, priority=priority, sender=sender, id=id or f"m-{os.urandom(6).hex()}")
    return Call(
        "POST",
        path("agents", name, "messages"),
        body=body,
        again=True,
        read=Model("message.SentMessage"),
    )


def list_messages(name: str, limit: int | None = None) -> "Call[MessageList]":
    """What was written to it, the newest last. Fetched by the receiver itself they are read from
    then on. Its text takes `columns` and `full`."""
    return Call(
        "GET",
        path("agents", name, "messages"),
        {"limit": limit},
        read=Model("message.MessageList"),
    )
