"""Requests as no client would send them: from a seed, the same ones every time.

`play` opens connections, says something on each, and leaves them in many ways. Nothing in it is
ever a valid order to stop, kill or remove anything.
"""

import contextlib
import random
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.hub.http.http import HANDSHAKE, Where, connect

Random = random.Random

TARGETS = (
    ("GET", "/status"),
    ("GET", "/agents"),
    ("GET", "/events/stream"),
    ("GET", "/agents/amy/screen"),
    ("POST", "/agents/amy/hooks"),
    ("POST", "/agents/amy/messages"),
    ("POST", "/v1/logs"),
    ("POST", "/v1/metrics"),
    ("PUT", "/nowhere"),
)
BODIES = (
    b"",
    b"{}",
    b'{"text": "x"}',
    b"[" * 5000,
    b'{"a":' * 2000,
    b'"' + b"x" * 300_000 + b'"',
    b"\x00\xff\xfe" * 100,
    b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
)
SIZES = (b"0", b"1", b"5", b"ffff", b"FFFFFFFF", b"ffffffffffffffffff", b"-1", b"", b"x", b"5 ;a=b")
KEPT_OPEN = 100
SEND_SECONDS = 0.2  # the hub reads no further while it works on what came before


@dataclass
class Fuzz:
    """Everything that is chosen comes from `seed`. `tokens` may be empty: nobody in particular."""

    seed: int
    doors: tuple[Where, ...]
    tokens: tuple[str, ...]
    kept: list[socket.socket] = field(default_factory=list)

    def play(self, rounds: int) -> None:
        """So many connections, one after the other; some stay open."""
        chosen = Random(self.seed)
        for _ in range(rounds):
            talk = connect(chosen.choice(self.doors))
            talk.settimeout(SEND_SECONDS)
            with contextlib.suppress(ConnectionError, TimeoutError):
                chosen.choice(WAYS)(self, talk, chosen)
            self._leave(talk, chosen)

    def _leave(self, talk: socket.socket, chosen: Random) -> None:
        match chosen.randrange(4):
            case 0:  # as if it had crashed
                talk.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                talk.close()
            case 1:
                with contextlib.suppress(OSError):
                    talk.shutdown(socket.SHUT_WR)
                self.kept.append(talk)
            case 2:
                self.kept.append(talk)
            case _:
                talk.close()
        while len(self.kept) > KEPT_OPEN:
            self.kept.pop(chosen.randrange(len(self.kept))).close()

    def close(self) -> None:
        while self.kept:
            self.kept.pop().close()

    # ── what is said ──

    def head(self, chosen: Random, *more: str) -> bytes:
        method, path = chosen.choice(TARGETS)
        token = chosen.choice(("", *self.tokens))
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        lines += [f"Authorization: Bearer {token}"] if token else []
        return "\r\n".join([*lines, *more, "", ""]).encode()

    def whole(self, chosen: Random) -> bytes:
        body = chosen.choice(BODIES)
        return self.head(chosen, f"Content-Length: {len(body)}") + body

    def chunks(self, talk: socket.socket, chosen: Random) -> None:
        """Sizes that are right, wrong, or no sizes; with and without an end."""
        talk.sendall(self.head(chosen, "Transfer-Encoding: chunked"))
        for _ in range(chosen.randrange(6)):
            body = chosen.choice(BODIES)[:1000]
            size = b"%x" % len(body) if chosen.random() < 0.6 else chosen.choice(SIZES)
            talk.sendall(size + b"\r\n" + body + chosen.choice((b"\r\n", b"\r\n", b"\n", b"")))
        talk.sendall(chosen.choice((b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"0\r\n", b"")))

    def pipeline(self, talk: socket.socket, chosen: Random) -> None:
        """Many requests at once, whose answers are read in part or not at all."""
        talk.sendall(b"".join(self.whole(chosen) for _ in range(chosen.randrange(2, 30))))
        if chosen.random() < 0.5:
            talk.settimeout(0.01)
            talk.recv(1 << 12)

    def slow_head(self, talk: socket.socket, chosen: Random) -> None:
        """In pieces, and never to its end."""
        head = self.head(chosen, "X-Long: " + "x" * chosen.randrange(2000))
        end = chosen.randrange(1, len(head) - 1)
        for start in range(0, end, 200):
            talk.sendall(head[start : min(start + 200, end)])

    def slow_body(self, talk: socket.socket, chosen: Random) -> None:
        """Much is announced, little comes."""
        length = chosen.choice((10, 70_000, 7_000_000, 9_000_000, 1 << 62))
        talk.sendall(self.head(chosen, f"Content-Length: {length}"))
        for _ in range(chosen.randrange(5)):
            talk.sendall(b"x" * chosen.randrange(1, min(length, 100_000)))

    def mutation(self, talk: socket.socket, chosen: Random) -> None:
        """A good request in which a few bytes are not."""
        data = bytearray(self.whole(chosen))
        for _ in range(chosen.randrange(1, 8)):
            place = chosen.randrange(len(data))
            match chosen.randrange(3):
                case 0:
                    data[place] = chosen.randrange(256)
                case 1:
                    del data[place : place + chosen.randrange(1, 20)]
                    data += b"x"
                case _:
                    data[place:place] = chosen.randbytes(chosen.randrange(1, 20))
        talk.sendall(data)

    def two_meanings(self, talk: socket.socket, chosen: Random) -> None:
        """Heads that could be read in two ways."""
        twice = chosen.choice(
            (
                ("Content-Length: 5", "Content-Length: 6"),
                ("Content-Length: 5", "Transfer-Encoding: chunked"),
                ("Transfer-Encoding: chunked, identity",),
                ("Transfer-Encoding:\tchunked",),
                ("Content-Length: +5",),
                ("Host: elsewhere",),
                ("Expect: 100-continue", "Content-Length: 100000"),
            )
        )
        talk.sendall(self.head(chosen, *twice) + b"0\r\n\r\nGET /status HTTP/1.1\r\n\r\n")

    def web_socket(self, talk: socket.socket, chosen: Random) -> None:
        """A handshake, right or not quite, and frames that are none."""
        fields = [f"{name}: {value}" for name, value in HANDSHAKE.items()]
        head = self.head(chosen, *chosen.sample(fields, chosen.randrange(2, len(fields) + 1)))
        path = b"GET /agents/amy/terminal " if chosen.random() < 0.7 else b"GET /status "
        talk.sendall(path + head.split(b" ", 2)[2] + chosen.randbytes(chosen.randrange(200)))

    def noise(self, talk: socket.socket, chosen: Random) -> None:
        talk.sendall(chosen.randbytes(chosen.randrange(1, 5000)))


WAYS: tuple[Callable[[Fuzz, socket.socket, Random], None], ...] = (
    Fuzz.chunks,
    Fuzz.pipeline,
    Fuzz.slow_head,
    Fuzz.slow_body,
    Fuzz.mutation,
    Fuzz.two_meanings,
    Fuzz.web_socket,
    Fuzz.noise,
)
