"""Sends the letters of this hub's database to the hubs of other machines, until they have them.

At most a few of each line are at the server at a time: more would only wait there. What nobody has
taken for a while is sent again, as often as it needs; the receiver takes each once.
"""

import asyncio
import contextlib
import logging
import math
import secrets
import time
from dataclasses import dataclass

from bullpen.errors import BullpenError
from bullpen.fleet.mail_server import MailServer
from bullpen.fleet.signed import SignedRecords
from bullpen.fleet.subjects import mail
from bullpen.hub.messages.box import Messages
from bullpen.model.letter import Heard

log = logging.getLogger("bullpen.hub")

WINDOW = 16  # letters of one line that are under way
AGAIN_SECONDS = 10.0  # before they are sent again
SOON_SECONDS = 1.0  # the same, if the other hub says that it misses some
LONGEST_SECONDS = 300.0


@dataclass
class Line:
    """What this hub has sent of the letters to one host. Pure."""

    number: int = 0  # the last one
    tries: int = 0
    vain: int = 0  # tries since the other hub has taken one
    due: float = 0.0  # they are sent again

    def begin_again(self, now: float) -> None:
        """All that are not taken are sent, the next time after twice as long."""
        self.number = 0
        self.tries += 1
        self.due = now + _doubled(AGAIN_SECONDS, self.vain)
        self.vain += 1

    def note_taken(self, now: float) -> None:
        """The other hub has taken one."""
        self.vain = 0
        self.due = now + AGAIN_SECONDS

    def note_missing(self, now: float) -> None:
        """One came before its turn: those before it have to be sent. Each time later: a hub that
        cannot take the first says so of all that come after it."""
        self.due = min(self.due, now + _doubled(SOON_SECONDS, max(self.vain - 1, 0)))

    def note_connected(self) -> None:
        """The server may have lost them all."""
        self.vain, self.due = 0, 0.0


def _doubled(seconds: float, times: int) -> float:
    return min(seconds * 2.0 ** min(times, 30), LONGEST_SECONDS)


class OutgoingMail:
    """All lines."""

    def __init__(self, messages: Messages, signed: SignedRecords) -> None:
        self._messages = messages
        self._letters = messages.letters
        self._signed = signed
        self._lines: dict[str, Line] = {}
        self._heard: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue()
        self._life = secrets.token_hex(4)

    def hear(self, subject: str, data: bytes) -> None:
        """A host says what it has taken."""
        self._heard.put_nowait((subject, data))

    def connected(self) -> None:
        """The server may have lost what it had, and others may have said something meanwhile."""
        self._heard.put_nowait(None)

    async def run(self, server: MailServer) -> None:
        """Until it is cancelled."""
        from bullpen.fleet.link import first_to_end

        await first_to_end(self._send_all(server), self._listen(server))

    # ── sending ──

    async def _send_all(self, server: MailServer) -> None:
        while True:
            self._letters.changed.clear()
            hosts = await self._letters.list_hosts()
            for host in hosts:
                await self._try(server, host)
            due = min((self._lines[host].due for host in hosts), default=math.inf)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(due - time.monotonic(), LONGEST_SECONDS)):
                    await self._letters.changed.wait()

    async def _try(self, server: MailServer, host: str) -> None:
        """Whatever is wrong with the letters to one host, those to others go on."""
        from nats.errors import MaxPayloadError

        try:
            await self._send(server, host)
        except MaxPayloadError:
            number = self._lines[host].number + 1
            extra = {"host": host, "number": number}
            log.error("a letter is larger than the server takes", extra=extra)

    async def _send(self, server: MailServer, host: str) -> None:
        line = self._lines.setdefault(host, Line())
        now = time.monotonic()
        if now >= line.due:
            line.begin_again(now)
        for each in await self._letters.first(host, WINDOW):
            letter = each.letter
            if letter.number <= line.number:
                continue
            name = f"{letter.line}-{letter.number}"
            data = self._signed.sign(mail(host, server.host, name), letter, each.text.encode())
            # One id for all tries, until it is sent because nobody has taken it.
            await server.send(host, name, data, f"{host}-{name}-{self._life}-{line.tries}")
            line.number = letter.number

    # ── what was taken ──

    async def _listen(self, server: MailServer) -> None:
        while True:
            heard = await self._heard.get()
            if heard is None:
                for line in self._lines.values():
                    line.note_connected()
                self._letters.changed.set()
                await server.read_heard()
            else:
                await self._take(*heard)

    async def _take(self, subject: str, data: bytes) -> None:
        host = subject.split(".")[2]
        try:
            frame, heard, _ = self._signed.parse(subject, data, Heard)
            self._signed.check(frame, host)
        except BullpenError as error:
            extra = {"host": host, "reason": error.message}
            log.warning("refused what is said of messages", extra=extra)
            return
        is_new = await self._messages.mark_taken(host, heard)
        if (line := self._lines.get(host)) is not None:
            if is_new:
                line.note_taken(time.monotonic())
            if heard.is_missing:
                line.note_missing(time.monotonic())
        self._letters.changed.set()
