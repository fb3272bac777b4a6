"""The stream of events, and how everything that is open ends when the hub leaves."""

import contextlib
import http.client
import json
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as connect_websocket

from bullpen.home.paths import HUB
from bullpen.hub.store import feed
from tests.hub.http.agents import agent_socket_of, token_of
from tests.hub.http.http import Client, Where, ask, connect
from tests.hub.http.inside import Inside
from tests.hub.pen import Pen, change_hub
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

Block = dict[str, str]


@contextlib.contextmanager
def stream(where: Where, query: str = "", **headers: str) -> Iterator[http.client.HTTPResponse]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with contextlib.closing(Client(where)) as client:
        answer = client.begin("GET", f"/events/stream{query}", named)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        yield answer


def next_block(answer: http.client.HTTPResponse) -> Block:
    """The fields of the next block; a comment has the name ''."""
    found: Block = {}
    while line := answer.readline().decode().rstrip("\n"):
        name, _, value = line.partition(": ")
        found[name] = value
    return found


def blocks(answer: http.client.HTTPResponse, last: int) -> list[Block]:
    """Events up to that id."""
    found: list[Block] = []
    while not found or int(found[-1]["id"]) < last:
        block = next_block(answer)
        if "data" in block:
            found.append(block)
    return found


def last_id(inside: Inside) -> int:
    return int(ask(inside.socket, "GET", "/events?limit=1000").json["last"])


def hook(inside: Inside, name: str) -> None:
    assert ask(inside.socket, "POST", f"/agents/{name}/hooks", body={}).status == 200


def test_b3_a_stream_says_the_same_as_the_pages(inside: Inside) -> None:
    pages = ask(inside.socket, "GET", "/events?limit=1000").json["events"]
    with stream(inside.socket, "?after=0") as answer:
        found = blocks(answer, pages[-1]["id"])
    assert [json.loads(block["data"]) for block in found] == pages
    assert [block["event"] for block in found] == [event["kind"] for event in pages]


def test_b3_a_stream_goes_on_after_an_id(inside: Inside) -> None:
    hook(inside, "amy")
    last = last_id(inside)
    for query, headers in (
        (f"?after={last - 1}", {}),
        ("", {"Last_Event_ID": str(last - 1)}),
        ("?after=0", {"Last_Event_ID": str(last - 1)}),  # a browser keeps the address it had
    ):
        with stream(inside.socket, query, **headers) as answer:
            assert [int(block["id"]) for block in blocks(answer, last)] == [last]
    with stream(inside.socket) as answer:  # from now on
        assert next_block(answer)["id"] == str(last)
        hook(inside, "amy")
        assert blocks(answer, last + 1)[0]["id"] == str(last + 1)


def test_b3_an_id_that_was_never_given_is_said_to_be_none(inside: Inside) -> None:
    with stream(inside.socket, "?after=4611686018427387904") as answer:
        assert next_block(answer)["event"] == "reset"
    for wrong in ("-1", "x", "1.5", str(1 << 63), ""):
        answer = ask(inside.socket, "GET", "/events/stream", {"Last-Event-ID": wrong})
        assert answer.status == 400
        assert answer.json["error"] == "validation_error"


def test_b3_a_silent_stream_has_a_heartbeat(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "HEARTBEAT_SECONDS", 0.05)
    with stream(inside.socket) as answer:
        first = next_block(answer)
        for _ in range(3):
            beat = next_block(answer)
            assert "data" not in beat
            assert beat["id"] == first["id"]


@pytest.mark.parametrize("query", ["?after=0", "?after=0&agent=bob"])
@pytest.mark.parametrize("way", ["token", "agent_socket"])
def test_b6_a_stream_for_an_agent_has_its_own_events_only(
    inside: Inside, way: str, query: str
) -> None:
    token = {"Authorization": f"Bearer {token_of(inside.home, 'amy')}"} if way == "token" else {}
    where = inside.port if way == "token" else agent_socket_of(inside.home, "amy")
    with stream(where, query, **token) as answer:
        for _ in range(20):  # old and new ones
            hook(inside, "bob")
            hook(inside, "amy")
        found = blocks(answer, last_id(inside))
    assert {json.loads(block["data"])["agent"] for block in found} == {"amy"}
    assert len(found) > 20


def test_b3_the_owner_may_ask_for_one_agents_events(inside: Inside) -> None:
    hook(inside, "bob")
    hook(inside, "amy")
    with stream(inside.socket, "?after=0&agent=amy") as answer:
        found = blocks(answer, last_id(inside))
    assert {json.loads(block["data"])["agent"] for block in found} == {"amy"}


def test_b1_open_streams_do_not_hold_a_shutdown_up(pen: Pen) -> None:
    pen.kill_hub()
    change_hub(pen, "from bullpen.component import http_server; http_server.LEAVE_SECONDS = 600")
    where, agent_socket = pen.home.socket(HUB), agent_socket_of(pen.home, "amy")
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(stream(place)) for place in (where, agent_socket, where)]
        for each in streams:
            next_block(each)
        target = "ws://localhost/agents/amy/terminal"
        terminal = stack.enter_context(
            connect_websocket(target, sock=connect(where), open_timeout=60)
        )
        idle = stack.enter_context(contextlib.closing(Client(where)))
        idle.begin("GET", "/status", {}).read()
        silent = stack.enter_context(connect(where))
        assert ask(where, "POST", "/shutdown").status == 202
        wait_until(lambda: not pen.hub_pids())
        for each in streams:
            each.read()  # to a proper end, not cut off
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                terminal.recv(60)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012  # come again
        assert silent.recv(1) == b""
    assert pen.logged("left")


@pytest.mark.storm
def test_b1_clients_that_do_not_read_do_not_hold_a_shutdown_up(pen: Pen) -> None:
    """A stream and a terminal whose buffers are full, and a request that never ends."""
    where = pen.home.socket(HUB)
    with contextlib.ExitStack() as stack:
        deaf = stack.enter_context(connect(where))
        deaf.sendall(b"GET /events/stream?after=0 HTTP/1.1\r\nHost: x\r\n\r\n")
        half = stack.enter_context(connect(where))
        half.sendall(b"POST /agents HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        body = {"hook_event_name": "UserPromptSubmit", "prompt": "x" * 200}
        for _ in range(700):
            assert ask(where, "POST", "/agents/amy/hooks", body=body).status == 200
        assert ask(where, "POST", "/shutdown").status == 202
        wait_until(lambda: not pen.hub_pids())
