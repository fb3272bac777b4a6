"""L4: letters stand and fall with the messages that they are about."""

import asyncio
import contextlib
import hashlib
from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.fleet.credential import issue
from bullpen.fleet.nkeys import make_seed
from bullpen.fleet.signed import SignedRecords
from bullpen.fleet.subjects import heard_key
from bullpen.hub.fleet_mail.incoming import IncomingMail
from bullpen.hub.fleet_mail.outgoing import OutgoingMail
from bullpen.hub.messages import box as module
from bullpen.hub.messages.box import Messages
from bullpen.hub.messages.letters import NotNextError
from bullpen.model.letter import Heard, Letter, Receipt, Written, message_of
from bullpen.model.message import Message
from tests.hub.parts import Parts, in_parts, message

AUTHORITY = make_seed()
WRITTEN = Written(id="m-0123456789ab", agent="bob", to="amy", priority="normal", created=5.0)
LINE = "0" * 16


async def send(parts: Parts, to: str = "h2/amy", sender: str = "root") -> Message:
    written = message(to=to).model_copy(update={"sender": sender})
    return await parts.hub.fleet.mail.send(written, "" if sender == "root" else sender)


async def waiting(parts: Parts, host: str = "h2") -> list[Letter]:
    return [each.letter for each in await parts.hub.messages.letters.first(host, 99)]


def incoming_of(parts: Parts) -> IncomingMail:
    """Without a server: for letters that have come."""
    nobody: Any = None
    hub = parts.hub
    return IncomingMail(
        hub.registry, hub.messages, hub.delivery, hub.quotas, nobody, nobody, nobody
    )


async def status(parts: Parts, to: str) -> list[str]:
    return [each.status for each in await parts.hub.messages.inbox(to, 99)]


def test_l4_every_machine_has_a_line_of_its_own_numbered_without_a_gap() -> None:
    async def main(parts: Parts) -> None:
        for to in ("h2/amy", "h3/amy", "h2/bob", "h2/amy"):
            await send(parts, to)
        letters = await waiting(parts)
        assert [each.number for each in letters] == [1, 2, 3]
        assert [each.number for each in await waiting(parts, "h3")] == [1]
        assert await parts.hub.messages.letters.list_hosts() == ["h2", "h3"]
        heard = Heard(line=letters[0].line, number=2)
        assert await parts.hub.messages.mark_taken("h2", heard)
        assert not await parts.hub.messages.mark_taken("h2", heard)
        # The numbers go on, also when nothing waits any more.
        await parts.hub.messages.mark_taken("h2", Heard(line=heard.line, number=3))
        await send(parts)
        (letter,) = await waiting(parts)
        assert (letter.number, letter.taken) == (4, 3)

    in_parts(main)


def test_l4_what_is_said_of_another_line_drops_nothing() -> None:
    async def main(parts: Parts) -> None:
        await send(parts)
        assert not await parts.hub.messages.mark_taken("h2", Heard(line=LINE, number=9))
        assert len(await waiting(parts)) == 1

    in_parts(main)


@pytest.mark.parametrize("step", ["delivered", "read"])
def test_l4_how_far_it_got_is_noted_with_the_step_itself_and_sent_back(step: str) -> None:
    async def main(parts: Parts) -> None:
        messages = parts.hub.messages
        stored = await messages.send(message_of("h1", WRITTEN, "x", 9.0))
        for _ in range(2):
            await (messages.mark_read if step == "read" else messages.mark_delivered)([stored])
        (letter,) = await waiting(parts, "h1")
        assert isinstance(letter.about, Receipt)
        assert (letter.about.id, letter.about.step) == (WRITTEN.id, step)
        assert messages.letters.changed.is_set()

    in_parts(main)


def refused(sent: Message) -> tuple[Letter, Receipt]:
    receipt = Receipt(id=sent.id, step="refused", at=7.0, reason="no agent called amy")
    return Letter(line=LINE, number=1, taken=0, about=receipt), receipt


def test_l4_no_message_that_is_there_keeps_a_refusal_from_being_told() -> None:
    """Agents choose ids, too: one that could be guessed would be there already, for another
    receiver, and the rest of that machine's line would wait for ever."""

    async def main(parts: Parts) -> None:
        sent = await send(parts, sender="bob")
        guessed = hashlib.sha256(f"refused:{sent.id}".encode()).hexdigest()[:12]
        planted = message(to="root").model_copy(update={"id": f"m-{guessed}", "sender": "bob"})
        await parts.hub.messages.send(planted)
        await incoming_of(parts)._take_receipt("h2", *refused(sent))
        assert await status(parts, "h2/amy") == ["refused"]
        told = [each.text for each in await parts.hub.messages.inbox("root", 99)]
        assert sum(f"did not get your message {sent.id}" in text for text in told) == 1

    in_parts(main)


def test_l4_a_refusal_is_told_and_taken_together_or_not_at_all() -> None:
    async def main(parts: Parts) -> None:
        sent, incoming = await send(parts, sender="bob"), incoming_of(parts)
        letter, receipt = refused(sent)
        late = letter.model_copy(update={"number": 3})
        with pytest.raises(NotNextError):
            await incoming._take_receipt("h2", late, receipt)
        assert await parts.hub.messages.inbox("root", 99) == []
        for _ in range(2):
            with contextlib.suppress(NotNextError):
                await incoming._take_receipt("h2", letter, receipt)
        assert len(await parts.hub.messages.inbox("root", 99)) == 1

    in_parts(main)


def test_l4_a_writer_who_cannot_be_told_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(parts: Parts) -> None:
        sent = await send(parts, sender="bob")
        monkeypatch.setattr(module, "MOST", 0)
        await incoming_of(parts)._take_receipt("h2", *refused(sent))
        assert await status(parts, "h2/amy") == ["refused"]

    in_parts(main)


def test_l4_a_message_whose_taking_is_cut_off_is_in_the_queue_if_it_is_stored() -> None:
    async def main(parts: Parts) -> None:
        is_stored, messages = asyncio.Event(), parts.hub.messages
        loop = asyncio.get_running_loop()

        def store(*_: object) -> None:
            loop.call_soon_threadsafe(is_stored.set)

        sending = asyncio.create_task(messages.send(message(to="amy"), store))
        await is_stored.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert await status(parts, "amy") == ["queued"]
        assert (messages.count_open("amy"), messages.unread("amy")) == (1, 1)

    in_parts(main)


def test_l4_a_receipt_counts_for_messages_to_that_machine_alone() -> None:
    async def main(parts: Parts) -> None:
        sent, incoming = await send(parts), incoming_of(parts)
        receipt = Receipt(id=sent.id, step="delivered", at=7.0)
        letter = Letter(line=LINE, number=1, taken=0, about=receipt)
        await incoming._take_receipt("h3", letter, receipt)
        assert await status(parts, "h2/amy") == ["queued"]
        await incoming._take_receipt("h2", letter, receipt)
        assert await status(parts, "h2/amy") == ["delivered"]
        with pytest.raises(NotNextError):
            await incoming._take_receipt("h2", letter, receipt)
        assert [event.agent for event in await parts.events("message.delivered")] == ["h2/amy"]

    in_parts(main)


def test_l4_a_message_that_nobody_has_taken_is_kept_however_old_it_is() -> None:
    async def main(parts: Parts) -> None:
        messages = parts.hub.messages
        await send(parts)
        await send(parts)
        (first, _) = await waiting(parts)
        await messages.mark_taken("h2", Heard(line=first.line, number=1))
        assert await messages.expire(2**40, ["amy"]) == 1
        assert await status(parts, "h2/amy") == ["queued"]
        another = Messages(parts.store)
        await another.load()
        assert another.count_open("h2/amy") == messages.count_open("h2/amy") == 1

    in_parts(main)


def test_l4_an_agent_cannot_fill_the_disk_with_what_nobody_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_OF_ONE", 3)

    async def main(parts: Parts) -> None:
        for _ in range(3):
            await send(parts, sender="bob")
        # Nobody knows here which names there are: another one does not help.
        for to in ("h2/amy", "h2/another"):
            with pytest.raises(BullpenError, match=f"too many messages wait for {to}"):
                await send(parts, to, sender="bob")
        assert len(await waiting(parts)) == 3
        await send(parts, "h3/amy", sender="bob")
        (first, *_) = await waiting(parts)
        await parts.hub.messages.mark_taken("h2", Heard(line=first.line, number=1))
        await send(parts, sender="bob")

    in_parts(main)


@pytest.mark.parametrize("signer", ["h2", "h3", "stranger"])
def test_l4_only_the_receiver_says_what_it_has_taken(signer: str) -> None:
    h1, h2, h3 = (issue(AUTHORITY, host, make_seed()) for host in ("h1", "h2", "h3"))
    credential = {"h2": h2, "h3": h3, "stranger": issue(make_seed(), "h2", make_seed())}[signer]

    async def main(parts: Parts) -> None:
        await send(parts)
        (letter,) = await waiting(parts)
        subject = heard_key("h2", "h1")
        heard = Heard(line=letter.line, number=1)
        data = SignedRecords(credential).sign(subject, heard)
        await OutgoingMail(parts.hub.messages, SignedRecords(h1))._take(subject, data)
        assert len(await waiting(parts)) == (0 if signer == "h2" else 1)

    in_parts(main)


@pytest.mark.parametrize("number", [2**63, 10**40, -1])
def test_l4_a_number_that_is_none_is_passed_over(number: int) -> None:
    h1, h2 = (issue(AUTHORITY, host, make_seed()) for host in ("h1", "h2"))

    async def main(parts: Parts) -> None:
        await send(parts)
        (letter,) = await waiting(parts)
        subject = heard_key("h2", "h1")
        heard = Heard.model_construct(line=letter.line, number=number, is_missing=False)
        data = SignedRecords(h2).sign(subject, heard)
        await OutgoingMail(parts.hub.messages, SignedRecords(h1))._take(subject, data)
        assert len(await waiting(parts)) == 1

    in_parts(main)


@pytest.mark.parametrize("name", ["h2/", "h2/a b", "h2/../x", "h2/a/b", "h2/amy\n"])
def test_l4_what_is_no_name_is_said_before_it_is_kept(name: str) -> None:
    async def main(parts: Parts) -> None:
        with pytest.raises(BullpenError, match="is no name of an agent"):
            await send(parts, name)
        assert await waiting(parts) == []

    in_parts(main)
