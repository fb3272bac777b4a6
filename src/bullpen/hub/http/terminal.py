"""`/agents/{name}/terminal`: an agent's terminal over a WebSocket.

Binary messages are output and input as they are; a text message from the client is
`{"rows", "cols"}`, its size. The first message is the replay. The holder's rules hold: many
clients, the last active one's size, a slow one dropped and told. With `sizes` the client is told
the program's size in the same words: first if it only reads, and whenever another has changed it, a
replay after it. With `frames` both sides speak the holder's own protocol, for `bullpen attach` on
another machine.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, Field, ValidationError

from bullpen.holder.frames import BrokenFrameError, FrameReader, frame, json_frame
from bullpen.hub.holders import link as holder_link
from bullpen.hub.http.agents import holder_answer, running
from bullpen.hub.http.guard import owner_only
from bullpen.hub.http.parameters import Name
from bullpen.hub.http.state import hub_of

router = APIRouter(dependencies=[Depends(owner_only)])

GONE, BAD = 4410, 4400
INPUT_BYTES = 1 << 19


class Size(BaseModel):
    """Of a terminal."""

    rows: Annotated[int, Field(ge=1, le=4096)]
    cols: Annotated[int, Field(ge=1, le=4096)]


@router.websocket("/agents/{name}/terminal")
async def terminal(
    socket: WebSocket,
    name: Name,
    rows: Annotated[int, Query(ge=1, le=4096)] = 24,
    cols: Annotated[int, Query(ge=1, le=4096)] = 80,
    read_only: bool = False,
    sizes: bool = False,
    frames: bool = False,
) -> None:
    """Attach. Refused like any other request; closed with 4410 when the program has ended."""
    hub = await hub_of(socket)
    live = running(hub, name)
    streams = holder_link.open_streams(hub.home.socket(live.agent.name))
    reader, writer = await holder_answer(name, streams)
    await socket.accept()
    if not frames:
        fields: dict[str, Any] = {
            "read_only": read_only,
            "sizes": sizes,
            "rows": rows,
            "cols": cols,
        }
        writer.write(json_frame(b"A", fields))
    size_frames = (
        (b"H", b"Z") if read_only else (b"Z",)
    )  # at its greeting it has not heard our size
    show, type_in = (
        (_pass_frames(reader, socket), _take_frames(socket, writer))
        if frames
        else (_show(reader, socket, size_frames if sizes else ()), _type(socket, writer, read_only))
    )
    try:
        async with asyncio.TaskGroup() as group:
            showing = group.create_task(show)
            typing = group.create_task(type_in)
            await asyncio.wait({showing, typing}, return_when=asyncio.FIRST_COMPLETED)
            showing.cancel()
            typing.cancel()
    finally:
        writer.close()


async def _show(reader: asyncio.StreamReader, socket: WebSocket, sizes: tuple[bytes, ...]) -> None:
    try:
        await socket.close(GONE, await _pass_on(reader, socket, sizes))
    except (WebSocketDisconnect, RuntimeError):
        return  # the client has left


async def _pass_on(
    reader: asyncio.StreamReader, socket: WebSocket, sizes: tuple[bytes, ...]
) -> str:
    """All output, and the size of frames of those kinds; returns why there is no more."""
    frames = FrameReader()
    while data := await _read(reader):
        try:
            received = frames.feed(data)
        except BrokenFrameError:
            break
        for kind, payload in received:
            if kind in (b"P", b"O"):
                await socket.send_bytes(payload)
            elif kind in sizes:
                if (size := _size(payload)) is not None:
                    await socket.send_json(size)
            elif kind == b"D":
                return "too slow; attach again"
    return "the program has ended"


async def _pass_frames(reader: asyncio.StreamReader, socket: WebSocket) -> None:
    """All that the holder says, as it is."""
    try:
        while data := await _read(reader):
            await socket.send_bytes(data)
        await socket.close(GONE, "the holder has left")
    except (WebSocketDisconnect, RuntimeError):
        return  # the client has left


async def _take_frames(socket: WebSocket, writer: asyncio.StreamWriter) -> None:
    """All that the client says, as it is: the holder checks its own protocol."""
    while True:
        try:
            writer.write(await socket.receive_bytes())
            await writer.drain()
        except (WebSocketDisconnect, RuntimeError, KeyError, OSError):
            return


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1 << 16)
    except OSError:
        return b""


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
        try:
            await writer.drain()
        except OSError:
            return  # the holder has left, and the other side says so


def _size(text: str | bytes | None) -> dict[str, Any] | None:
    try:
        return Size.model_validate_json(text or b"").model_dump()
    except ValidationError:
        return None
