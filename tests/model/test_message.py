"""What a message is, and when it may be handed over: tables, and whatever is made up."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.message import (
    TEXT_BYTES,
    TYPING_SECONDS,
    HandOver,
    Interrupt,
    Message,
    MessageRequest,
    Priority,
    Wait,
    at_a_tool,
    envelope,
    ids_in,
    in_order,
    joined,
    new_id,
    next_step,
)
from bullpen.model.state import Blocked, Exited, Idle, Lost, Starting, State, Unknown, Working

FOR_EVER = float("inf")
NUMBERS = itertools.count(1)


def message(
    text: str = "x", priority: Priority = "normal", sender: str = "amy", sent: float | None = None
) -> Message:
    number = next(NUMBERS)
    return Message(
        id=f"m-{number:012x}",
        sender=sender,
        to="bob",
        text=text,
        priority=priority,
        created=float(number),
        sent=sent,
    )


PRIORITIES: tuple[Priority, ...] = ("normal", "urgent", "interrupt")
priorities = st.sampled_from(PRIORITIES)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
messages = st.builds(message, text=texts, priority=priorities)
states: st.SearchStrategy[State] = st.sampled_from(
    [
        Starting(),
        Idle(),
        Idle(limited_until=9e9),
        Working(tool="Bash"),
        Working(doing="thinking"),
        Blocked(on="permission", tool="Bash"),
        Exited(code=0),
        Lost(reason="x"),
        Unknown(missing="x"),
    ]
)


# ── how far it got ──


@pytest.mark.parametrize(
    ("marks", "status"),
    [
        ({}, "queued"),
        ({"sent": 1.0}, "sent"),
        ({"sent": 1.0, "delivered": 2.0}, "delivered"),
        ({"sent": 1.0, "delivered": 2.0, "read": 3.0}, "read"),
        ({"read": 3.0}, "read"),  # fetched before it was handed over
    ],
)
def test_g2_the_last_thing_that_happened_is_its_status(
    marks: dict[str, float], status: str
) -> None:
    assert message().model_copy(update=marks).status == status


# ── when ──


@pytest.mark.parametrize(
    ("state", "priority", "says"),
    [
        (Starting(), "normal", "it is starting"),
        (Working(tool="Bash"), "normal", "it is working: at the end of its turn"),
        (Working(), "urgent", "it is working: at its next tool, or at the end of its turn"),
        (Blocked(on="permission"), "normal", "it is blocked: when it goes on"),
        (Blocked(on="permission"), "urgent", "it is blocked: when it goes on"),
        (Blocked(on="permission"), "interrupt", "it is blocked: when it goes on"),
        (Blocked(on="question"), "interrupt", "it is blocked: when it goes on"),
        (Idle(limited_until=9e9), "interrupt", "it waits for its rate limit to be reset"),
        (Unknown(missing="no word"), "normal", "its state is not known: no word"),
        (Exited(code=0), "interrupt", "it is not running"),
        (Lost(reason="x"), "normal", "it is not running"),
    ],
)
def test_g3_it_waits_and_it_is_said_why(state: State, priority: Priority, says: str) -> None:
    assert next_step(state, [message(priority=priority)], FOR_EVER) == Wait(says)


def test_g3_an_idle_one_gets_all_that_wait() -> None:
    queue = [message("1"), message("2", "urgent"), message("3")]
    step = next_step(Idle(), queue, FOR_EVER)
    assert isinstance(step, HandOver)
    assert [one.text for one in step.messages] == ["2", "1", "3"]


@pytest.mark.parametrize(
    ("seconds", "is_typing"),
    [
        (0.0, True),
        (TYPING_SECONDS - 0.01, True),
        (TYPING_SECONDS, False),
        (FOR_EVER, False),
        (-5.0, True),  # a clock that was put back
    ],
)
def test_g3_whoever_types_is_not_interleaved(seconds: float, is_typing: bool) -> None:
    step = next_step(Idle(), [message(priority="interrupt")], seconds)
    assert isinstance(step, Wait if is_typing else HandOver)


@pytest.mark.parametrize("before", [(), ("normal",), ("urgent", "normal")])
def test_g3_an_interrupt_ends_the_turn_whatever_came_before(before: tuple[Priority, ...]) -> None:
    queue = [message(priority=priority) for priority in (*before, "interrupt")]
    assert next_step(Working(), queue, FOR_EVER) == Interrupt()


def test_nothing_is_to_be_done_for_nothing() -> None:
    assert next_step(Idle(), [], FOR_EVER) is None
    assert at_a_tool([], TEXT_BYTES) == ()


@given(states, st.lists(messages, min_size=1, max_size=5), st.floats(0, 10))
def test_g3_handed_over_is_to_the_idle_only_and_turns_are_ended_of_the_working_only(
    state: State, queue: list[Message], idle_input: float
) -> None:
    match next_step(state, queue, idle_input):
        case HandOver(messages=handed):
            assert isinstance(state, Idle) and state.limited_until is None
            assert idle_input >= TYPING_SECONDS
            assert handed and set(handed) <= set(queue)
        case Interrupt():
            assert isinstance(state, Working)
            assert any(one.priority == "interrupt" for one in queue)
        case Wait(why=why):
            assert why
        case step:
            raise AssertionError(step)


# ── order and batches ──


@given(st.lists(messages, max_size=12))
def test_g2_by_priority_and_within_one_as_sent(queue: list[Message]) -> None:
    ordered = in_order(queue)
    assert sorted(one.id for one in ordered) == sorted(one.id for one in queue)
    ranks = [PRIORITIES[::-1].index(one.priority) for one in ordered]
    assert ranks == sorted(ranks)
    for priority in PRIORITIES:
        found = [one for one in ordered if one.priority == priority]
        assert found == [one for one in queue if one.priority == priority]


@given(st.lists(messages, max_size=12), st.integers(1, 2000))
def test_g3_between_tools_go_the_urgent_ones_that_fit(queue: list[Message], room: int) -> None:
    handed = at_a_tool(queue, room)
    urgent = [one for one in in_order(queue) if one.priority != "normal"]
    assert list(handed) == urgent[: len(handed)]
    assert len(joined(handed).encode()) <= room
    if not handed and urgent:
        assert len(urgent[0].text.encode()) + 100 > room


def test_g2_between_tools_goes_nothing_while_something_is_under_way() -> None:
    queue = [message(sent=5.0), message(priority="urgent")]
    assert at_a_tool(queue, TEXT_BYTES) == ()


def batches(queue: list[Message]) -> list[list[str]]:
    """As they are handed over to an agent that is idle again and again."""
    found = []
    while (step := next_step(Idle(), queue, FOR_EVER)) is not None:
        assert isinstance(step, HandOver)
        found.append([one.id for one in step.messages])
        queue = [one for one in queue if one.id not in found[-1]]
    return found


sizes = st.sampled_from([1, 100, TEXT_BYTES // 3, TEXT_BYTES // 2, TEXT_BYTES - 100, TEXT_BYTES])


@given(st.lists(st.tuples(sizes, priorities), max_size=8))
def test_g2_all_go_in_batches_in_order_each_once(given_ones: list[tuple[int, Priority]]) -> None:
    queue = [message("x" * size, priority) for size, priority in given_ones]
    found = batches(queue)
    by_id = {one.id: one for one in queue}
    assert [id for batch in found for id in batch] == [one.id for one in in_order(queue)]
    for batch in found:
        # The largest that may be sent goes alone; several are never more than one may be.
        whole = len(joined(by_id[id] for id in batch).encode())
        assert len(batch) == 1 or whole <= TEXT_BYTES


def test_batches_are_measured_in_bytes() -> None:
    queue = [message("☃" * (TEXT_BYTES // 3 - 100)), message("y" * 300)]
    assert len(batches(queue)) == 2


# ── what the receiver sees ──


@given(texts)
def test_g4_who_wrote_the_id_and_the_text_as_it_is(text: str) -> None:
    one = message(text, sender="amy")
    head, _, rest = envelope(one).partition("\n")
    assert head == f"[message from amy · {one.id}]"
    assert rest == text
    assert one.id in ids_in(envelope(one))


def test_g2_every_id_of_a_batch_is_found_again() -> None:
    queue = [message(f"{number}\n\n") for number in range(5)]
    assert ids_in(joined(queue)) == {one.id for one in queue}


@pytest.mark.parametrize(
    "text",
    [
        "did you see m-0123456789ab?",
        "m-0123456789ab",
        "· m-0123456789ab]",
        "[message from amy · m-0123456789a]",
        "[message from amy · m-0123456789AB]",
        "[message from amy · m-0123456789abc]",
        "[message from \n · m-0123456789ab]",
    ],
)
def test_g2_an_id_that_is_only_mentioned_proves_no_receipt(text: str) -> None:
    assert ids_in(text) == set()


def test_ids_are_never_the_same_and_may_be_asked_for() -> None:
    found = {new_id() for _ in range(1000)}
    assert len(found) == 1000
    for id in found:
        assert MessageRequest(text="x", id=id).id == id
