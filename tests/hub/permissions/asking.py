"""An agent that asks for permissions, by the hook that its engine would run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import bullpen
from bullpen.home.paths import HUB
from bullpen.hot import wire
from bullpen.hot.hook_line import ask_line
from tests.hub.pen import Pen
from tests.waiting import wait_until

ROOT = str(Path(bullpen.__file__).parents[1])
ALLOW = {"behavior": "allow"}


class Hook:
    """What an engine runs, and waits for."""

    def __init__(self, pen: Pen, body: bytes, agent: str = "amy", words: Any = None) -> None:
        env = {**pen.env, "BULLPEN_DIR": str(pen.root), "BULLPEN_ACTOR": agent}
        env["BULLPEN_SESSION_DIR"] = str(pen.session(agent))
        self.process = subprocess.Popen(
            words or ask_line(sys.executable, ROOT, agent),
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=pen.root,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(body)
        self.process.stdin.close()
        self.process.stdin = None

    def result(self, seconds: float = 60) -> tuple[bytes, bytes, int]:
        out, err = self.process.communicate(timeout=seconds)
        return out, err, self.process.returncode

    def decision(self) -> Any:
        out, err, code = self.result()
        assert (err, code) == (b"", 0)
        return json.loads(out)["hookSpecificOutput"]["decision"] if out else None

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Asking:
    """A home whose agent amy asks for things."""

    def __init__(self, pen: Pen) -> None:
        self.pen = pen
        self.hooks: list[Hook] = []

    def ask(self, command: str = "make all", agent: str = "amy", **fields: Any) -> Hook:
        """A request for a permission; returns when it waits in the inbox."""
        return self._listed(request(command, **fields), agent)

    def ask_question(self, *texts: str, agent: str = "amy") -> Hook:
        """Questions of the agent, each with the options heron and crane."""
        return self._listed(question_request(*texts), agent)

    def _listed(self, body: bytes, agent: str) -> Hook:
        before = {one["id"] for one in self.inbox(all=1)}
        hook = self.send(body, agent)

        def is_listed() -> bool:
            new = [one for one in self.inbox() if one["id"] not in before]
            return [one["state"]["reachable"] for one in new] == [True]

        wait_until(is_listed)
        return hook

    def send(self, body: bytes, agent: str = "amy", words: Any = None) -> Hook:
        self.hooks.append(Hook(self.pen, body, agent, words))
        return self.hooks[-1]

    def inbox(self, **query: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.pen.client().get("approvals", **query)["approvals"]
        return found

    def last(self) -> dict[str, Any]:
        return self.inbox(all=1)[-1]["state"]

    def tell(self, event: str, **fields: Any) -> None:
        """A hook of the agent's engine."""
        body = {"hook_event_name": event, **fields}
        path = str(self.pen.home.socket(HUB))
        head = {"content-type": "application/json"}
        data = json.dumps(body).encode()
        assert wire.request(path, "POST", "/agents/amy/hooks", head, data, 60).status == 200


def question(text: str, *labels: str, several: bool = False) -> dict[str, Any]:
    options = [{"label": label, "description": f"a {label}"} for label in labels]
    return {"question": text, "header": text[:9], "multiSelect": several, "options": options}


def question_request(*texts: str) -> bytes:
    fields = {"hook_event_name": "PermissionRequest", "tool_name": "AskUserQuestion"}
    questions = [question(text, "heron", "crane") for text in texts]
    return json.dumps({**fields, "tool_input": {"questions": questions}}).encode()


def request(command: str, tool: str = "Bash", **more: Any) -> bytes:
    fields = {"hook_event_name": "PermissionRequest", "tool_name": tool}
    return json.dumps({**fields, "tool_input": {"command": command, **more}}).encode()
