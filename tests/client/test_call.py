"""Calls as values, and how answers are read. No hub."""

import pytest

from bullpen.client import agents, events, tasks
from bullpen.client.call import Fields, read_fields
from bullpen.client.failures import refusal
from bullpen.client.streams import LINE_BYTES, Lines, ServerSent, ServerSentEvents, parse_event
from bullpen.errors import BullpenError, Kind
from bullpen.model.event import Event


def test_parts_of_a_path_and_of_a_query_are_quoted() -> None:
    assert agents.get_agent("a/../b c").target == "/agents/a%2F..%2Fb%20c"
    assert agents.list_agents(pod="*", own_pod="a&b").target == "/agents?pod=%2A&own_pod=a%26b"


def test_what_is_not_said_is_not_sent() -> None:
    assert agents.list_agents().target == "/agents"
    body = tasks.give_task("amy", "hi", model=None, request="f" * 32).body
    assert body == {"prompt": "hi", "request": "f" * 32}


def test_a_call_is_a_value() -> None:
    assert agents.get_agent("amy") == agents.get_agent("amy")
    assert agents.get_agent("amy") != agents.get_agent("bob")


def test_what_may_be_sent_twice_says_so() -> None:
    assert agents.get_agent("amy").may_repeat
    assert agents.stop_agent("amy").may_repeat
    assert not agents.restart_agent("amy").may_repeat
    assert not agents.type_into("amy", "x").may_repeat


def test_a_call_that_waits_is_waited_for() -> None:
    patient = tasks.continue_task("t-1", "on", wait_seconds=3000)
    assert patient.seconds > 3000
    assert patient.query == {"wait_seconds": 3000}


def test_the_same_call_as_text() -> None:
    call = agents.list_agents("team").as_text(colour=1)
    assert call.target == "/agents?pod=team&text=1&colour=1"
    assert call.read("für Menschen".encode()) == "für Menschen"


def test_an_answer_that_is_passed_on_is_the_hubs_own() -> None:
    call = agents.get_agent("amy").as_json()
    assert call.read(b'{"name": "amy", "later": [1]}') == {"name": "amy", "later": [1]}
    assert call.target == agents.get_agent("amy").target


def test_unchecked_answers_have_the_fields_of_the_model() -> None:
    agent = agents.get_agent("amy").unchecked().read(b'{"name": "amy", "state": {"state": "idle"}}')
    assert (agent.name, agent.state.state) == ("amy", "idle")
    assert agent == {"name": "amy", "state": {"state": "idle"}}
    with pytest.raises(AttributeError):
        _ = agent.parent


def test_keys_of_a_field_that_is_a_dict_do_not_hide_its_methods() -> None:
    labels = read_fields(b'{"items": "x"}')
    assert isinstance(labels, Fields)
    assert list(labels.items()) == [("items", "x")]


def test_an_answer_that_does_not_fit_is_an_error_of_ours() -> None:
    with pytest.raises(BullpenError, match="does not fit agent_shown") as caught:
        agents.type_into("amy", "x").read(b"{}")
    assert caught.value.kind is Kind.COMMAND_FAILED


# ── streams ──


def test_lines_are_read_however_they_are_cut() -> None:
    lines = Lines(int)
    assert [value for piece in (b"1", b"2\n3", b"\n\n4\n5") for value in lines.feed(piece)] == [
        12,
        3,
        4,
    ]


def test_a_line_without_an_end_is_an_error() -> None:
    with pytest.raises(BullpenError, match="without an end"):
        list(Lines(int).feed(b"1" * (LINE_BYTES + 1)))


@pytest.mark.parametrize(
    ("block", "event"),
    [
        (
            b'id: 2.15.0\nevent: text\ndata: {"text": "hi"}',
            ServerSent("text", {"text": "hi"}, "2.15.0"),
        ),
        (b'event: state\ndata: {"state": "idle"}', ServerSent("state", {"state": "idle"})),
        (b": still here", ServerSent()),
        (b"id: 7\nretry: 1000", ServerSent(id="7")),
        (b"event: text\ndata: {", ServerSent()),
        (b"event: text\ndata: 5", ServerSent("text")),
        (b"\xff\xfe", ServerSent()),
    ],
)
def test_events_are_parsed(block: bytes, event: ServerSent) -> None:
    assert parse_event(block) == event


SENT = (
    b"id: 7\nretry: 1000\n\n"
    b'id: 8\nevent: agent.started\ndata: {"id": 8, "time": 1.5, "kind": "agent.started",'
    b' "agent": "amy", "data": {}, "later": 1}\n\n'
    b"id: 9\nevent: reset\ndata: {}\n\n"
)
STARTED = Event(8, 1.5, "agent.started", "amy", {})
RESET = Event(9, 0.0, "reset", "", {})


def test_events_without_signs_of_life_unless_they_are_wanted() -> None:
    assert list(events.stream_events().reader().feed(SENT)) == [STARTED, RESET]
    beats = events.stream_events(heartbeats=True).reader()
    assert list(beats.feed(SENT)) == [Event(7, 0.0, "", "", {}), STARTED, RESET]


def test_a_stream_is_read_however_it_is_cut() -> None:
    reader: ServerSentEvents[str] = ServerSentEvents(lambda sent: sent.name or None)
    pieces = [SENT[n : n + 1] for n in range(len(SENT))]
    names = [name for piece in pieces for name in reader.feed(piece)]
    assert names == ["agent.started", "reset"]


def test_q4_a_hub_of_before_that_lacks_a_method_is_to_be_restarted() -> None:
    """As when `approve` asks one for the whole of an approval."""
    body = b'{"error": "method_not_allowed", "message": "Method Not Allowed", "details": {}}'
    error = refusal(405, body)
    assert (error.kind, error.hint) == (Kind.UNSUPPORTED, "bullpen hub restart (agents go on)")
    assert "another version" in error.message
