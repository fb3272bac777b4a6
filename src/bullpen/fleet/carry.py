"""A request carried to another hub and its answer back: both ends of one, as ASGI.

`forward` is an application: it is given a request of this machine. `serve` gives a request of
another host to this hub's own application. Between them go ASGI's own events, so that streams
and WebSockets are carried like everything else. Who asks is not in the request: `by` is said by the
hub that forwards it, under its signature.
"""

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bullpen.errors import BullpenError
from bullpen.fleet.channel import Channel, ChannelOverError, Head
from bullpen.fleet.peers import Peers

# Credentials stay at home: what counts at the other end is what this hub says of the caller.
CARRIED = frozenset({b"content-type", b"content-length", b"accept", b"last-event-id"})
NOT_CARRIED_BACK = frozenset({b"connection", b"transfer-encoding", b"bullpen-version", b"date"})
LEFT, AWAY = 1006, 4503  # of a WebSocket: without a word; the other host is out of reach


class CutShortError(Exception):
    """Half an answer was sent on: the server closes the connection, so that it looks like that."""


# ── this side ──


async def forward(
    peers: Peers, host: str, by: str, path: bytes, scope: Scope, receive: Receive, send: Send
) -> None:
    """Have another hub answer; BullpenError before anything was answered."""
    body = await _whole_body(receive) if scope["type"] == "http" else b""
    head = {"by": by, "scope": _head_of(scope, path)}
    try:
        await _forward_once(peers, host, head, body, receive, send)
    except ChannelOverError as error:
        if not error.stale:
            raise
        # A hub that was restarted says so and has done nothing: it is asked again, once.
        peers.learn(host, error.stale)
        await _forward_once(peers, host, head, body, receive, send)


async def _forward_once(
    peers: Peers, host: str, head: Head, body: bytes, receive: Receive, send: Send
) -> None:
    """ChannelOverError before anything was answered. The client may leave before, too."""
    channel = await peers.open(host, head, body)
    listening = asyncio.create_task(_pass_on(channel, receive), name=f"fleet client of {host}")
    is_answered = False
    try:
        first = await channel.receive()
        is_answered = True
        await _answer(host, channel, first, send)
    except ChannelOverError as error:
        if listening.done() and listening.exception() is None:
            raise ClientDisconnect from error
        if not is_answered:
            raise
        if head["scope"]["type"] == "http":
            raise CutShortError(error.message) from error
        await send({"type": "websocket.close", "code": AWAY, "reason": error.message[:120]})
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await peers.close(channel)


async def _answer(host: str, channel: Channel, first: tuple[Head, bytes], send: Send) -> None:
    head, body = first
    while True:
        for event in with_place(_events(head, body), host):
            await send(event)
        if head.get("last"):
            channel.end("answered")
            return
        head, body = await channel.receive()


def with_place(events: list[Message], host: str) -> list[Message]:
    """An error's hint names commands of the machine that says it: with where they are to be run.
    Pure."""
    if len(events) != 2 or events[0].get("status", 0) < 400:
        return events
    start, last = events
    try:
        fields = json.loads(last["body"])
        hint = fields["details"]["hint"]
    except (ValueError, KeyError, TypeError):
        return events
    if not hint:
        return events
    fields["details"]["hint"] = f"on {host}: {hint}"
    body = json.dumps(fields).encode()
    headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
    headers.append((b"content-length", str(len(body)).encode()))
    return [{**start, "headers": headers}, {**last, "body": body}]


async def _pass_on(channel: Channel, receive: Receive) -> None:
    """What the client says after its request: a WebSocket's messages, or that it has left."""
    while True:
        event = await receive()
        match event["type"]:
            case "http.disconnect" | "websocket.disconnect":
                channel.end("the client has left")
                await channel.say_end("the client has left")
                return
            case "websocket.connect" | "http.request":
                continue
            case _:
                await channel.send(*_frame_of(event))


async def _whole_body(receive: Receive) -> bytes:
    pieces = []
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise ClientDisconnect
        pieces.append(event.get("body", b""))
        if not event.get("more_body"):
            return b"".join(pieces)


def _head_of(scope: Scope, path: bytes) -> Head:
    return {
        "type": scope["type"],
        "method": scope.get("method", "GET"),
        "path": path.decode("latin-1"),
        "query": scope["query_string"].decode("latin-1"),
        "headers": _texts((n, v) for n, v in scope["headers"] if n in CARRIED),
    }


# ── the other side ──


async def serve(app: ASGIApp, caller_key: str, channel: Channel, head: Head, body: bytes) -> None:
    """Give a request of another host to this hub's application, and send what that answers. Who
    asks is under that key in the request's state."""
    scope = _scope(channel.host, head["scope"])
    scope["state"] = {caller_key: (channel.host, str(head["by"]))}
    is_http = scope["type"] == "http"
    first: MutableMapping[str, Any] | None = (
        {"type": "http.request", "body": body, "more_body": False}
        if is_http
        else {"type": "websocket.connect"}
    )
    begun: Message | None = None

    async def receive() -> MutableMapping[str, Any]:
        nonlocal first
        if first is not None:
            event, first = first, None
            return event
        try:
            (event,) = _events(*await channel.receive())
        except ChannelOverError:
            if is_http:
                return {"type": "http.disconnect"}
            return {"type": "websocket.disconnect", "code": LEFT}
        return event

    async def send(event: Message) -> None:
        # The beginning of an answer waits for its body: most answers are one message. That of a
        # stream of events does not: the first one may come much later.
        nonlocal begun
        if event["type"].endswith("http.response.start") and not _is_event_stream(event):
            begun = event
            return
        frame, frame_body = _frame_of(event)
        if begun is not None:
            frame["begun"], begun = _frame_of(begun)[0]["event"], None
        await channel.send(frame, frame_body)
        if frame.get("last"):  # the other side knows: nobody has to say it
            channel.end("answered")

    await app(scope, receive, send)


def _is_event_stream(start: Message) -> bool:
    kinds = [value for name, value in start.get("headers", ()) if name.lower() == b"content-type"]
    return any(kind.startswith(b"text/event-stream") for kind in kinds)


def _scope(host: str, head: Head) -> Scope:
    if head["type"] not in ("http", "websocket"):
        raise BullpenError(f"no request is of type {head['type']!r}")
    path = str(head["path"])
    return {
        "type": head["type"],
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "http" if head["type"] == "http" else "ws",
        "method": str(head["method"]),
        "path": unquote(path),
        "raw_path": path.encode("latin-1"),
        "root_path": "",
        "query_string": str(head["query"]).encode("latin-1"),
        "headers": [(name.lower(), value) for name, value in _pairs(head["headers"])],
        "client": None,
        "server": (f"fleet {host}", None),
        "subprotocols": [],
        "extensions": {"websocket.http.response": {}},
    }


# ── events on the way ──


def _frame_of(event: Message) -> tuple[Head, bytes]:
    """An event as a message; what is large of it is the body."""
    fields = {name: value for name, value in event.items() if value is not None}
    body = fields.pop("body", None)
    for name in ("bytes", "text"):
        if name in fields:
            value = fields.pop(name)
            fields["of"], body = name, value.encode() if isinstance(value, str) else value
    if "headers" in fields:
        pairs = ((n, v) for n, v in fields["headers"] if n.lower() not in NOT_CARRIED_BACK)
        fields["headers"] = _texts(pairs)
    kind = event["type"]
    is_last = kind == "websocket.close" or (
        kind.endswith("http.response.body") and not event.get("more_body")
    )
    return {"kind": "event", "event": fields, **({"last": True} if is_last else {})}, body or b""


def _events(head: Head, body: bytes) -> list[Message]:
    """The events in a message."""
    fields = dict(head["event"])
    of = fields.pop("of", None)
    if of is not None:
        fields[of] = body.decode() if of == "text" else body
    elif fields["type"].endswith(("response.body", "http.request")):
        fields["body"] = body
    begun = [dict(head["begun"])] if "begun" in head else []
    for event in (*begun, fields):
        if "headers" in event:
            event["headers"] = _pairs(event["headers"])
    return [*begun, fields]


def _texts(pairs: Any) -> list[tuple[str, str]]:
    return [
        (bytes(name).decode("latin-1"), bytes(value).decode("latin-1")) for name, value in pairs
    ]


def _pairs(texts: Any) -> list[tuple[bytes, bytes]]:
    return [(str(name).encode("latin-1"), str(value).encode("latin-1")) for name, value in texts]
