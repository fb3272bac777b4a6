"""The client's side of tasks: giving them, following them, finding them; agents that take them.

Following outlives the hub: a stream that breaks off goes on where it was, with a hub that is
started again if need be. Prints nothing and asks nobody.
"""

import json
import os
import re
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bullpen.client import reach, wire
from bullpen.client.hub import HubClient
from bullpen.errors import BullpenError, Kind
from bullpen.model.task_shown import Shown
from bullpen.paths import HUB

SILENCE_SECONDS = 60.0  # the stream has a heartbeat
PATIENCE_SECONDS = 180.0  # with a hub that cannot be reached
AGAIN_SECONDS = 0.2
BREAKS = 1000  # of one stream
READY_SECONDS = 120.0
LINE_BYTES = 64 << 20
PAGE, PAGES = 100, 100  # that a shortened id is looked for in
WHOLE = re.compile(r"t-[0-9a-f]{12}")
PREFIX = re.compile(r"(?:t-)?([0-9a-f]{1,12})")


@dataclass(frozen=True)
class Event:
    """One event of a task's stream; `run` is the run that said it, 0 if none did."""

    name: str
    data: dict[str, Any]
    mark: str = ""

    @property
    def run(self) -> int:
        number = self.mark.partition(".")[0]
        return int(number) if number.isdecimal() else 0


def base(agent: str = "") -> tuple[str, ...]:
    """The beginning of a path: everybody's tasks, or one agent's. An agent sees its own."""
    name = agent or os.environ.get("BULLPEN_ACTOR", "")
    return ("agents", name) if name else ()


# ── giving ──


def give(hub: HubClient, agent: str, body: dict[str, Any]) -> dict[str, Any]:
    """Give it to that agent, once it is ready; acknowledged when this returns."""
    asked = {**body, "request": uuid.uuid4().hex}
    deadline = time.monotonic() + READY_SECONDS
    while True:
        wait_ready(hub, agent, deadline)
        try:
            taken: dict[str, Any] = hub.post("agents", agent, "task", body=asked, again=True)
            return taken
        except BullpenError as error:
            # A hub that was started again in between looks at its agents first.
            if error.kind is not Kind.UNAVAILABLE or time.monotonic() > deadline:
                raise
            if phase(hub, agent)["state"] != "starting":
                raise


def offer(hub: HubClient, body: dict[str, Any]) -> dict[str, Any]:
    """Give it to whoever is free."""
    asked = {**body, "request": uuid.uuid4().hex}
    taken: dict[str, Any] = hub.post("tasks", body=asked, again=True)
    return taken


def get(hub: HubClient, id: str) -> Shown:
    """One task, as it is now."""
    return Shown.model_validate(hub.get(*base(), "task", id))


# ── agents ──


def start_agent(hub: HubClient, caller: dict[str, Any], name: str, role: str | None) -> Any:
    """Start one that takes tasks, and wait until it does; says why if it does not."""
    asked = {**caller, "kind": "headless", "run": uuid.uuid4().hex, "name": name, "role": role}
    hub.post("agents", body=asked, again=True)
    found = wait_ready(hub, name, time.monotonic() + READY_SECONDS)
    if found["state"] == "error":
        raise BullpenError(
            f"{name} cannot work: {why(found)}",
            hint=f"mend it, then bullpen agent stop {name} and start it again",
            kind=Kind.UNAVAILABLE,
        )
    return found


def wait_ready(hub: HubClient, name: str, deadline: float) -> dict[str, Any]:
    """Until its engine has been looked at, or until that time; how it is then."""
    while True:
        found = phase(hub, name)
        if found["state"] != "starting" or time.monotonic() > deadline:
            return found
        time.sleep(AGAIN_SECONDS)


def phase(hub: HubClient, name: str) -> dict[str, Any]:
    """The agent as a component."""
    found: dict[str, Any] = hub.get("agents", name, "status")
    return found


def why(status: dict[str, Any]) -> str:
    """What its journal says last of what is wrong."""
    wrong = [entry["message"] for entry in status["log"] if entry["level"] == "error"]
    return wrong[-1] if wrong else "no reason was told"


# ── following ──


def follow(hub: HubClient, id: str) -> Iterator[Event]:
    """What it says and does, from its beginning until it is over; the last is `end`. What was
    told is not told again, but for `state`."""
    mark, reached = "", time.monotonic()
    for _ in range(BREAKS):
        try:
            for event in _read(hub, id, mark):
                mark, reached = event.mark or mark, time.monotonic()
                if event.name:
                    yield event
                if event.name == "end":
                    return
        except wire.HubError:
            pass  # looked after below, with everything that ends a stream too early
        try:
            hub.get(*base(), "task", id)  # starts the hub
            reached = time.monotonic()
        except BullpenError as error:
            if error.kind is not Kind.UNAVAILABLE:
                raise
            if time.monotonic() - reached > PATIENCE_SECONDS:
                raise _lost_sight(id, error.message) from error
        time.sleep(AGAIN_SECONDS)
    raise _lost_sight(id, "its stream breaks off again and again")


def _read(hub: HubClient, id: str, mark: str) -> Iterator[Event]:
    """One connection; an event without a name is a sign of life."""
    environ = dict(os.environb)
    home_socket = hub.home.socket(HUB)
    # In a sandbox the home is not to be seen, and the agent's own door is.
    path = str(home_socket) if home_socket.exists() else reach.find_door(environ)
    headers = reach.headers(environ) | ({"last-event-id": mark} if mark else {})
    target = "/" + "/".join(map(wire.quoted, (*base(), "task", id, "events")))
    with wire.stream(
        path or str(home_socket), "GET", target, headers, timeout=SILENCE_SECONDS
    ) as answer:
        if answer.status != 200:
            return  # the next look at the task says why
        rest = b""
        for piece in answer:
            *blocks, rest = (rest + piece).split(b"\n\n")
            if len(rest) > LINE_BYTES:
                raise wire.BadAnswer("the hub sent an event without an end")
            yield from map(parse, blocks)


def parse(block: bytes) -> Event:
    """One event as it is sent. Pure; what is none is passed over as a sign of life."""
    fields: dict[str, str] = {}
    for line in block.decode("utf-8", "replace").split("\n"):
        name, _, value = line.partition(":")
        fields[name] = value.removeprefix(" ")
    try:
        data = json.loads(fields.get("data", ""))
    except ValueError:
        return Event("", {})
    return Event(
        fields.get("event", ""), data if isinstance(data, dict) else {}, fields.get("id", "")
    )


def _lost_sight(id: str, why: str) -> BullpenError:
    return BullpenError(
        f"lost sight of task {id}: {why}",
        hint=f"it goes on without us · bullpen task show {id}",
        kind=Kind.UNAVAILABLE,
    )


# ── finding ──


def find_id(hub: HubClient, text: str) -> str:
    """The whole id of a task that is meant by the beginning of one."""
    if WHOLE.fullmatch(text):
        return text
    found = PREFIX.fullmatch(text)
    if found is None:
        raise BullpenError(f"{text!r} is no id of a task", hint="bullpen tasks · bullpen history")
    wanted = f"t-{found[1]}"
    if WHOLE.fullmatch(wanted):
        return wanted
    ids = [id for id in _all_ids(hub) if id.startswith(wanted)]
    if not ids:
        raise BullpenError(
            f"no task {wanted}…", hint="bullpen tasks · bullpen history", kind=Kind.NOT_FOUND
        )
    if len(ids) > 1:
        shown = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
        raise BullpenError(f"{wanted} is the beginning of {len(ids)} tasks: {shown}")
    return ids[0]


def _all_ids(hub: HubClient) -> list[str]:
    ids: dict[str, None] = {}  # a page may shift while it is read
    for page in range(1, PAGES + 1):
        found = hub.get(*base(), "history", page=page, limit=PAGE)
        ids.update(dict.fromkeys(item["task_id"] for item in found["items"]))
        if page * PAGE >= found["total"]:
            break
    return list(ids)
