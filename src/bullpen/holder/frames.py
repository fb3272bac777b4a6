"""Frames: a type byte, a length of four bytes, a payload. See docs/holder-protocol.md."""

import json
import struct

HEADER = struct.Struct(">cI")
LIMIT = 1 << 20


class BrokenFrameError(Exception):
    """The other side does not speak this protocol; nothing after it can be understood."""


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """One frame as bytes."""
    return HEADER.pack(kind, len(payload)) + payload


def json_frame(kind: bytes, fields: dict[str, object]) -> bytes:
    """One frame with a JSON payload."""
    return frame(kind, json.dumps(fields).encode())


def parse_json(payload: bytes) -> dict[str, object]:
    """The fields of a JSON payload; an empty one has none. ValueError for anything else."""
    fields = json.loads(payload) if payload else {}
    if not isinstance(fields, dict):
        raise ValueError("not an object")
    return fields


class FrameReader:
    """Bytes in as they come, whole frames out."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> list[tuple[bytes, bytes]]:
        self.buffer += data
        frames = []
        start = 0
        while len(self.buffer) - start >= HEADER.size:
            kind, length = HEADER.unpack_from(self.buffer, start)
            if length > LIMIT:
                raise BrokenFrameError(f"a frame of {length} bytes")
            end = start + HEADER.size + length
            if len(self.buffer) < end:
                break
            frames.append((kind, bytes(self.buffer[start + HEADER.size : end])))
            start = end
        del self.buffer[:start]
        return frames
