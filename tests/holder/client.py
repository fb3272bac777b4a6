"""A plain synchronous client of the holder's protocol."""

import contextlib
import json
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIB = 1 << 20
SECONDS = 45.0


@dataclass(frozen=True)
class Frame:
    type: str
    payload: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.payload)

    @property
    def json_or_none(self) -> Any:
        return self.json if self.payload.startswith(b"{") else None


class ClosedError(Exception):
    """The holder closed the connection."""


def pack(type_: str, payload: bytes | dict[str, Any] = b"") -> bytes:
    body = json.dumps(payload).encode() if isinstance(payload, dict) else payload
    return type_.encode() + struct.pack(">I", len(body)) + body


class Client:
    """One connection. Frames that are read past are kept in `seen`."""

    def __init__(self, path: Path, rcvbuf: int = 0) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        if rcvbuf:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.socket.settimeout(SECONDS)
        self.socket.connect(str(path))
        self.buffer = bytearray()
        self.seen: list[Frame] = []
        self.output = bytearray()
        self.errors = bytearray()

    def close(self) -> None:
        self.socket.close()

    def send(self, type_: str, payload: bytes | dict[str, Any] = b"") -> None:
        self.send_raw(pack(type_, payload))

    def send_raw(self, data: bytes) -> None:
        self.socket.settimeout(SECONDS)
        self.socket.sendall(data)

    def type(self, data: bytes) -> None:
        self.send("I", data)

    def next(self, seconds: float = SECONDS) -> Frame:
        """The next frame; TimeoutError at the deadline, ClosedError at the end."""
        deadline = time.monotonic() + seconds
        while (frame := self._cut()) is None:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                piece = self.socket.recv(MIB)
            except ConnectionResetError:
                piece = b""
            if not piece:
                assert not self.buffer, f"closed within a frame: {bytes(self.buffer[:40])!r}"
                raise ClosedError
            self.buffer += piece
        self.seen.append(frame)
        if frame.type == "O":
            self.output += frame.payload
        elif frame.type == "e":
            self.errors += frame.payload
        return frame

    def _cut(self) -> Frame | None:
        if len(self.buffer) < 5:
            return None
        (length,) = struct.unpack_from(">I", self.buffer, 1)
        assert length <= MIB, "a frame is at most 1 MiB"
        if len(self.buffer) < 5 + length:
            return None
        frame = Frame(chr(self.buffer[0]), bytes(self.buffer[5 : 5 + length]))
        del self.buffer[: 5 + length]
        return frame

    def read_until(self, types: str, seconds: float = SECONDS) -> Frame:
        """The next frame of one of these types."""
        deadline = time.monotonic() + seconds
        while (frame := self.next(deadline - time.monotonic())).type not in types:
            assert time.monotonic() < deadline, f"no {types} within {seconds} s"
        return frame

    def read_to_end(self, seconds: float = SECONDS) -> None:
        deadline = time.monotonic() + seconds
        with contextlib.suppress(ClosedError):
            while True:
                self.next(deadline - time.monotonic())

    def collect(
        self, wanted: bytes | int | Callable[[bytes], bool], seconds: float = SECONDS
    ) -> bytes:
        """Live output until it holds these bytes, or so many, or the condition is true."""
        deadline = time.monotonic() + seconds
        while not self._has(wanted):
            try:
                self.next(deadline - time.monotonic())
            except (TimeoutError, ClosedError) as error:
                raise AssertionError(
                    f"no {wanted!r}: {len(self.output)} bytes, {bytes(self.output[-300:])!r}"
                ) from error
        return bytes(self.output)

    def _has(self, wanted: bytes | int | Callable[[bytes], bool]) -> bool:
        if isinstance(wanted, bytes):
            return wanted in self.output
        if isinstance(wanted, int):
            return len(self.output) >= wanted
        return wanted(bytes(self.output))

    def attach(self, **fields: Any) -> bytes:
        """Attach; the replay, if one was asked for."""
        self.send("A", fields)
        reply = self.read_until("KF")
        assert reply.type == "K", reply
        assert reply.json == {"for": "A"}
        if not fields.get("replay", True):
            return b""
        replay = self.next()
        assert replay.type == "P", "the replay comes right after the answer"
        return replay.payload

    def status(self) -> dict[str, Any]:
        self.send("S")
        return self.read_until("S").json  # type: ignore[no-any-return]

    def stop(self, grace: float = 10) -> dict[str, Any]:
        """Stop; the exit record."""
        self.send("X", {"grace": grace})
        assert self.read_until("KF").json == {"for": "X"}
        return self.read_until("E", grace + SECONDS).json  # type: ignore[no-any-return]
