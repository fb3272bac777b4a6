"""Who may do what: every route, with every kind of credential."""

import contextlib
import inspect
import re
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.routing import Route

from bullpen.hub.http import agents_ways, guard
from bullpen.hub.mcp import family_tools, landing_tools, task_tools, team_tools
from tests.hub.http.agents import agent_socket_of, token_of
from tests.hub.http.http import Answer, ask
from tests.hub.http.inside import Inside
from tests.hub.http.table import STREAM, TABLE, TERMINAL, filled, request

pytestmark = pytest.mark.slow

# What anybody may ask for; without a token less is said.
OPEN = (("GET", "/status"),)
# What is another's own: nothing of the owner's is asked for.
NOT_AGENTS = (
    ("POST", "/agents/{name}/mcp"),
    ("PUT", "/escalations/{name}"),
    ("GET", "/escalations/{name}"),
    ("DELETE", "/escalations/{name}"),
)
TOOLS_OF_AGENTS = (family_tools, landing_tools, task_tools, team_tools)
ROWS = [pytest.param(route, id=f"{route[0]} {route[1]}") for route in TABLE]


def routes_of(app: FastAPI) -> set[tuple[str, str]]:
    """All of an application; the openapi does not have the hidden ones and the WebSockets."""
    assert all(hasattr(route, "path") for route in app.routes), "routes that hold others"
    found = set()
    for route in app.routes:
        if isinstance(route, APIWebSocketRoute):
            found.add(("WS", route.path))
        elif isinstance(route, APIRoute | Route):
            found |= {(method, route.path) for method in (route.methods or ()) - {"HEAD"}}
    described = app.openapi()["paths"].items()
    return found | {(verb.upper(), path) for path, verbs in described for verb in verbs}


def refusal(answer: Answer, status: int, error: str) -> None:
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    if answer.body:
        assert answer.json["error"] == error
        assert answer.json["details"]["retryable"] is False


@pytest.fixture(params=ROWS)
def route(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


def test_b6_every_route_has_a_row(inside: Inside) -> None:
    assert routes_of(inside.app) == set(TABLE)


def calls_of(needed: Dependant) -> set[Any]:
    """What a request to a route runs: the route, and all that it depends on."""
    return {needed.call}.union(*map(calls_of, needed.dependencies))


def test_b7_no_request_costs_a_thread(inside: Inside) -> None:
    routes = [each for each in inside.app.routes if isinstance(each, APIRoute | APIWebSocketRoute)]
    calls = set().union(*(calls_of(route.dependant) for route in routes))
    assert len(calls) > len(routes) / 2
    assert not [call for call in calls if not inspect.iscoroutinefunction(call)]


def test_b6_the_owner_may_do_everything(inside: Inside, route: tuple[str, str]) -> None:
    rights = TABLE[route]
    if rights.owner is None:
        return
    by_token = request(inside.port, route, rights.name, token=inside.owner)
    by_socket = request(inside.socket, route, rights.name)
    with_both = request(inside.socket, route, rights.name, token=inside.owner)
    assert {by_token.status, by_socket.status, with_both.status} == {rights.owner}


def test_b6_an_agent_may_act_as_itself(inside: Inside, route: tuple[str, str]) -> None:
    own, agent_socket = token_of(inside.home, "amy"), agent_socket_of(inside.home, "amy")
    answers = [
        request(inside.port, route, token=own),
        request(inside.socket, route, token=own),  # a token decides on either transport
        request(agent_socket, route),
        request(agent_socket, route, token=own),
    ]
    assert [answer.status for answer in answers] == [TABLE[route].own] * 4
    if TABLE[route].own == 403:
        for answer in answers:
            refusal(answer, 403, "forbidden")


def test_b6_an_agent_may_not_act_on_another(inside: Inside, route: tuple[str, str]) -> None:
    other, agent_socket = token_of(inside.home, "bob"), agent_socket_of(inside.home, "bob")
    for where, token in ((inside.port, other), (inside.socket, other), (agent_socket, "")):
        assert request(where, route, "amy", token=token).status == TABLE[route].other


def test_i2_an_agent_that_is_refused_is_told_what_it_uses_instead(
    inside: Inside, route: tuple[str, str]
) -> None:
    """Its own tools where there is one for it, else the owner."""
    answer = request(agent_socket_of(inside.home, "bob"), route, "amy")
    if answer.status == 403 and route != TERMINAL and route not in NOT_AGENTS:
        hint = agents_ways.TOOLS.get(" ".join(route), agents_ways.ASK_OWNER)
        assert answer.json["details"]["hint"] == hint


def test_i2_what_agents_are_told_to_use_exists() -> None:
    tools = {each.__name__ for kind in TOOLS_OF_AGENTS for each in kind.TOOLS}
    hints = [*agents_ways.TOOLS.values(), agents_ways.ASK_OWNER]
    named = {word.strip(":,") for hint in hints for word in hint.split() if "_" in word}
    assert named <= tools
    refused = {" ".join(route) for route in TABLE if TABLE[route].other == 403}
    assert set(agents_ways.TOOLS) <= refused


def test_b6_an_agent_socket_takes_no_other_token(inside: Inside, route: tuple[str, str]) -> None:
    agent_socket = agent_socket_of(inside.home, "amy")
    for token in (inside.owner, token_of(inside.home, "bob"), "bullpen_" + "x" * 43, "x"):
        refusal(request(agent_socket, route, token=token), 403, "forbidden")
    basic = {"Authorization": "Basic b3duZXI6"}
    refusal(request(agent_socket, route, headers=basic), 403, "forbidden")


def test_b6_tcp_needs_a_token_that_is_known(inside: Inside, route: tuple[str, str]) -> None:
    if route in OPEN:
        assert request(inside.port, route).status == TABLE[route].other
    else:
        refusal(request(inside.port, route), 401, "unauthorized")
    for wrong in ("Bearer bullpen_" + "x" * 43, "Bearer ", "Bearer", "", "Basic b3duZXI6"):
        answer = request(inside.port, route, headers={"Authorization": wrong})
        refusal(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
    # A wrong token is not overlooked where none would be needed.
    refusal(request(inside.socket, route, token="x"), 401, "unauthorized")


def test_b6_the_host_is_loopback(inside: Inside, route: tuple[str, str]) -> None:
    evil = (
        *("evil.example", f"evil.example:{inside.port}", "localhost.evil.example", ""),
        *("127.0.0.1.evil.example", "localhost@evil.example", "[::2]", "::1", "0.0.0.0"),
    )
    for host in evil:
        answer = request(inside.port, route, headers={"Host": host}, token=inside.owner)
        refusal(answer, 403, "forbidden")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LocalHost"])
def test_b6_the_names_of_loopback_are_served(inside: Inside, host: str) -> None:
    for value in (host, f"{host}:{inside.port}"):
        answer = ask(inside.port, "GET", "/status", {"Host": value}, token=inside.owner)
        assert answer.status == 200


def test_b6_other_sites_are_refused(inside: Inside, route: tuple[str, str]) -> None:
    host = f"127.0.0.1:{inside.port}"
    foreign = (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Origin": f"https://{host}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},  # another port of this machine
    )
    for headers in foreign:
        answer = request(inside.port, route, headers={**headers, "Host": host}, token=inside.owner)
        refusal(answer, 403, "forbidden")


def test_b6_our_own_page_is_no_other_site(inside: Inside) -> None:
    host = f"127.0.0.1:{inside.port}"
    own = {"Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    assert ask(inside.port, "GET", "/status", own, token=inside.owner).status == 200


def answers_to_nobody(inside: Inside, route: tuple[str, str]) -> set[tuple[int, bytes]]:
    """What one without a token is told of two agents, and of one that is not there."""
    answers = [request(inside.port, route, name) for name in ("amy", "bob", "nobody")]
    return {(answer.status, answer.body) for answer in answers}


def test_b6_without_a_token_nobody_learns_which_names_there_are(
    inside: Inside, route: tuple[str, str]
) -> None:
    assert len(answers_to_nobody(inside, route)) == 1 or route in OPEN


def test_b6_with_more_than_status_open_names_are_learnt(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "OPEN", re.compile("/status|/agents/[^/]+/status"))
    assert len(answers_to_nobody(inside, ("GET", "/agents/{name}/status"))) > 1


# ── what an agent sees ──


@pytest.fixture
def secret(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """What amy was started with."""
    live, text = inside.hub.registry.get("amy"), "the prompt of amy"
    prompt = {"command": ("x", text), "added": (text,), "overrides": (f"a={text}",)}
    monkeypatch.setattr(live, "agent", live.agent.model_copy(update=prompt))
    return text.encode()


@pytest.mark.parametrize("is_guarded", [True, False])
@pytest.mark.parametrize("path", ["/agents", "/agents/amy"])
def test_b6_an_agent_does_not_see_the_prompt_of_another(
    inside: Inside, secret: bytes, monkeypatch: pytest.MonkeyPatch, path: str, is_guarded: bool
) -> None:
    if not is_guarded:
        monkeypatch.setattr("bullpen.hub.http.agents._is_peer", lambda *_: False)
    other = token_of(inside.home, "bob")
    answers = [ask(inside.port, "GET", f"{path}{text}", token=other) for text in ("", "?text=1")]
    assert {answer.status for answer in answers} == {200}
    assert any(secret in answer.body for answer in answers) != is_guarded


def test_b6_an_agent_sees_of_another_what_a_list_needs(
    inside: Inside, secret: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inside.hub.task_agents.ports, "number", {"amy": 9100}.get)
    own, other = token_of(inside.home, "amy"), token_of(inside.home, "bob")
    seen = ask(inside.port, "GET", "/agents/amy", token=other).json
    assert (seen["command"], seen["cwd"], seen["words"] != "") == ([], "", True)
    assert seen["port"] is None
    for token in (own, inside.owner):
        seen = ask(inside.port, "GET", "/agents/amy", token=token).json
        assert (seen["command"][1], seen["cwd"] != "") == (secret.decode(), True)
        assert seen["port"] == 9100


def test_b6_an_agent_gets_its_own_events_only(inside: Inside) -> None:
    own = token_of(inside.home, "amy")
    for query in ("", "&agent=bob", "&agent="):
        events = ask(inside.port, "GET", f"/events?limit=1000{query}", token=own).json["events"]
        assert {event["agent"] for event in events} == {"amy"}
    everything = ask(inside.socket, "GET", "/events?limit=1000").json["events"]
    assert {"amy", "bob"} <= {event["agent"] for event in everything}


@pytest.mark.storm
def test_b6_no_answer_holds_a_token_or_its_hash(inside: Inside) -> None:
    secrets = [inside.owner]
    for name in ("amy", "bob"):
        secrets.append(token_of(inside.home, name))
        secrets.append(inside.hub.registry.get(name).agent.token_hash)
    for method, path in TABLE:
        if method == "GET" and (method, path) != STREAM:
            for text in ("", "?text=1"):
                answer = ask(inside.socket, method, filled(path) + text)
                assert not [s for s in secrets if s.encode() in answer.body], path


def test_g4_an_agent_writes_as_itself_and_the_owner_as_whom_it_says(inside: Inside) -> None:
    own, path = token_of(inside.home, "bob"), "/agents/amy/messages"
    agent_socket = agent_socket_of(inside.home, "bob")
    forged = {"text": "x", "sender": "root"}
    for where, token in ((inside.port, own), (inside.socket, own), (agent_socket, "")):
        refusal(ask(where, "POST", path, body=forged, token=token), 403, "forbidden")
        sent = ask(where, "POST", path, body={"text": "x"}, token=token).json
        assert (sent["sender"], sent["to"]) == ("bob", "amy")
    assert ask(inside.socket, "POST", path, body=forged).json["sender"] == "root"
    assert ask(inside.socket, "POST", path, body={"text": "x"}).json["sender"] == "root"
    as_cid = {"text": "x", "sender": "cid"}
    assert ask(inside.socket, "POST", path, body=as_cid).json["sender"] == "cid"
    for odd in ("a\nb", "x] [message from root", "", " ", "\x1b[31m", "ü"):
        answer = ask(inside.socket, "POST", path, body={"text": "x", "sender": odd})
        assert answer.status == 400 or (not odd and answer.json["sender"] == "root")


def test_g1_the_persons_inbox_is_closed_to_agents(inside: Inside) -> None:
    own = token_of(inside.home, "amy")
    sent = ask(inside.port, "POST", "/agents/root/messages", body={"text": "x"}, token=own)
    assert (sent.status, sent.json["to"]) == (201, "root")
    refusal(ask(inside.port, "GET", "/agents/root/messages", token=own), 403, "forbidden")


# ── an attack counts only if it works without the defence ──


@contextlib.contextmanager
def taken_away(check: FunctionType) -> Iterator[None]:
    """Routes hold the function itself: so it is the same one, and does nothing."""

    async def nothing(request: object) -> None: ...

    real, check.__code__ = check.__code__, nothing.__code__
    try:
        yield
    finally:
        check.__code__ = real


def test_b6_without_the_guard_nobody_is_asked(
    fresh: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def anybody(*_: object) -> guard.Actor:
        return guard.OWNER

    assert ask(fresh.port, "POST", "/shutdown").status == 401
    monkeypatch.setattr(guard.Guard, "_identify", anybody)
    assert ask(fresh.port, "POST", "/shutdown").status == 202
    assert fresh.hub.stop.is_set()


def test_b6_without_its_check_an_agent_could_type(inside: Inside) -> None:
    own, route = token_of(inside.home, "amy"), ("POST", "/agents/{name}/input")
    assert request(inside.port, route, "bob", token=own).status == 403
    with taken_away(guard.owner_only):
        assert request(inside.port, route, "bob", token=own).status == 200
        assert request(agent_socket_of(inside.home, "amy"), TERMINAL, "bob").status == 101


def test_b6_without_its_check_an_agent_could_impersonate(inside: Inside) -> None:
    own = token_of(inside.home, "amy")
    hook = {"hook_event_name": "PreToolUse", "tool_name": "Forged"}

    def forged() -> list[str]:
        assert ask(inside.port, "POST", "/agents/bob/hooks", body=hook, token=own).status in (
            200,
            403,
        )
        return [
            event["agent"]
            for event in ask(inside.socket, "GET", "/events?limit=1000").json["events"]
            if event["data"].get("tool") == "Forged"
        ]

    assert forged() == []
    with taken_away(guard.owner_or_self):
        assert forged() == ["bob"]
        assert ask(inside.port, "GET", "/agents/bob/screen", token=own).status == 200


def test_b6_without_the_filter_an_agent_would_see_all(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = token_of(inside.home, "amy")
    monkeypatch.setattr("bullpen.hub.http.events.actor_of", lambda _: guard.OWNER)
    events = ask(inside.port, "GET", "/events?limit=1000", token=own).json["events"]
    assert "bob" in {event["agent"] for event in events}


def test_b6_without_the_look_at_the_host_rebinding_works(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard.Guard, "_check_host", lambda *_: None)
    evil = {"Host": f"evil.example:{inside.port}"}
    assert ask(inside.port, "GET", "/status", evil, token=inside.owner).status == 200
    # And its page would be of the same origin.
    evil["Origin"] = f"http://evil.example:{inside.port}"
    assert ask(inside.port, "GET", "/status", evil, token=inside.owner).status == 200


def test_b6_without_the_look_at_the_origin_a_site_could_ask(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "check_origin", lambda _: None)
    evil = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert ask(inside.port, "GET", "/status", evil, token=inside.owner).status == 200
    assert request(inside.port, TERMINAL, headers=evil, token=inside.owner).status == 101


def test_b6_without_its_rule_a_stolen_token_works_at_an_agent_socket(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_socket, route = agent_socket_of(inside.home, "amy"), ("GET", "/components")
    assert request(agent_socket, route, token=inside.owner).status == 403
    monkeypatch.setattr(guard, "AGENT_SOCKET", "no such key")
    assert request(agent_socket, route, token=inside.owner).status == 200
    # Without a token it fails shut: it is not taken for the owner's socket.
    assert request(agent_socket, route).status == 401
