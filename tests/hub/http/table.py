"""The routes of the API, and who may use them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hub.http.http import HANDSHAKE, Answer, ask

STREAM = ("GET", "/events/stream")
TERMINAL = ("WS", "/agents/{name}/terminal")
NO_TASK = "t-000000000000"


@dataclass(frozen=True)
class Rights:
    """The status that each gets who is let in. The owner's may be another than 200 where
    what is asked for cannot be done: the request has got through all the same."""

    owner: int | None  # None: tested elsewhere, it would end the hub
    own: int  # the agent, about itself
    other: int  # an agent, about another
    director: int = 403
    body: Any = None
    name: str = "amy"  # that the owner asks about


def everybody(status: int = 200, **rest: Any) -> Rights:
    return Rights(status, status, status, **rest)


def owner_only(status: int | None = 200, **rest: Any) -> Rights:
    return Rights(status, 403, 403, **rest)


def itself(status: int = 200, **rest: Any) -> Rights:
    return Rights(status, status, 403, **rest)


TABLE = {
    ("GET", "/openapi.json"): everybody(),
    ("GET", "/docs"): everybody(),
    ("GET", "/status"): everybody(director=200),
    ("POST", "/shutdown"): owner_only(None),
    ("GET", "/agents"): everybody(),
    ("POST", "/agents"): owner_only(400, body={}),
    ("GET", "/agents/{name}"): everybody(),
    ("DELETE", "/agents/{name}"): owner_only(404, name="nobody"),
    ("POST", "/agents/{name}/restart"): owner_only(404, name="nobody"),
    ("POST", "/agents/{name}/remove"): owner_only(404, name="nobody"),
    ("GET", "/agents/{name}/removal"): owner_only(404, name="nobody"),
    ("POST", "/agents/{name}/resume"): owner_only(404, name="nobody"),
    ("POST", "/agents/{name}/input"): owner_only(body={"text": "x"}),
    ("GET", "/agents/{name}/screen"): itself(),
    ("GET", "/agents/{name}/explain"): itself(),
    ("GET", "/agents/{name}/diff"): itself(409),
    ("GET", "/agents/{name}/transcript"): itself(404),
    # Everybody writes as itself.
    ("POST", "/agents/{name}/messages"): everybody(201, body={"text": "x"}),
    ("GET", "/agents/{name}/messages"): itself(),
    ("POST", "/agents/{name}/hooks"): itself(body={"hook_event_name": "Stop"}),
    # It acts as the agent. Who comes in finds no tools here: `tests/hub/mcp` has them.
    ("POST", "/agents/{name}/mcp"): Rights(403, 503, 403, body={}),
    TERMINAL: owner_only(101),
    ("GET", "/tree"): everybody(),
    ("DELETE", "/tree/{name}"): owner_only(404, name="nobody"),
    ("GET", "/agents/{name}/queue"): itself(),
    ("GET", "/wait"): owner_only(400),
    ("GET", "/pods"): owner_only(),
    ("POST", "/pods"): owner_only(400, body={}),
    ("DELETE", "/pods/{name}"): owner_only(404, name="nobody"),
    ("GET", "/events"): everybody(),
    STREAM: everybody(),
    # Acts as a director: a name that is none is as far as its token gets here.
    ("PUT", "/escalations/{name}"): Rights(403, 403, 403, director=400, body={}),
    ("GET", "/escalations/{name}"): Rights(403, 403, 403, director=400),
    ("DELETE", "/escalations/{name}"): Rights(403, 403, 403, director=400),
    ("GET", "/components"): owner_only(director=200),
    ("POST", "/components"): owner_only(400, body={}, director=400),
    ("DELETE", "/components/{name}"): owner_only(404, name="nobody"),
    ("GET", "/directors"): owner_only(),
    ("PUT", "/directors/{name}"): owner_only(400, body={}),
    ("DELETE", "/directors/{name}"): owner_only(404, name="nobody"),
    ("GET", "/landings"): owner_only(),
    ("POST", "/landings"): owner_only(404, body={"names": ["nobody"]}),
    ("GET", "/landings/{id}"): owner_only(404),
    ("GET", "/landings/{id}/output"): owner_only(404),
    ("DELETE", "/landings/{name}"): owner_only(404, name="nobody"),
    ("GET", "/agents/{name}/patch"): owner_only(409),
    ("GET", "/conflicts"): owner_only(),
    ("GET", "/worktrees"): owner_only(400),
    ("POST", "/gc"): owner_only(body={"dry_run": True}),
    ("GET", "/fleet"): everybody(),
    ("POST", "/agents/{name}/permission"): itself(400, body={}),
    ("GET", "/approvals"): owner_only(),
    ("GET", "/approvals/{id}"): owner_only(404),
    ("POST", "/approvals/{id}"): owner_only(404, body={"decision": "deny"}),
    ("POST", "/approvals/{id}/answers"): owner_only(404, body={"answers": ["1"]}),
    ("GET", "/timeline"): owner_only(),
    ("GET", "/usage"): owner_only(),
    ("GET", "/usage/series"): owner_only(),
    ("GET", "/metrics"): owner_only(),
    # Whose figures they are, the token says.
    ("POST", "/v1/metrics"): Rights(403, 200, 200, body={}),
    ("POST", "/v1/logs"): Rights(403, 200, 200, body={}),
    ("POST", "/v1/traces"): Rights(403, 200, 200, body={}),
    # Amy works in a terminal; `tests/hub/tasks` asks the same of agents that take tasks.
    ("GET", "/agents/{name}/status"): everybody(409),
    ("POST", "/agents/{name}/shutdown"): owner_only(409),
    ("GET", "/agents/{name}/config"): itself(409),
    ("GET", "/agents/{name}/openapi.json"): itself(200),
    ("PUT", "/agents/{name}/config"): owner_only(409, body={}),
    ("POST", "/agents/{name}/task"): owner_only(409, body={"prompt": "x"}, director=409),
    ("GET", "/agents/{name}/tasks"): itself(),
    ("GET", "/agents/{name}/history"): itself(),
    ("GET", "/agents/{name}/history/{id}"): itself(404),
    ("GET", "/agents/{name}/task/{id}"): itself(404),
    ("GET", "/agents/{name}/task/{id}/events"): itself(404),
    ("GET", "/agents/{name}/task/{id}/debug"): itself(404),
    ("POST", "/agents/{name}/task/{id}/cancel"): owner_only(404),
    ("POST", "/agents/{name}/task/{id}/continue"): owner_only(404, body={"prompt": "x"}),
    ("POST", "/agents/{name}/task/{id}/end"): owner_only(404),
    ("GET", "/tasks"): owner_only(director=200),
    ("POST", "/tasks"): owner_only(400, body={}, director=400),
    ("GET", "/history"): owner_only(director=200),
    ("GET", "/history/{id}"): owner_only(404, director=404),
    ("GET", "/task/{id}"): owner_only(404, director=404),
    ("GET", "/task/{id}/events"): owner_only(404, director=404),
    ("GET", "/task/{id}/debug"): owner_only(404),
    ("POST", "/task/{id}/cancel"): owner_only(404, director=404),
    ("POST", "/task/{id}/continue"): owner_only(404, body={"prompt": "x"}, director=404),
    ("POST", "/task/{id}/end"): owner_only(404, director=404),
    ("GET", "/requests/{request}"): owner_only(404, director=404),
    ("GET", "/projects"): owner_only(),
}


def filled(path: str, name: str = "amy") -> str:
    """The path of a route with a name and an id of the right form."""
    id = 1 if path.startswith("/approvals") else NO_TASK
    return path.format(name=name, id=id, request="0" * 32)


def request(
    where: int | Path,
    route: tuple[str, str],
    name: str = "amy",
    headers: dict[str, str] | None = None,
    token: str = "",
) -> Answer:
    """A request to a route of the table."""
    method, path = route
    headers = headers or {}
    if method == "WS":
        method, headers = "GET", {**HANDSHAKE, **headers}
    return ask(
        where,
        method,
        filled(path, name),
        headers,
        TABLE[route].body,
        token=token,
        head_only=route in (STREAM, TERMINAL) and "Host" not in headers,
    )
