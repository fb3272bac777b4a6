"""Takes the letters that hubs of other machines have sent: each once, in the order of its line.

Whose message it is follows from the host that has signed the letter. An agent's quota counts here,
too: what is beyond it waits, and with it the rest of its own machine's line alone.
"""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from bullpen.errors import BullpenError, Kind
from bullpen.fleet.deliveries import kept, tell
from bullpen.fleet.link import cancel_all, first_to_end
from bullpen.fleet.mail_server import ACK_SECONDS, MailServer
from bullpen.fleet.signed import SignedRecords
from bullpen.fleet.subjects import heard_key
from bullpen.hub.agents.registry import Registry
from bullpen.hub.fleet_children import FleetChildren
from bullpen.hub.fleet_mail.outgoing import WINDOW
from bullpen.hub.messages.box import Messages
from bullpen.hub.messages.deliver import Delivery
from bullpen.hub.messages.letters import NotNextError
from bullpen.hub.quotas import Quotas
from bullpen.hub.store.transaction import Transaction
from bullpen.model.letter import (
    Heard,
    Letter,
    Receipt,
    Written,
    message_of,
    place_in_line,
    refusal_of,
)
from bullpen.model.message import ROOT, check_sender, check_text, new_id

if TYPE_CHECKING:
    from nats.aio.msg import Msg

log = logging.getLogger("bullpen.hub")

PULL_SECONDS = 5.0
MOST_OF_ONE = 2 * WINDOW  # letters of one host that wait here; one that keeps to the rules has less
FAILED_SECONDS = 2.0  # a full disk, most often
REASON_CHARACTERS = 500
# These are answers; of anything else nobody knows, and it is tried again.
REFUSALS = (Kind.INVALID, Kind.NOT_FOUND, Kind.CONFLICT, Kind.DENIED)


class IncomingMail:
    """All lines to this hub."""

    def __init__(
        self,
        registry: Registry,
        messages: Messages,
        delivery: Delivery,
        quotas: Quotas,
        children: FleetChildren,
        server: MailServer,
        signed: SignedRecords,
    ) -> None:
        self._registry = registry
        self._messages = messages
        self._delivery = delivery
        self._quotas = quotas
        self._children = children
        self._server = server
        self._signed = signed
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by host
        self._waiting: Counter[str] = Counter()
        self._running: set[asyncio.Task[None]] = set()
        self._unsaid: dict[str, Heard] = {}  # by host
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Until it is cancelled. The next hub goes on."""
        try:
            await first_to_end(self._pull(), self._say_heard())
        finally:
            await cancel_all(*self._running)

    async def _pull(self) -> None:
        while True:
            message = await self._server.pull(PULL_SECONDS)
            if message is not None:
                self._begin(self._receive(message), message.subject)

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(self._safely(work, name), name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _safely(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Top of what is done with one letter: if that fails it is delivered again."""
        try:
            await work
        except Exception:
            log.exception("a letter of the fleet was not taken", extra={"letter": name})

    async def _say_heard(self) -> None:
        """Tell the others what was taken of theirs; the last of each is enough."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._unsaid:
                host, heard = self._unsaid.popitem()
                subject = heard_key(self._server.host, host)
                await self._server.say_heard(host, self._signed.sign(subject, heard))

    def _note_heard(self, host: str, letter: Letter, number: int, is_missing: bool = False) -> None:
        self._unsaid[host] = Heard(line=letter.line, number=number, is_missing=is_missing)
        self._changed.set()

    # ── one letter ──

    async def _receive(self, message: "Msg") -> None:
        _, to, host, _ = message.subject.split(".")
        try:
            frame, letter, text = self._signed.parse(message.subject, message.data, Letter)
            self._signed.check(frame, host)
            if to != self._server.host:
                raise BullpenError(f"it is for {to}")
            if self._waiting[host] >= MOST_OF_ONE:
                raise BullpenError(f"{host} sends more at once than anybody may")
        except BullpenError as error:
            extra = {"host": host, "reason": error.message[:REASON_CHARACTERS]}
            log.warning("refused a letter of the fleet", extra=extra)
            await tell(message.term())
            return
        self._waiting[host] += 1
        try:
            async with kept(message, ACK_SECONDS), self._turns[host]:
                is_taken = await self._take(host, letter, text)
                # The sender sends again what it misses: none has to wait at the server.
                await tell(message.ack() if is_taken else message.term())
        finally:
            self._waiting[host] -= 1

    async def _take(self, host: str, letter: Letter, text: bytes) -> bool:
        """Whether it is in the database, by now or before."""
        last = await self._messages.letters.find_last(host, letter.line)
        try:
            if (position := place_in_line(letter, last)) != "next":
                raise NotNextError(position == "too soon")
            match letter.about:
                case Written() as written:
                    await self._take_message(host, letter, written, text)
                case Receipt() as receipt:
                    await self._take_receipt(host, letter, receipt)
                case about:
                    await self._children.take(host, letter, about, self._server)
        except NotNextError as error:
            self._note_heard(host, letter, last or 0, error.is_missing)
            return not error.is_missing
        self._note_heard(host, letter, letter.number)
        return True

    async def _take_message(self, host: str, letter: Letter, written: Written, data: bytes) -> None:
        def take(transaction: Transaction, _is_new: bool) -> None:
            self._messages.letters.take(transaction, host, letter)

        if written.agent:
            await self._spend(f"{host}/{written.agent}", len(data))
        try:
            text = check_text(data.decode(errors="surrogateescape"))
            if written.sender:
                check_sender(written.sender)
            if written.to != ROOT:
                self._registry.get(written.to)
            await self._delivery.send(message_of(host, written, text, time.time()), take)
        except BullpenError as error:
            if error.kind not in REFUSALS:
                await asyncio.sleep(FAILED_SECONDS)
                raise
            reason = error.message[:REASON_CHARACTERS]
            receipt = Receipt(id=written.id, step="refused", at=time.time(), reason=reason)
            await self._messages.refuse(host, letter, receipt)

    async def _spend(self, agent: str, size: int) -> None:
        """Wait until that agent's quota allows it."""
        while True:
            try:
                self._quotas.spend(agent, {"messages": 1, "message_bytes": size})
                return
            except BullpenError as error:
                await asyncio.sleep(float(str(error.details["retry_after"])))

    async def _take_receipt(self, host: str, letter: Letter, receipt: Receipt) -> None:
        message = await self._messages.find_sent_to(host, receipt.id)
        take = partial(self._messages.note_receipt, host, letter, receipt, message)
        if message is not None and receipt.step == "refused":
            to = message.sender if self._registry.find(message.sender) else ROOT
            refusal = refusal_of(message, receipt.reason, to, new_id(), time.time())
            try:
                await self._delivery.send(refusal, lambda transaction, _is_new: take(transaction))
                self._messages.forget([message])
                return
            except BullpenError as error:
                if error.kind not in REFUSALS:
                    raise
                # Its writer has too many to read. That must not hold up this machine's line.
                extra = {"id": message.id, "reason": error.message}
                log.warning("nobody could be told of a refusal", extra=extra)
        await self._messages.take_receipt(message, take)
