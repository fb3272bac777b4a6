"""A home with agents in every state, for pictures of the page and tests of it.

    with made_scene() as scene:
        scene.start("amy")
        scene.idle("amy")
        scene.ask("amy", "Bash", command="ls")

Agents are real programs in real terminals and worktrees, under a real hub. What their engines would
tell of themselves (hooks, questions, telemetry) is told in their place, in the same form and by
the same routes: so each stands in its state for as long as the test wants.
"""

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bullpen.home.paths import HUB
from bullpen.hot import wire
from tests.engines.cli import StandIn
from tests.engines.programs import bare_claude, install
from tests.hub.pen import Pen, made_pen
from tests.otlp import encoded, metrics, point
from tests.waiting import wait_until

ASK_SECONDS = 600.0
SHELL = ("/bin/bash", "--norc", "--noprofile")


class Scene:
    """One home and its repository."""

    def __init__(self, pen: Pen) -> None:
        self.pen = pen
        self.repository = pen.root.parent / "code"
        self._asks = 0
        self._threads: list[threading.Thread] = []
        self.answers: dict[int, str] = {}
        self._git_started()
        pen.env |= {"PS1": "$ "}
        worktree = {"enabled": True, "branch_from": "main"}
        pen.role("coder", agent_type="command", command=list(SHELL), worktree=worktree)
        self.claude = StandIn(pen.root.parent)
        install(pen, "claude", bare_claude(self.claude))
        pen.role("thinker", worktree=worktree)
        pen.role("tester", sandbox={"enabled": False})

    def _git_started(self) -> None:
        self.repository.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Tess")
        self.git("config", "user.email", "tess@example.com")
        self.write(self.repository, {"cart.py": "def price(item):\n    return item.net\n"})
        self.write(self.repository, {"export.py": EXPORT, "README.md": "# Shop\n"})
        self.commit(self.repository, "A small shop")

    def git(self, *words: str, where: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=where or self.repository,
            env=self.pen.env,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def write(self, where: Path, files: dict[str, str]) -> None:
        for name, text in files.items():
            (where / name).write_text(text)

    def commit(self, where: Path, subject: str) -> None:
        self.git("add", "-A", where=where)
        self.git("commit", "-qm", subject, where=where)

    # ── agents ──

    def start(self, name: str, role: str = "coder", **fields: Any) -> Path:
        """Start one; where it works."""
        given = self.pen.run(name=name, role=role, words=[], cwd=str(self.repository), **fields)
        return Path(given["cwd"])

    def taker(self, name: str, role: str = "tester") -> None:
        """One that takes tasks: the stand-in for Claude Code, scripted by each prompt."""
        self.pen.run(name=name, role=role, kind="headless", words=[], cwd=str(self.repository))
        wait_until(lambda: self.pen.state(name) == "idle")

    def post(self, target: str, body: bytes, token: str = "", seconds: float = 60.0) -> str:
        headers = {"content-type": "application/json"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        path = str(self.pen.home.socket(HUB))
        answer = wire.request(path, "POST", target, headers, body, seconds)
        assert answer.status < 300, answer.body
        return answer.body.decode()

    def hook(self, name: str, event: str, **fields: Any) -> None:
        """What its engine's hook tells."""
        body = json.dumps({"hook_event_name": event, **fields}).encode()
        self.post(f"/agents/{name}/hooks", body)

    def idle(self, *names: str) -> None:
        for name in names:
            self.hook(name, "SessionStart")

    def works(self, name: str, tool: str = "", **tool_input: Any) -> None:
        self.hook(name, "UserPromptSubmit", prompt="go on")
        if tool:
            self.hook(name, "PreToolUse", tool_name=tool, tool_input=tool_input)

    def ask(self, agent: str, tool: str, /, **tool_input: Any) -> None:
        """Its engine asks for a permission, and waits for the answer."""
        self._asks += 1
        number = self._asks
        body = {"hook_event_name": "PermissionRequest", "tool_name": tool, "tool_input": tool_input}
        target = f"/agents/{agent}/permission?ask=scene-{os.getpid()}-{number:04}"

        def wait() -> None:
            # The hub may be killed meanwhile: a hook then asks the next one the same.
            while number not in self.answers and not self._is_over:
                with contextlib.suppress(OSError, wire.HubError, AssertionError):
                    self.answers[number] = self.post(target, json.dumps(body).encode(), "", 600)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        self._threads.append(thread)
        # Listed before the next one asks: their numbers follow the order of the calls.
        wait_until(lambda: len(self.pen.client().get("approvals", all=1)["approvals"]) >= number)

    _is_over = False

    def uses(self, name: str, tokens: int, usd: float) -> None:
        """Telemetry of its engine."""
        body = metrics(token=[point(tokens, type="output")], cost=[point(usd)])
        self.post("/v1/metrics", encoded(body, "json"), self._token(name))

    def writes_to_you(self, name: str, text: str) -> None:
        """A message of that agent to the person."""
        body = json.dumps({"text": text}).encode()
        self.post("/agents/root/messages", body, self._token(name))

    def _token(self, name: str) -> str:
        environ = Path(f"/proc/{self.pen.program(name)}/environ").read_bytes().split(b"\0")
        held = dict(one.split(b"=", 1) for one in environ if b"=" in one)
        return held[b"BULLPEN_TOKEN"].decode()

    @property
    def decided(self) -> list[dict[str, Any]]:
        """The approvals that are over."""
        listed = self.pen.client().get("approvals", all=1)["approvals"]
        return [one for one in listed if one["state"]["status"] != "waiting"]

    def close(self) -> None:
        self._is_over = True


EXPORT = '''import json


def export(rows):
    """All orders, as the shop keeps them."""
    return json.dumps(list(rows))
'''


@contextlib.contextmanager
def made_scene(root: Path | None = None) -> Iterator[Scene]:
    """In a home of its own; at `root` if that has to have a name."""
    with made_pen(root) as pen:
        scene = Scene(pen)
        try:
            yield scene
        finally:
            scene.close()
