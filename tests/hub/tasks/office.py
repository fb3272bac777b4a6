"""Agents that take tasks as a caller over TCP meets them: below the hub, and at their own ports.

with made_office(path) as desk:
    amy = seat(desk, "amy")        # with a port of its own
    amy.at_port.ask("GET", "/status"), amy.below_hub.ask("GET", "/status")
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hub.http.http import Answer, Client, ask
from tests.hub.tasks.desk import SECONDS, Desk, made_desk
from tests.waiting import wait_until

OVER = ("completed", "failed", "cancelled")
KEPT = "as it is"
FREE: dict[str, Any] = {"permissions": {"allow": ["Bash"]}}  # of a role: nobody is asked


@dataclass(frozen=True)
class Side:
    """One of the two places where an agent's API is."""

    port: int
    prefix: str
    token: str

    def ask(
        self, method: str, path: str, body: Any = None, *, token: str = KEPT, **headers: str
    ) -> Answer:
        shown = self.token if token == KEPT else token
        return ask(self.port, method, self.prefix + path, headers, body, token=shown)

    def give(self, prompt: str, **fields: Any) -> str:
        answer = self.ask("POST", "/task", {"prompt": prompt, **fields})
        assert answer.status == 201, answer
        return str(answer.json["task_id"])

    def wait(self, id: str, *states: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def reached() -> bool:
            found.update(self.ask("GET", f"/task/{id}").json)
            return found["state"] in states

        wait_until(reached, SECONDS)
        return found

    def state(self) -> str:
        return str(self.ask("GET", "/status").json["state"])

    def wait_state(self, *states: str) -> None:
        wait_until(lambda: self.state() in states, SECONDS)

    def stream(self, path: str, **headers: str) -> list[dict[str, Any]]:
        """All events until the stream ends."""
        given = {"Authorization": f"Bearer {self.token}", **headers}
        with contextlib.closing(Client(self.port, SECONDS)) as client:
            answer = client.begin("GET", self.prefix + path, given)
            assert answer.status == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            blocks = answer.read().decode().split("\n\n")
        found = []
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            if "event" in fields:
                found.append({**fields, "data": json.loads(fields["data"])})
        return found


@dataclass(frozen=True)
class Seated:
    """An agent with both."""

    name: str
    below_hub: Side
    at_port: Side


def task_agent(desk: Desk, name: str = "amy", **file: Any) -> Seated:
    """An agent without walls that has a port, started."""
    port = desk.pen.free_port()
    desk.agent(name, **{"walls": False, "role": FREE, "port": port, **file})
    return seated(desk, name, port)


def seated(desk: Desk, name: str, port: int) -> Seated:
    """An agent that is there."""
    hub = json.loads((desk.pen.root / "hub.json").read_text())["port"]
    return Seated(name, Side(hub, f"/agents/{name}", desk.token), Side(port, "", desk.token))


def write_free(desk: Desk, name: str, **fields: Any) -> Path:
    """An agent's file and its role, which is without walls, and no start."""
    desk.role(name, sandbox={"enabled": False}, **FREE)
    return desk.write_file(name, **fields)


@contextlib.contextmanager
def made_office(root: Path) -> Iterator[Desk]:
    """A desk of the stand-in whose hub runs."""
    with made_desk(root) as desk:
        desk.pen.start()
        yield desk


def running(desk: Desk, name: str) -> bool:
    return bool(desk.pen.agents()[name]["running"])
