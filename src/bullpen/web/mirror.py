"""What of the hub's API the page may use: this table, and nothing else.

`/api/<path>` is the hub's `<path>`, its query, body and answer unchanged. Each row names the call
of `client` that is run; a request whose path has no row is a 404. Called by `web/routes`.
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from bullpen.client import (
    agents,
    approvals,
    changes,
    components,
    events,
    fleet,
    landings,
    messages,
    pods,
    status,
    task_agents,
    tasks,
    transcripts,
    tree,
    usage,
)
from bullpen.client.call import Request
from bullpen.errors import BullpenError

MOST_WAIT_SECONDS = 60.0
# The call's own are sent where the page says none: what is sent twice is then done once.
ONCE = ("answer", "request", "id")
HISTORY = ("page", "limit", "state", "session", "text")


@dataclass(frozen=True)
class Row:
    """One route. `call` gets what stands in the path; `query` are the parameters that are passed
    on, `waits` the one that says how long the hub takes. `says_who`: the display name goes along.
    """

    method: str
    path: str
    call: Callable[..., Request]
    query: tuple[str, ...] = ()
    waits: str = ""
    has_body: bool = False
    says_who: bool = False

    def request(
        self,
        path_values: Mapping[str, str],
        query: Mapping[str, str],
        body: Mapping[str, Any],
        who: str,
    ) -> Request:
        """The request to the hub. Pure."""
        call = copy(self.call(**path_values))
        call.query = {name: query[name] for name in (*self.query, self.waits) if name in query}
        if self.waits in query:
            call.wait_seconds = _seconds(self.waits, query[self.waits])
        if self.has_body:
            once = {name: value for name, value in (call.body or {}).items() if name in ONCE}
            call.body = {**once, **body, **({"name": who} if self.says_who and who else {})}
        return call


def _get(path: str, call: Callable[..., Request], *query: str, waits: str = "") -> Row:
    return Row("GET", path, call, query, waits)


def _post(path: str, call: Callable[..., Request], *query: str, says_who: bool = False) -> Row:
    return Row("POST", path, call, query, has_body=True, says_who=says_who)


def _delete(path: str, call: Callable[..., Request], *query: str) -> Row:
    return Row("DELETE", path, call, query)


AGENT = "/agents/{name}"
TASK, AGENTS_TASK = "/task/{id}", "/agents/{agent}/task/{id}"

TABLE = (
    _get("/agents", agents.list_agents, "pod"),
    _get(AGENT, agents.get_agent),
    _get(f"{AGENT}/explain", agents.explain),
    _get(f"{AGENT}/screen", agents.get_screen),
    _get(f"{AGENT}/diff", agents.get_diff),
    _get(f"{AGENT}/patch", changes.get_patch),
    _get(f"{AGENT}/transcript", transcripts.get_transcript, "task", "offset"),
    _get(f"{AGENT}/messages", messages.list_messages, "limit"),
    _get(f"{AGENT}/queue", tree.list_queue, "after", "limit", waits="seconds"),
    _get(f"{AGENT}/status", task_agents.get_agent_status),
    _get(f"{AGENT}/config", task_agents.get_agent_config),
    _get("/tree", tree.get_tree),
    _get("/pods", pods.list_pods),
    _get("/approvals", approvals.list_approvals, "all"),
    _get("/approvals/{id}", approvals.get_approval),
    _get("/landings", landings.list_landings, "all"),
    _get("/landings/{id}", landings.get_landing, waits="wait"),
    _get("/landings/{id}/output", landings.get_landing_output),
    _get("/usage", usage.get_usage, "by", "since_seconds"),
    _get("/usage/series", usage.get_usage_series, "by", "step", "since_seconds"),
    _get("/events", events.list_events, "after", "before", "limit", "agent"),
    _get("/timeline", events.get_timeline, "since_seconds"),
    _get("/components", components.list_components),
    _get("/fleet", fleet.get_fleet),
    _get("/projects", tasks.list_project_files),
    _get("/tasks", tasks.list_tasks),
    _get("/agents/{agent}/tasks", tasks.list_tasks),
    _get(AGENTS_TASK, tasks.get_task),
    _get(f"{TASK}/debug", tasks.debug_task),
    _get(f"{AGENTS_TASK}/debug", tasks.debug_task),
    _get("/history", tasks.list_history, *HISTORY),
    _get("/agents/{agent}/history", tasks.list_history, *HISTORY),
    _get("/history/{id}", tasks.get_history),
    _get("/agents/{agent}/history/{id}", tasks.get_history),
    # ── what a person decides or sends ──
    _post("/approvals/{id}", lambda id: approvals.answer_approval(id, "deny"), says_who=True),
    _post("/approvals/{id}/answers", lambda id: approvals.answer_agent(id, []), says_who=True),
    _post(f"{AGENT}/messages", lambda name: messages.send_message(name, "")),
    _post("/agents/{agent}/task", lambda agent: tasks.give_task(agent, "")),
    _post("/tasks", lambda: tasks.offer_task("")),
    _post(f"{TASK}/continue", lambda id: tasks.continue_task(id, "")),
    _post(f"{TASK}/end", tasks.end_task),
    _post(f"{TASK}/cancel", tasks.cancel_task),
    _post("/landings", lambda: landings.land([])),
    _delete("/landings/{name}", landings.cancel_landing),
    # ── agents' lives ──
    _delete(AGENT, agents.stop_agent, "grace"),
    _post(f"{AGENT}/restart", agents.restart_agent, "grace"),
    _post(f"{AGENT}/resume", agents.resume_agent),
    _post(f"{AGENT}/remove", agents.remove_agent, "grace", "keep_branch", "discard"),
    _delete("/tree/{name}", tree.stop_tree, "grace"),
    _delete("/pods/{name}", pods.stop_pod, "grace"),
)
HUB_STATUS = status.get_status  # at `/api/hub`: `/api/status` is the view's own


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MOST_WAIT_SECONDS:
        raise BullpenError(
            f"{name} has to be 0 to {MOST_WAIT_SECONDS:g} seconds, not {text[:40]!r}"
        )
    return seconds
