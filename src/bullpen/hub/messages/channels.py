"""How messages reach an agent's program: its own socket, a paste, or lines in its terminal.

Called by `deliver`. Writes to sockets and terminals. Never decides when, and records nothing.
"""

import asyncio
import fcntl
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bullpen.engines import Engine
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.holders import link as holder_link
from bullpen.model.message import LINES, Message, envelope, joined

SOCKET, HOOK, PASTE = "socket", "hook", "paste"
LINE_BYTES = 4000
SIOCOUTQ = 0x5411  # how many bytes the other side has not read yet


@dataclass
class Program:
    """What is known of one run of an agent's program."""

    run: str = ""
    link: socket.socket | None = None  # the connection to its own socket, if it was used
    interrupted_at: float = float("-inf")  # monotonic
    typed_at: float = 0.0  # when we typed last
    prompted_at: float | None = None  # when its prompt was last taken; None: not known

    def hang_up(self) -> None:
        if self.link is not None:
            self.link.close()
            self.link = None

    def has_unread(self) -> bool:
        """Whether it has yet to read what was written to its socket."""
        if self.link is None:
            return False
        try:
            return bool(struct.unpack("i", fcntl.ioctl(self.link, SIOCOUTQ, bytes(4)))[0])
        except OSError:
            return False


def channel_of(engine: Engine, live: LiveAgent) -> str:
    """How messages reach that agent; empty: not at all."""
    if live.agent.deliver:
        return LINES
    if live.agent.message_socket and engine.message_line(""):
        return SOCKET
    return PASTE if engine.typed("x") else ""


async def write_to_socket(
    program: Program, path: str, engine: Engine, messages: Sequence[Message]
) -> None:
    """Over a new connection, which is kept: it tells whether its program has read it."""
    program.hang_up()
    program.link = await asyncio.to_thread(_connect, path)
    line = engine.message_line(joined(messages))
    async with asyncio.timeout(holder_link.ANSWER_SECONDS):
        await asyncio.get_running_loop().sock_sendall(program.link, line)


async def type_messages(
    program: Program, terminal: Path, engine: Engine, channel: str, messages: Sequence[Message]
) -> None:
    """Into its terminal: as one paste, or as lines."""
    keys: Sequence[bytes] = engine.typed(joined(messages))
    if channel == LINES:
        keys = [b"".join(map(line_of, messages))]
    for number, part in enumerate(keys):
        if number:
            await asyncio.sleep(engine.typing_seconds)
        await holder_link.type_into(terminal, part)
        program.typed_at = time.time()


def line_of(message: Message) -> bytes:
    """For a program that takes lines; what would be a key to its terminal is a space. A terminal
    cuts a line at 4095 bytes: of a longer one the beginning, and where the rest is."""
    text = "".join(c if c.isprintable() else " " for c in envelope(message))
    line = " ".join(text.split()).encode()
    if len(line) > LINE_BYTES:
        rest = f" … {len(line)} bytes, see bullpen inbox --full"
        line = line[:LINE_BYTES].decode(errors="ignore").encode() + rest.encode()
    return line + b"\n"


def _connect(path: str) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(holder_link.ANSWER_SECONDS)
        link.connect(path)
        link.setblocking(False)
    except BaseException:
        link.close()
        raise
    return link
