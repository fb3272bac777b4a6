"""A home whose agents take tasks, and the tasks as a caller of the API sees them.

desk.agent("amy")                        # started, ready; behind walls unless told otherwise
task = desk.give("amy", "[[say hi]]")
assert desk.over(task)["output"] == "hi"
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from bullpen.errors import BullpenError
from bullpen.files import write_atomically
from tests.commands import Ran
from tests.engines.programs import Program, install, made_claude
from tests.hub.pen import Pen, made_pen
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
SECONDS = 60.0


class Desk:
    """See the module."""

    def __init__(self, pen: Pen, claude: Program, engine: str = "claude") -> None:
        self.pen = pen
        self.claude = claude  # whatever program it is
        install(pen, engine, claude)

    @property
    def token(self) -> str:
        """The owner's."""
        return (self.pen.home.credentials / "api-token").read_text().strip()

    def cli(self, *words: str, **env: str) -> Ran:
        return self.pen.cli(*words, cwd=self.claude.work, **env)

    def role(self, name: str, **fields: Any) -> None:
        self.pen.role(name, **fields)

    def write_file(self, name: str, **fields: Any) -> Path:
        """An agent's file, without a start; its role is of the same name unless told otherwise."""
        path = self.pen.root / "agents" / f"{name}.yaml"
        write_atomically(path, json.dumps({"role": name, **fields}))
        return path

    def agent(
        self,
        name: str = "amy",
        *,
        walls: bool = True,
        role: dict[str, Any] | None = None,
        **file: Any,
    ) -> str:
        """An agent with a file of its own and a role of the same name; ready for tasks."""
        fields = dict(role or {})
        box = {"enabled": walls, **fields.pop("sandbox", {})}
        # The stand-in and its Python are installed where the tests are.
        box.setdefault("read_only_paths", [str(ROOT), str(self.claude.program.parent)])
        self.role(name, **{"sandbox": box, **fields})
        self.write_file(name, **file)
        self.start(name)
        return name

    def start(self, name: str) -> None:
        self.pen.client().post("agents", body=self.launch_body(name))
        self.wait_ready(name)

    def launch(self, name: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        """A start, tried once and not waited for: status and JSON."""
        return self.ask("POST", "/agents", self.launch_body(name, **fields))

    def launch_body(self, name: str, **fields: Any) -> dict[str, Any]:
        return {"kind": "headless", "name": name, "cwd": "/", "env": self.pen.env, **fields}

    def wait_ready(self, name: str) -> None:
        wait_until(lambda: self.status(name)["state"] != "starting", SECONDS)
        assert self.status(name)["state"] in ("idle", "working"), self.status(name)

    def status(self, name: str) -> dict[str, Any]:
        return self.pen.client().get("agents", name, "status")

    def give(self, name: str, prompt: str, **fields: Any) -> str:
        """The id of the task. A hub that was just started looks at its agents first."""
        body = {"prompt": prompt, **fields}
        again = "request" in fields
        while True:
            try:
                found = self.pen.client().post("agents", name, "task", body=body, again=again)
                return str(found["task_id"])
            except BullpenError as error:
                if error.message != f"{name} is starting":
                    raise
            wait_until(lambda: self.status(name)["state"] != "starting", SECONDS)

    def offer(self, prompt: str, **fields: Any) -> str:
        """Into the queue; the id of the task."""
        body = {"prompt": prompt, **fields}
        return str(self.pen.client().post("tasks", body=body, again="request" in fields)["task_id"])

    def cancel(self, id: str) -> dict[str, Any]:
        return self.pen.client().post("task", id, "cancel")

    def go_on(self, id: str, prompt: str, **fields: Any) -> dict[str, Any]:
        return self._steer(id, "continue", {"prompt": prompt, **fields})

    def end(self, id: str, **fields: Any) -> dict[str, Any]:
        return self._steer(id, "end", fields)

    def _steer(self, id: str, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        again = "request" in body
        return self.pen.client().post("task", id, verb, body=body or None, again=again)

    def run_directory(self, id: str, number: int = 1) -> Path:
        return next(self.pen.root.glob(f"sessions/*/tasks/{id}/{number}"))

    def wait_begun(self, id: str) -> None:
        """Until its program has said that it is there, which is before it does anything."""
        self.wait_said(id, "init")

    def wait_said(self, id: str, text: str, number: int = 1) -> None:
        """Until that run has written this."""
        pattern = f"sessions/*/tasks/{id}/{number}/output.log"
        logs = self.pen.root.glob
        wait_until(lambda: any(f'"{text}"'.encode() in log.read_bytes() for log in logs(pattern)))

    def prompt_of(self, id: str, number: int = 1) -> str:
        """What the engine was told in that run."""
        line = json.loads((self.run_directory(id, number) / "prompt.json").read_text())
        return str(line["message"]["content"])

    def program(self, code: str) -> None:
        """Agents that start from now on run this in place of Claude Code. It is Python; `say` and
        `result` write what Claude Code would, `prompt` is what it was told."""
        path = self.pen.root.parent / "program"
        write_program(path, code)
        self.pen.env["BULLPEN_CLAUDE_BIN"] = str(path)

    def ask(self, method: str, target: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        """Nothing tried twice: status and JSON."""
        return self.pen.ask(method, target, body)

    def task(self, id: str) -> dict[str, Any]:
        return self.pen.client().get("task", id)

    def wait(self, id: str, *states: str, seconds: float = SECONDS) -> dict[str, Any]:
        """Until it is in one of these states."""
        found: dict[str, Any] = {}

        def reached() -> bool:
            found.update(self.task(id))
            return found["state"] in states

        try:
            wait_until(reached, seconds)
        except AssertionError as error:
            shown = json.dumps(found, indent=1)
            raise AssertionError(f"not {states}\n{shown}\n{self.debug(id)}") from error
        return found

    def over(self, id: str, seconds: float = SECONDS) -> dict[str, Any]:
        return self.wait(id, "completed", "failed", "cancelled", seconds=seconds)

    def done(self, id: str) -> dict[str, Any]:
        """Over, and well."""
        found = self.over(id)
        assert found["state"] == "completed", (json.dumps(found, indent=1), self.debug(id))
        return found

    def debug(self, id: str) -> str:
        shown = self.pen.client().get("task", id, "debug")
        return "\n".join(
            f"{run['stdout'][-3000:]}\n{run['stderr'][-2000:]}" for run in shown["runs"]
        )

    def moves(self, id: str) -> list[str]:
        """The states it went through, as the event log has them; a warning is no move."""
        events = self.pen.events("", "task.state")
        moves = [event for event in events if event["task"] == id]
        return [
            event["state"]
            for before, event in pairwise([{}, *moves])
            if event["status"] != before.get("status")
            or event.get("warnings") == before.get("warnings")
        ]


@contextlib.contextmanager
def made_desk(root: Path, kind: str = "standin") -> Iterator[Desk]:
    """Of the stand-in, which is fast, or of the "real" Claude Code."""
    with made_claude(root, kind) as claude, made_pen() as pen:
        yield Desk(pen, claude)


def write_program(path: Path, code: str) -> None:
    """As `Desk.program` says."""
    path.write_text(PROGRAM.format(python=PYTHON, code=code))
    path.chmod(0o755)


PYTHON = os.path.realpath(sys.executable)
PROGRAM = """#!{python} -IS
import json, os, signal, sys, time
if "--version" in sys.argv:
    print("2.1.325 (Claude Code)")
    sys.exit()
for flag in ("--session-id", "--resume"):
    if flag in sys.argv:
        conversation = sys.argv[sys.argv.index(flag) + 1]
prompt = json.loads(sys.stdin.readline())["message"]["content"]

def write(**fields):
    sys.stdout.write(json.dumps({{"session_id": conversation, **fields}}) + "\\n")
    sys.stdout.flush()

def say(text, id="", tokens=1):
    usage = {{"input_tokens": tokens, "output_tokens": tokens}}
    content = [{{"type": "text", "text": text}}]
    write(type="assistant", message={{"id": id, "content": content, "usage": usage}})

def result(text, **fields):
    fields = {{"is_error": False, "terminal_reason": "completed", **fields}}
    write(type="result", subtype="success", result=text, **fields)

write(type="system", subtype="init")
{code}
"""
