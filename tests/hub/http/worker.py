"""An agent of a hub inside of the tests that takes tasks, and one that it has done."""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bullpen.hub.parts import Hub
from tests.engines.cli import StandIn
from tests.hub.http.http import ask
from tests.hub.http.inside import Inside
from tests.waiting import wait_until


@dataclass(frozen=True)
class Worker:
    """An agent that takes tasks, and one that it has done."""

    name: str
    task: str
    session: str


@contextlib.contextmanager
def made_worker(inside: Inside, directory: Path) -> Iterator[Worker]:
    """Tess, who is the stand-in."""
    claude, root = StandIn(directory), inside.home.root
    role = {"name": "tess", "sandbox": {"enabled": False}}
    (root / "roles" / "tess.yaml").write_text(json.dumps(role))
    (root / "agents" / "tess.yaml").write_text(json.dumps({"role": "tess"}))
    env = {**claude.env, "PATH": os.environ["PATH"], "BULLPEN_CLAUDE_BIN": str(claude.program)}
    start = {"kind": "headless", "name": "tess", "cwd": "/", "env": env}
    inside.call(inside.hub.tasks.load())  # before that nobody is given anything from the queue
    inside.call(begin_landings(inside.hub))
    assert ask(inside.socket, "POST", "/agents", body=start).status == 201
    free(inside)
    target = "/agents/tess/task?wait_seconds=60"
    done = ask(inside.socket, "POST", target, body={"prompt": "[[say hi]]"})
    assert done.json["output"] == "hi", done
    yield Worker("tess", done.json["task_id"], done.json["session_id"])
    ask(inside.socket, "DELETE", "/agents/tess?grace=0")


async def begin_landings(hub: Hub) -> None:
    """Before that nobody is put into their queue."""
    hub.background.begin(hub.landings.run(), "landings")


def free(inside: Inside) -> None:
    """Nothing is left of what was made up before."""

    def is_idle() -> bool:
        for task in ask(inside.socket, "GET", "/tasks").json["tasks"]:
            ask(inside.socket, "POST", f"/task/{task['task_id']}/cancel")
        return bool(ask(inside.socket, "GET", "/agents/tess/status").json["state"] == "idle")

    wait_until(is_idle)
