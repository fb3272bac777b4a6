"""A home with a repository and roles whose agents start agents, and their tools over MCP.

    with made_grove() as grove:
        grove.run("lead")
        answer = grove.call("lead", "spawn_subtree", task="x", branch_name="csv")

The programs are plain ones: what they do is told by the tools that the test calls for them, each
with that agent's own credential.
"""

import contextlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bullpen.hot import wire
from tests.hub.http.agents import token_of
from tests.hub.http.http import ask
from tests.hub.pen import Pen, made_pen
from tests.otlp import encoded, metrics, point
from tests.worktrees.repos import git

PROGRAM = {"agent_type": "command", "command": ["cat"], "deliver": "lines-from-agents"}


class ToolError(Exception):
    """A tool answered with an error."""


class Grove:
    """One home, one repository, and agents in it."""

    def __init__(self, pen: Pen) -> None:
        self.pen = pen
        self.repo = pen.root.parent / "repo"
        git(pen.root.parent, "init", "-q", "-b", "main", str(self.repo))
        for key, value in (("name", "Pat"), ("email", "pat@example.com")):  # who lands
            git(self.repo, "config", f"user.{key}", value)
        git(self.repo, "commit", "-q", "--allow-empty", "-m", "first")
        pen.role("coder", **PROGRAM, worktree={"enabled": True})
        pen.role("boss", **PROGRAM, may_grant="coder")

    @classmethod
    def of(cls, pen: Pen, repo: Path) -> "Grove":
        """Of a home and a repository that are there."""
        made = cls.__new__(cls)
        made.pen, made.repo = pen, repo
        return made

    def run(self, name: str = "lead", role: str = "boss", **fields: Any) -> None:
        self.pen.run(role=role, name=name, words=[], cwd=str(self.repo), **fields)

    def ask(
        self, agent: str, method: str, params: dict[str, Any], request: str = "", path: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """One request over the agent's own socket, as the relay sends it."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "bullpen-request": request or uuid.uuid4().hex,
        }
        socket = self.pen.session(agent) / "api" / "hub.sock"
        target = f"/agents/{path or agent}/mcp"
        data = json.dumps(body).encode()
        answer = wire.request(str(socket), "POST", target, headers, data, 600.0)
        return answer.status, json.loads(answer.body or b"{}")

    def call(self, agent: str, /, tool: str, request: str = "", **arguments: Any) -> Any:
        """What a tool answers; an error is raised."""
        params = {"name": tool, "arguments": arguments}
        status, answer = self.ask(agent, "tools/call", params, request)
        assert status == 200, (status, answer)
        if "error" in answer:
            raise ToolError(answer["error"]["message"])
        text = answer["result"]["content"][0]["text"]
        if answer["result"].get("isError"):
            raise ToolError(text)
        try:
            return json.loads(text)
        except ValueError:
            return text

    def spawn(self, parent: str, name: str, task: str = "x", **fields: Any) -> str:
        """A subtree; its name."""
        answer = self.call(
            parent, "spawn_subtree", task=task, branch_name=name, role="coder", **fields
        )
        return str(answer["name"])

    def spend(self, name: str, count: int) -> None:
        """Its telemetry says so, and the hub has stored it."""
        port = int(json.loads((self.pen.root / "hub.json").read_text())["port"])
        used = point(count, type="input", session__id=uuid.uuid4().hex)
        kind = {"Content-Type": "application/json"}
        body, token = encoded(metrics(token=[used]), "json"), token_of(self.pen.home, name)
        assert ask(port, "POST", "/v1/metrics", kind, body, token=token).status == 200

    def wait(self, agent: str, after: int = 0, seconds: float = 60.0, **fields: Any) -> Any:
        return self.call(agent, "wait_for_event", timeout_seconds=seconds, after=after, **fields)

    def queue(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.pen.client().get("agents", name, "queue")["events"]
        return found

    def kinds(self, name: str) -> list[tuple[str, str]]:
        return [(event["from"], event["kind"]) for event in self.queue(name)]

    def hook(self, agent: str, event: str, **fields: Any) -> None:
        """What its program says of itself."""
        body = json.dumps({"hook_event_name": event, **fields}).encode()
        socket = self.pen.session(agent) / "api" / "hub.sock"
        headers = {"content-type": "application/json"}
        path = f"/agents/{agent}/hooks"
        assert wire.request(str(socket), "POST", path, headers, body, 60.0).status == 200

    def names(self) -> set[str]:
        return set(self.pen.agents())

    def branches(self) -> set[str]:
        lines = git(self.repo, "branch", "--format=%(refname:short)").splitlines()
        return {line.strip() for line in lines}

    def worktrees(self) -> set[str]:
        base: Path = self.pen.root / "worktrees"
        return {path.name for path in base.iterdir() if not path.name.startswith(".")}


@contextlib.contextmanager
def made_grove() -> Iterator[Grove]:
    with made_pen() as pen:
        yield Grove(pen)
