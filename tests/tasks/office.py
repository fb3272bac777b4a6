"""Agents that take tasks as a caller over TCP meets them: below the hub, and at their own ports.

with made_office(path) as office:
    amy = office.seat("amy")        # with a port of its own
    amy.at_port.ask("GET", "/status"), amy.below_hub.ask("GET", "/status")
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.api.http import Answer, Client, ask
from tests.engines.cli import StandIn
from tests.engines.team import made_team
from tests.ports import reserved_port
from tests.tasks.desk import SECONDS, Desk
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


class Office(Desk):
    """A desk whose agents have ports."""

    def __init__(self, desk: Desk, stack: contextlib.ExitStack) -> None:
        super().__init__(desk.team)
        self._stack = stack

    @property
    def claude(self) -> StandIn:
        found = self.team.claude
        assert isinstance(found, StandIn)
        return found

    @property
    def token(self) -> str:
        return (self.pen.home.credentials / "api-token").read_text().strip()

    def free_port(self) -> int:
        """Nobody else's until the end."""
        return self._stack.enter_context(reserved_port())

    def seat(self, name: str = "amy", **file: Any) -> Seated:
        port = self.free_port()
        self.agent(name, **{"walls": False, "role": FREE, "port": port, **file})
        return self.seated(name, port)

    def seated(self, name: str, port: int) -> Seated:
        hub = json.loads((self.pen.root / "hub.json").read_text())["port"]
        return Seated(name, Side(hub, f"/agents/{name}", self.token), Side(port, "", self.token))

    def write_file(self, name: str, **fields: Any) -> Path:
        """An agent's file and a role, without a start."""
        self.team.role(name, sandbox={"enabled": False}, **FREE)
        path = self.pen.root / "agents" / f"{name}.yaml"
        path.write_text(json.dumps({"role": name, **fields}))
        return path

    def launch(self, name: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        """A start, not waited for."""
        body = {"kind": "headless", "name": name, "cwd": "/", "env": self.pen.env, **fields}
        return self.ask("POST", "/agents", body)


@contextlib.contextmanager
def made_office(root: Path) -> Iterator[Office]:
    with contextlib.ExitStack() as stack:
        team = stack.enter_context(made_team(root, "standin"))
        team.pen.start()
        yield Office(Desk(team), stack)


def running(office: Office, name: str) -> bool:
    return bool(office.pen.agents()[name]["running"])
