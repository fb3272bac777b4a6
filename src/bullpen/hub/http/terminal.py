"""`/agents/{name}/terminal`: an agent's terminal over a WebSocket.

Binary messages are output and input as they are; a text message from the client is
`{"rows", "cols"}`, its size. The first message is the replay. The holder's rules hold: many
clients, the last active one's size, a slow one dropped and told.
"""

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, WebSocket, WebSocketDisconnect

from bullpen.errors import BullpenError
from bullpen.holder.frames import BrokenFrameError, Reader, frame, json_frame
from bullpen.hub.guard import actor_of
from bullpen.hub.http.state import hub_of

router = APIRouter()

REFUSED, NOT_FOUND, GONE, BAD = 4403, 4404, 4410, 4400
INPUT_BYTES = 1 << 19


@router.websocket("/agents/{name}/terminal")
async def terminal(
    socket: WebSocket,
    name: str,
    rows: Annotated[int, Query(ge=1, le=4096)] = 24,
    cols: Annotated[int, Query(ge=1, le=4096)] = 80,
    read_only: bool = False,
) -> None:
    """Attach; closed with 4410 when the program has ended, 4404 when there is no such agent."""
    hub = hub_of(socket)
    if not actor_of(socket).is_owner:
        await socket.close(REFUSED, "only the owner may do that")
        return
    try:
        hub.registry.get(name)
        reader, writer = await asyncio.open_unix_connection(str(hub.home.socket(name)))
    except (BullpenError, OSError) as error:
        await socket.close(NOT_FOUND, str(error)[:100])
        return
    await socket.accept()
    writer.write(json_frame(b"A", {"read_only": read_only, "rows": rows, "cols": cols}))
    try:
        async with asyncio.TaskGroup() as group:
            showing = group.create_task(_show(reader, socket))
            typing = group.create_task(_type(socket, writer, read_only))
            await asyncio.wait({showing, typing}, return_when=asyncio.FIRST_COMPLETED)
            showing.cancel()
            typing.cancel()
    finally:
        writer.close()


async def _show(reader: asyncio.StreamReader, socket: WebSocket) -> None:
    frames = Reader()
    while data := await reader.read(1 << 16):
        try:
            found = frames.feed(data)
        except BrokenFrameError:
            break
        for kind, payload in found:
            if kind in (b"P", b"O"):
                await socket.send_bytes(payload)
            elif kind == b"D":
                await socket.close(GONE, "too slow; attach again")
                return
    await socket.close(GONE, "the program has ended")


async def _type(socket: WebSocket, writer: asyncio.StreamWriter, read_only: bool) -> None:
    while True:
        try:
            message = await socket.receive()
        except (WebSocketDisconnect, RuntimeError):
            return
        if message["type"] == "websocket.disconnect":
            return
        if read_only:
            continue
        typed: bytes | None = message.get("bytes")
        if typed:
            for start in range(0, len(typed), INPUT_BYTES):
                writer.write(frame(b"I", typed[start : start + INPUT_BYTES]))
        elif (size := _size(message.get("text"))) is not None:
            writer.write(json_frame(b"R", size))
        else:
            await socket.close(BAD, "a text message is {rows, cols}")
            return
        await writer.drain()


def _size(text: str | None) -> dict[str, Any] | None:
    try:
        fields = json.loads(text or "")
        return {"rows": int(fields["rows"]), "cols": int(fields["cols"])}
    except (ValueError, TypeError, KeyError):
        return None
