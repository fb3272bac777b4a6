"""An agent that is removed takes what waited for it along: the next of its name is another one."""

import pytest

from bullpen import clock
from bullpen.hub.messages.box import Messages
from bullpen.hub.messages.deliver import Delivery
from bullpen.model.letter import Receipt
from bullpen.model.message import Message, Status, is_for
from bullpen.model.state import Exited, Idle
from tests.hub.http.agents import token_of
from tests.hub.parts import Parts, in_parts, message
from tests.hub.pen import Pen
from tests.hub.pods.support import deadly_hub, write_role
from tests.hub.programs import python
from tests.steps import before
from tests.waiting import wait_until

SAYS = "for line in iter(input, ''): print('GOT', line, flush=True)"
REASON = "sam was removed"


def start_sam(pen: Pen) -> None:
    write_role(pen, "liner", list(python(SAYS)), "deliver: lines")
    ran = pen.cli("run", "-d", "--role", "liner", "--name", "sam")
    assert ran.code == 0, ran.err


def leave_a_secret(pen: Pen) -> None:
    """For a sam that does not run: it waits."""
    start_sam(pen)
    pen.stop("sam")
    assert pen.cli("send", "sam", "secret for old sam").code == 0


def statuses(found: list[Message]) -> list[tuple[str, str]]:
    return [(one.status, one.reason) for one in found]


def check_new_sam(pen: Pen) -> None:
    """It gets what is written to it, and nothing of before."""
    start_sam(pen)
    assert pen.ask("GET", "/agents/sam")[1]["messages"] == 0
    assert pen.cli("send", "sam", "hello").code == 0
    wait_until(lambda: b"hello" in pen.log("sam").partition(b"GOT")[2])
    assert b"secret" not in pen.log("sam")
    token = token_of(pen.home, "sam")
    own = pen.cli("inbox", "--full", BULLPEN_TOKEN=token, BULLPEN_ACTOR="sam").out
    assert "hello" in own
    assert "secret" not in own


# ── rm and gc ──


@pytest.mark.slow
@pytest.mark.parametrize("words", [("rm", "sam"), ("gc", "--older-than", "0s")])
@pytest.mark.storm
def test_g2_what_waits_for_a_removed_agent_is_refused_and_the_next_of_its_name_never_gets_it(
    pen: Pen, words: tuple[str, ...]
) -> None:
    leave_a_secret(pen)
    assert pen.cli(*words).code == 0
    assert "sam" not in pen.agents()
    shown = pen.cli("inbox", "sam").out
    assert " refused " in shown
    assert "secret for old sam" in shown
    assert shown.endswith(f"1 message refused: {REASON}\n")
    (event,) = pen.events("sam", "message.refused")
    assert event["reason"] == REASON
    check_new_sam(pen)
    assert [one["why"] for one in pen.client().get("agents", "sam", "messages")["messages"]] == [
        REASON,
        "",
    ]


@pytest.mark.slow
@pytest.mark.storm
def test_g2_a_hub_that_dies_between_the_removal_and_its_messages_leaves_them_to_the_next(
    pen: Pen,
) -> None:
    leave_a_secret(pen)
    pen.kill_hub()
    with deadly_hub(pen, before(Delivery.end)):
        pen.cli("rm", "sam")
    assert pen.cli("inbox", "sam").out.endswith(f"1 message refused: {REASON}\n")
    check_new_sam(pen)


@pytest.mark.slow
def test_g2_what_waits_for_an_agent_that_was_stopped_arrives_when_it_is_started_again(
    pen: Pen,
) -> None:
    leave_a_secret(pen)
    assert pen.cli("restart", "sam").code == 0
    wait_until(lambda: b"secret for old sam" in pen.log("sam").partition(b"GOT")[2])


# ── steps ──


def test_g2_another_hub_refuses_what_waits_for_an_agent_that_is_gone() -> None:
    async def main(parts: Parts) -> None:
        for name in ("sam", "amy", "odd"):
            parts.put(name, state=Exited(code=0))
            await parts.send("x", to=name)
        await parts.send("x", to="root")
        parts.registry.drop("sam")
        parts.registry.drop("odd")
        parts.registry.mark_broken("odd", "its session cannot be read")
        another = Messages(parts.store)
        await another.load()
        await Delivery(parts.home, parts.store, parts.registry, another).load()
        assert sorted(another.receivers()) == ["amy", "odd", "root"]
        assert another.unread("sam") == 0
        assert statuses(await parts.inbox("sam")) == [("refused", REASON)]
        third = Messages(parts.store)
        await third.load()
        assert sorted(third.receivers()) == ["amy", "odd", "root"]
        assert third.unread("sam") == 0

    in_parts(main)


def test_g2_what_was_written_while_its_receiver_was_removed_is_refused_at_the_next_start() -> None:
    async def main(parts: Parts) -> None:
        await parts.send("too late", to="tom")
        await parts.task_agent("tom", "cat")
        assert statuses(await parts.inbox("tom")) == [("refused", "tom was removed")]
        await parts.send("for this one", to="tom")
        assert [one.text for one in parts.hub.messages.queue("tom")] == ["for this one"]

    in_parts(main)


def test_i4_what_children_wrote_to_a_removed_parent_is_left_to_who_adopts_them() -> None:
    async def main(parts: Parts) -> None:
        parts.put("sam", state=Exited(code=0))
        parts.put("child", state=Idle(), parent="sam")
        parts.put("ended", state=Exited(code=0), parent="sam")
        for sender in ("child", "ended", "root"):
            written = message(to="sam").model_copy(update={"sender": sender})
            await parts.hub.delivery.send(written)
        parts.registry.drop("sam")
        await parts.hub.delivery.end("sam")
        found = {one.sender: one.status for one in await parts.inbox("sam")}
        assert found == {"child": "queued", "ended": "refused", "root": "refused"}
        await parts.hub.delivery.redirect("sam", "root", ["child"])
        assert statuses(await parts.inbox("root")) == [("queued", "")]

    in_parts(main)


def test_g2_who_wrote_from_another_machine_is_told_of_the_removal() -> None:
    async def main(parts: Parts) -> None:
        parts.put("sam", state=Exited(code=0))
        id = "m-00000000000a"
        written = message(to="sam").model_copy(update={"origin": f"desk/{id}"})
        await parts.hub.delivery.send(written)
        await parts.hub.delivery.end("sam")
        (outgoing,) = await parts.hub.messages.letters.first("desk", 5)
        about = outgoing.letter.about
        assert isinstance(about, Receipt)
        assert (about.id, about.step, about.reason) == (id, "refused", REASON)
        assert parts.hub.messages.letters.changed.is_set()

    in_parts(main)


def test_g2_what_was_refused_is_neither_read_nor_kept_for_ever() -> None:
    async def main(parts: Parts) -> None:
        parts.put("sam", state=Exited(code=0))
        sent = await parts.send("x", to="sam")
        await parts.hub.delivery.end("sam")
        await parts.hub.messages.mark_read([sent])
        assert statuses(await parts.inbox("sam")) == [("refused", REASON)]
        assert await parts.hub.messages.expire(sent.created + 1, ["sam"]) == 1

    in_parts(main)


BORN = 1000.0


@pytest.mark.parametrize(
    ("status", "fields", "is_before", "is_after"),
    [
        ("queued", {}, True, True),
        ("sent", {"sent": 1.0, "channel": "socket"}, True, True),
        ("sent", {"sent": 1.0, "channel": "lines"}, False, True),
        ("delivered", {"sent": 1.0, "delivered": 1.0}, False, True),
        ("read", {"read": 1.0}, False, True),
        ("refused", {"refused": 1.0}, False, False),
    ],
)
def test_g2_an_agent_does_not_see_what_an_earlier_one_of_its_name_got(
    status: Status, fields: dict[str, object], is_before: bool, is_after: bool
) -> None:
    born = clock.to_exact_text(clock.from_text("1970-01-01T00:16:40Z"))
    for created, expected in ((BORN - 1, is_before), (BORN, is_after), (BORN + 0.001, is_after)):
        one = message().model_copy(update={"created": created, **fields})
        assert one.status == status
        assert is_for(one, born) == expected
