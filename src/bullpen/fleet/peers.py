"""All conversations of this hub with others: opens them, takes what arrives, ends what is dead.

Made by `link`, which gives it what comes from the server and sends what it says. Every frame is
signed by the host that says it. A conversation that another hub opens is given to `answer` once:
its signature, the fleet's word for the key, this hub's life and its number are checked before.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from bullpen.errors import BullpenError
from bullpen.fleet.channel import SILENCE_SECONDS, Channel, Head
from bullpen.fleet.credential import Certificate, Credential, check_certificate
from bullpen.fleet.frames import Frame, Replays, decode, encode
from bullpen.fleet.nkeys import Signer, Verifier
from bullpen.fleet.subjects import said_to

log = logging.getLogger("bullpen.fleet")

PING_SECONDS = 3.0
GONE = "no hub of that name is connected"
SILENT = "does not answer; whether it was done is unknown"

Publish = Callable[[str, bytes, str], Awaitable[None]]  # subject, data, where no listener is told
Answer = Callable[[Channel, Head, bytes], Awaitable[None]]


class Peers:
    """The conversations. `life` is this hub's: what was signed for an earlier one is refused."""

    def __init__(self, credential: Credential, publish: Publish, answer: Answer) -> None:
        self.host = credential.host
        self.life = secrets.token_hex(8)
        self._credential = credential
        self._certificate = credential.certificate
        self._signer = Signer(credential.seed)
        self._publish = publish
        self._answer = answer
        self._lives: dict[str, str] = {}  # of the others, as last heard
        self._numbers = count()
        self._replays = Replays()
        self._channels: dict[tuple[str, str], Channel] = {}
        self._verifiers: dict[tuple[str, Certificate], Verifier] = {}
        self._known: dict[tuple[str, str], Verifier] = {}  # of each channel
        self._answering: set[asyncio.Task[None]] = set()

    # ── opening ──

    async def open(self, host: str, head: Head, body: bytes) -> Channel:
        """A new conversation; its first message is on its way."""
        id = f"{self.life}-{next(self._numbers)}"
        channel = self._make(host, id)
        try:
            await channel.send({**head, "kind": "open"}, body)
        except BaseException:
            await self.close(channel)
            raise
        return channel

    def learn(self, host: str, life: str) -> None:
        """Another hub has said which life it has."""
        self._lives[host] = life

    async def close(self, channel: Channel, reason: str = "") -> None:
        """End it on both sides."""
        self._forget(channel)
        if not channel.is_over:
            channel.end(reason)
            # Without the server the other side ends it by itself.
            with contextlib.suppress(BullpenError):
                await channel.say_end(reason)

    async def close_all(self, reason: str) -> None:
        """This host leaves."""
        for channel in list(self._channels.values()):
            await self.close(channel, reason)

    def end_all(self, reason: str) -> None:
        """The server is away."""
        for channel in list(self._channels.values()):
            channel.end(reason)
            self._forget(channel)

    # ── what arrives ──

    async def hear(self, subject: str, data: bytes, is_unheard: bool) -> None:
        """One message to this host. `is_unheard`: the server says that nobody listens there."""
        _, to, host, id = subject.split(".", 3)
        channel = self._channels.get((host, id))
        if is_unheard:
            if channel is not None:
                channel.end(f"{host}: {GONE}")
            return
        try:
            frame = decode(subject, data)
            self._check(frame, to, host, id)
            if channel is None:
                channel = await self._begin(frame, host, id)
            if channel is not None:
                channel.take(frame.head, frame.body)
        except (BullpenError, KeyError, TypeError, ValueError) as error:
            log.warning(
                "refused what came from the fleet", extra={"host": host, "reason": str(error)}
            )

    def _check(self, frame: Frame, to: str, host: str, id: str) -> None:
        """Raise if that host never said it."""
        if to != self.host:
            raise BullpenError(f"it is for {to}")
        verifier = self._known.get((host, id))
        if "key" in frame.head:
            certificate = Certificate(*map(str, frame.head["key"]))
            if (host, certificate) not in self._verifiers:
                self._verifiers[host, certificate] = check_certificate(
                    self._credential.authority, host, certificate
                )
            verifier = self._verifiers[host, certificate]
        if verifier is None or not frame.is_from(verifier):
            raise BullpenError("its signature is not that host's")
        if (host, id) in self._channels:
            self._known.setdefault((host, id), verifier)

    async def _begin(self, frame: Frame, host: str, id: str) -> Channel | None:
        """The conversation that another hub opens; None if it is refused."""
        if frame.head["kind"] == "end":
            return None
        if frame.head["kind"] not in ("open", "part") or frame.head["n"] != 0:
            await self._refuse(host, id, {"reason": f"{self.host} has been restarted"})
            return None
        if frame.head.get("life") != self.life:
            await self._refuse(host, id, {"reason": "for an earlier hub", "stale": self.life})
            return None
        if not self._replays.take(host, id):
            raise BullpenError("it was said before")
        channel = self._make(host, id)
        self._known[host, id] = self._verifiers[host, Certificate(*map(str, frame.head["key"]))]
        task = asyncio.create_task(self._run_answer(channel), name=f"fleet {host}")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        return channel

    async def _run_answer(self, channel: Channel) -> None:
        """One request of another hub. A boundary: what fails is logged, and the other is told."""
        reason = f"{self.host} failed; its log says where"
        try:
            head, body = await channel.receive()
            await self._answer(channel, head, body)
            reason = ""
        except BullpenError as error:
            reason = error.message
        except Exception:
            log.exception("a request from the fleet failed", extra={"host": channel.host})
        finally:
            await self.close(channel, reason)

    # ── saying ──

    def _make(self, host: str, id: str) -> Channel:
        numbers = count()

        async def say(head: Head, body: bytes) -> None:
            await self._say(host, id, next(numbers), head, body)

        channel = self._channels[host, id] = Channel(host, id, say)
        return channel

    async def _say(self, host: str, id: str, number: int, head: Head, body: bytes) -> None:
        subject = said_to(host, self.host, id)
        full: dict[str, Any] = {**head, "n": number}
        if number == 0 or head["kind"] == "ping":  # a hub that was restarted knows no key
            full["key"] = [self._certificate.public, self._certificate.signature]
        if number == 0:
            full["life"] = self._lives.get(host, "")
        data = encode(self._signer, subject, full, body)
        await self._publish(subject, data, said_to(self.host, host, id))

    async def _refuse(self, host: str, id: str, fields: Head) -> None:
        await self._say(host, id, 0, {"kind": "end", **fields}, b"")

    def _forget(self, channel: Channel) -> None:
        self._channels.pop((channel.host, channel.id), None)
        self._known.pop((channel.host, channel.id), None)

    async def keep(self) -> None:
        """While connected: ask on every channel whether the other is there, and end the dead."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            for channel in list(self._channels.values()):
                if time.monotonic() - channel.heard > SILENCE_SECONDS:
                    channel.end(f"{channel.host} {SILENT}")
                elif not channel.is_over:
                    with contextlib.suppress(BullpenError):  # without the server all end at once
                        await channel.ping()
