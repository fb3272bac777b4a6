"""What a director may do with its token (D8): give tasks, look at those, and nothing else."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.hub.agents.tokens import hash_of, new_token
from bullpen.hub.directors import Directors
from bullpen.hub.http import escalations, guard, tasks
from bullpen.hub.permissions import approvals
from bullpen.hub.permissions.approvals import Approvals
from bullpen.hub.permissions.escalations import (
    MOST_CHARACTERS,
    MOST_OPEN,
    Escalation,
    Escalations,
)
from tests.hub.http.agents import agent_socket_of, start_agent, token_of
from tests.hub.http.http import Answer, ask
from tests.hub.http.inside import Inside, made_inside
from tests.hub.http.table import TABLE, request
from tests.hub.pen import made_pen
from tests.listing import read_files

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def inside() -> Iterator[Inside]:
    """A hub with the agent amy, who works in a terminal."""
    with made_pen() as pen, made_inside(pen) as made:
        start_agent(made.socket, pen, "amy")
        yield made


def admit(inside: Inside, name: str) -> str:
    """The token of a director that is let in."""
    token = new_token()
    body = {"token_hash": hash_of(token)}
    assert ask(inside.socket, "PUT", f"/directors/{name}", body=body).status == 200
    return token


def offer(inside: Inside, token: str, **fields: Any) -> Answer:
    """A task that waits: nobody has that role."""
    body = {"prompt": "x", "role": "nobody", **fields}
    return ask(inside.port, "POST", "/tasks", body=body, token=token)


def test_d8_a_director_may_use_its_routes_and_no_other(inside: Inside) -> None:
    token = admit(inside, "nightly")
    allowed = {route: TABLE[route].director for route in TABLE}
    for where in (inside.port, inside.socket):  # a token decides on either transport
        answers = {route: request(where, route, token=token).status for route in TABLE}
        # Amy is no component of this director's.
        assert answers == {**allowed, ("DELETE", "/components/{name}"): 403}
    assert set(allowed.values()) > {200, 403, 404}


def test_d8_without_the_table_a_director_sees_what_agents_see(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = admit(inside, "nightly")
    assert ask(inside.port, "GET", "/agents", token=token).status == 403
    monkeypatch.setattr(guard, "_check_director", lambda *_: None)
    assert ask(inside.port, "GET", "/agents", token=token).status == 200


def test_d8_a_director_cannot_act_as_an_agent(inside: Inside) -> None:
    token = admit(inside, "amy")  # even of that name
    for method, path in (("GET", "/agents/amy/screen"), ("POST", "/agents/amy/hooks")):
        assert ask(inside.port, method, path, body={}, token=token).status == 403
    own_socket = agent_socket_of(inside.home, "amy")
    assert ask(own_socket, "GET", "/tasks", token=token).status == 403
    assert token_of(inside.home, "amy") != token


def test_d8_what_another_gave_is_not_there(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    nightly, github = admit(inside, "nightly"), admit(inside, "github")
    task = offer(inside, nightly, request="1" * 32).json
    by_owner = offer(inside, inside.owner, request="2" * 32).json
    for other in (task, by_owner):
        id = other["task_id"]
        for method, path, body in (
            ("GET", f"/task/{id}", None),
            ("GET", f"/task/{id}/events", None),
            ("GET", f"/history/{id}", None),
            ("POST", f"/task/{id}/cancel", None),
            ("POST", f"/task/{id}/continue", {"prompt": "x"}),
            ("POST", f"/task/{id}/end", None),
        ):
            answer = ask(inside.port, method, path, body=body, token=github)
            assert (answer.status, answer.json["message"]) == (404, f"no task {id}")
        assert offer(inside, github, session_id=other["session_id"]).status == 404
    for key in ("1" * 32, "2" * 32):
        assert offer(inside, github, request=key).status == 409
        assert ask(inside.port, "GET", f"/requests/{key}", token=github).status == 404
    assert ask(inside.port, "GET", "/tasks", token=github).json == {"tasks": []}
    assert ask(inside.port, "GET", "/history", token=github).json["total"] == 0
    # Without the look at who gave it, it is.
    monkeypatch.setattr(tasks, "actor_of", lambda _: guard.OWNER)
    assert ask(inside.port, "GET", f"/task/{task['task_id']}", token=github).status == 200


def test_d8_what_it_gave_it_may_read_and_cancel(inside: Inside) -> None:
    token = admit(inside, "own")
    task = offer(inside, token, request="3" * 32).json
    id = task["task_id"]
    assert offer(inside, token, request="3" * 32).json == task  # asked twice, it is one
    shown = ask(inside.port, "GET", f"/task/{id}", token=token).json
    assert ask(inside.port, "GET", f"/requests/{'3' * 32}", token=token).json == shown
    assert (shown["state"], shown["director"]) == ("queued", "own")
    held = ask(inside.port, "GET", "/tasks", token=token).json["tasks"]
    assert [each["task_id"] for each in held] == [id]
    again = offer(inside, token, session_id=task["session_id"])
    assert (again.status, again.json["session_id"]) == (201, task["session_id"])
    assert ask(inside.port, "POST", f"/task/{id}/cancel", token=token).status == 200
    rows = ask(inside.port, "GET", "/history?state=cancelled", token=token).json["items"]
    assert [each["task_id"] for each in rows] == [id]
    assert ask(inside.port, "GET", f"/task/{id}").status == 401


def test_d8_a_token_counts_until_it_is_revoked_or_there_is_another(inside: Inside) -> None:
    first = admit(inside, "rotating")
    second = admit(inside, "rotating")
    assert ask(inside.port, "GET", "/tasks", token=first).status == 401
    assert ask(inside.port, "GET", "/tasks", token=second).status == 200
    later = Directors(inside.hub.store, inside.hub.home, inside.hub.components)  # the next hub's
    inside.call(later.load())
    assert later.find(second) == "rotating"
    assert ask(inside.socket, "DELETE", "/directors/rotating").status == 200
    assert ask(inside.port, "GET", "/tasks", token=second).status == 401
    inside.call(later.load())
    assert later.find(second) == ""
    assert ask(inside.socket, "DELETE", "/directors/rotating").status == 404


def test_d8_a_director_registers_itself_alone(inside: Inside) -> None:
    token = admit(inside, "nightly")
    component = {
        "name": "nightly",
        "kind": "director",
        "url": "http://127.0.0.1:9150",
        "pid": os.getpid(),
        "version": "1",
    }

    def register(**change: str) -> int:
        body = {**component, **change}
        return ask(inside.port, "POST", "/components", body=body, token=token).status

    assert register(name="web") == 403
    assert register(kind="view") == 403
    assert register() == 201
    other = {**component, "name": "other"}
    assert ask(inside.socket, "POST", "/components", body=other).status == 201
    seen = ask(inside.port, "GET", "/components", token=token).json
    assert [one["name"] for one in seen] == ["nightly"]
    assert ask(inside.port, "DELETE", "/components/other", token=token).status == 403
    assert ask(inside.port, "DELETE", "/components/nightly", token=token).status == 200


# ── what is left to a person ──


def escalate(inside: Inside, token: str, name: str, what: str = "Again?", **about: str) -> Answer:
    body = {"what": what, "about": about}
    return ask(inside.port, "PUT", f"/escalations/{name}", body=body, token=token)


def listed(inside: Inside, director: str) -> list[dict[str, Any]]:
    found = ask(inside.socket, "GET", "/approvals?all=1").json["approvals"]
    return [each for each in found if each["agent"] == director]


def test_d7_a_director_asks_a_person_once_and_is_told_the_answer(inside: Inside) -> None:
    token, name = admit(inside, "robo"), "a" * 32
    hostile = "E \x1b[2J\u202egnp ⟨approve⟩ ok"
    opened = escalate(inside, token, name, "The checks are red", log=hostile)
    assert opened.status == 200
    again = escalate(inside, token, name, "The checks are red", log=hostile)
    assert again.json["id"] == opened.json["id"]
    assert escalate(inside, token, name, "Something else").status == 409
    [approval] = listed(inside, "robo")
    assert (approval["tool"], approval["state"]["reachable"]) == ("Escalate", True)
    assert approval["text"].startswith("The checks are red\n⟨log⟩ E ")
    assert "⟨U+202E⟩" in approval["text"] and "\x1b" not in approval["text"]
    assert approval["text"].count("⟨approve⟩") == 0, "nobody writes such a mark but the hub"
    shown = ask(inside.socket, "GET", "/approvals?text=1").body.decode()
    assert "robo" in shown and "The checks are red" in shown and "terminal" not in shown
    waiting = ask(inside.port, "GET", f"/escalations/{name}", token=token).json
    assert waiting["state"]["status"] == "waiting"
    id = approval["id"]
    assert ask(inside.port, "POST", f"/approvals/{id}", body={}, token=token).status == 403
    answer = {"decision": "allow", "name": "Ann"}
    assert ask(inside.socket, "POST", f"/approvals/{id}", body=answer).status == 200
    state = ask(inside.port, "GET", f"/escalations/{name}", token=token).json["state"]
    assert (state["status"], state["decision"], state["name"]) == ("answered", "allow", "Ann")
    # One that has ended is neither withdrawn nor asked anew.
    assert ask(inside.port, "DELETE", f"/escalations/{name}", token=token).json["state"] == state
    assert escalate(inside, token, name, "The checks are red", log=hostile).json["state"] == state


def test_d7_what_another_director_asked_is_not_there(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other, name = admit(inside, "mine"), admit(inside, "other"), "b" * 32
    assert escalate(inside, mine, name).status == 200
    for method in ("GET", "DELETE"):
        assert ask(inside.port, method, f"/escalations/{name}", token=other).status == 404
    assert escalate(inside, other, name, "Mine?").status == 200  # of its own, of the same name
    assert len(listed(inside, "mine")) == len(listed(inside, "other")) == 1
    assert listed(inside, "mine")[0]["state"]["status"] == "waiting"
    # Without the look at whose token it is, it would be.
    monkeypatch.setattr(escalations, "actor_of", lambda _: guard.Actor(director="mine"))
    assert ask(inside.port, "DELETE", f"/escalations/{name}", token=other).status == 200
    assert listed(inside, "mine")[0]["state"]["why"] == "mine has withdrawn it"


def test_d7_an_agent_of_a_directors_name_is_another(inside: Inside) -> None:
    token, name = admit(inside, "amy"), "c" * 32
    escalate(inside, token, name)
    inside.call(inside.hub.permissions.approvals._look("amy"))  # as at each change of her state
    agent = ask(inside.socket, "GET", "/agents/amy").json
    assert agent["state"]["state"] != "blocked"
    assert listed(inside, "amy")[0]["state"]["status"] == "waiting"


def test_d7_a_director_asks_so_much_at_once_and_no_more(inside: Inside) -> None:
    token = admit(inside, "busy")
    names = [f"{number:032x}" for number in range(MOST_OPEN + 1)]
    assert [escalate(inside, token, name).status for name in names] == [200] * MOST_OPEN + [503]
    assert ask(inside.port, "DELETE", f"/escalations/{names[0]}", token=token).status == 200
    assert escalate(inside, token, names[-1]).status == 200
    for what, about in (
        ("x" * 501, {}),
        ("", {}),
        ("x", {"log": "x" * MOST_CHARACTERS}),
        ("x", {"Log": "x"}),
        ("x", {f"field_{letter}": "" for letter in "abcdefghijklmnopqrstu"}),
    ):
        assert escalate(inside, token, "d" * 32, what, **about).status == 400


def test_d7_questions_of_directors_outlive_the_hub_and_its_memory(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, first, second = admit(inside, "durable"), "e" * 32, "f" * 32
    open_id = escalate(inside, token, first, log="all of it").json["id"]
    over_id = escalate(inside, token, second).json["id"]
    answer = {"decision": "deny", "reason": "no"}
    assert ask(inside.socket, "POST", f"/approvals/{over_id}", body=answer).status == 200
    hub = inside.hub
    monkeypatch.setattr(approvals, "KEPT", 0)  # the next hub forgets at once what has ended
    later = Approvals(hub.store, hub.registry, hub.observer, hub.background)
    inside.call(later.load())
    known = {one.id: one for one in later}
    assert over_id not in known and known[open_id].is_open
    assert inside.call(later.whole(open_id)).input == {"what": "Again?", "log": "all of it"}
    monkeypatch.undo()
    inbox = Escalations(hub.store, later)
    state = inside.call(inbox.get("durable", second)).state
    assert (state.status, state.decision) == ("answered", "deny")
    asked = inside.call(inbox.open("durable", second, Escalation(what="Again?")))
    assert (asked.id, asked.is_open) == (over_id, False)


def test_d8_the_hub_keeps_no_token(inside: Inside) -> None:
    token = admit(inside, "secretive")
    files = read_files(Path(inside.home.root))
    assert files
    assert not [path for path, data in files.items() if token.encode() in data]
    assert ask(inside.socket, "PUT", "/directors/x", body={"token_hash": token}).status == 400
    assert (
        ask(inside.socket, "PUT", "/directors/a%20b", body={"token_hash": "0" * 64}).status == 400
    )
