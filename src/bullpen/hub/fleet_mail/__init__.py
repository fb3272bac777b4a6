"""Messages to agents of other machines, and from them. Run by `hub/fleet` while this machine is in
a fleet; the rest of this room, and of `bullpen.fleet`, is loaded then only. A message is a row with
a letter beside it before it is acknowledged. A letter is sent until the other hub has said that it
is in its database; they are taken in their order, each once. Must not deliver to an agent: that is
`messages`, as for a message of this machine.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents.registry import Registry
from bullpen.hub.fleet_children import FleetChildren
from bullpen.hub.messages.box import Messages
from bullpen.hub.messages.deliver import Delivery
from bullpen.hub.quotas import Quotas
from bullpen.hub.store.transaction import Transaction
from bullpen.model.letter import Written
from bullpen.model.letter_fields import AGENT_NAME
from bullpen.model.message import Message

if TYPE_CHECKING:
    from bullpen.fleet.link import Link
    from bullpen.fleet.mail_server import MailServer

log = logging.getLogger("bullpen.hub")

AGAIN_SECONDS = 2.0


class FleetMail:
    """Both ways, of one hub."""

    def __init__(
        self,
        registry: Registry,
        messages: Messages,
        delivery: Delivery,
        quotas: Quotas,
        children: FleetChildren,
    ) -> None:
        self._registry = registry
        self._messages = messages
        self._delivery = delivery
        self._quotas = quotas
        self._children = children
        self._server: MailServer | None = None

    @property
    def trouble(self) -> str:
        """Why letters do not get to the server, as far as one knows."""
        return self._server.trouble if self._server is not None else ""

    async def send(self, message: Message, agent: str) -> Message:
        """Keep a message to `HOST/NAME`, which that agent has written, or the owner if it is empty.
        It is on disk when this returns."""
        host, _, name = message.to.partition("/")
        if AGENT_NAME.fullmatch(name) is None:
            raise BullpenError(f"{name[:80]!r} is no name of an agent", kind=Kind.NOT_FOUND)
        written = Written(
            id=message.id,
            agent=agent,
            sender="" if agent else message.sender,
            to=name,
            priority=message.priority,
            created=message.created,
        )

        def add(transaction: Transaction, is_new: bool) -> None:
            if is_new:
                self._messages.letters.add(transaction, host, written)

        stored = await self._messages.send(message, add)
        self._messages.letters.changed.set()
        return stored

    async def run(self, link: "Link") -> None:
        """Once that connection is there, until it is cancelled."""
        await link.joined.wait()
        while True:
            try:
                await self._run(link)
            except Exception:
                log.exception("messages of the fleet failed")
            await asyncio.sleep(AGAIN_SECONDS)

    async def _run(self, link: "Link") -> None:
        from bullpen.fleet.link import first_to_end
        from bullpen.fleet.mail_server import MailServer
        from bullpen.fleet.signed import SignedRecords
        from bullpen.hub.fleet_mail.incoming import IncomingMail
        from bullpen.hub.fleet_mail.outgoing import OutgoingMail

        signed = SignedRecords(link.credential)
        outgoing = OutgoingMail(self._messages, signed)
        server = MailServer(link.url, link.credential, outgoing.hear, outgoing.connected)
        self._server = server
        incoming = IncomingMail(
            self._registry,
            self._messages,
            self._delivery,
            self._quotas,
            self._children,
            server,
            signed,
        )
        await first_to_end(
            server.run(), outgoing.run(server), incoming.run(), self._children.run(server)
        )
