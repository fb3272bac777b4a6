"""Homes with roles and pod templates, hubs that die at a given step, and what is on disk."""

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bullpen.home.paths import HUB
from bullpen.hot import wire
from bullpen.proc import start_time
from tests.hub.pen import Pen
from tests.listing import list_files, read_files
from tests.waiting import wait_until
from tests.worktrees.repos import git

# Runs the hub with one function wrapped: the n-th time that it is called, the process kills
# itself before or after it. `module:function:n:moment`; a method is `module:Class.function`.
DEADLY = """
import importlib, inspect, itertools, os, signal, sys

spec = sys.argv[2]
sys.argv = ["hub"]
module, name, number, moment = spec.split(":")
owner = importlib.import_module(module)
*parents, name = name.split(".")
for parent in parents:
    owner = getattr(owner, parent)
real = getattr(owner, name)
calls = itertools.count(1)


def die_if(at, call):
    if at == moment and call == int(number):
        os.kill(os.getpid(), signal.SIGKILL)


if inspect.iscoroutinefunction(real):
    async def wrapped(*args, **kwargs):
        call = next(calls)
        die_if("before", call)
        result = await real(*args, **kwargs)
        die_if("after", call)
        return result
else:
    def wrapped(*args, **kwargs):
        call = next(calls)
        die_if("before", call)
        result = real(*args, **kwargs)
        die_if("after", call)
        return result

import bullpen.hub.main

# Whoever imported it by name has it under that name, too.
for found in list(sys.modules.values()):
    if getattr(found, name, None) is real:
        setattr(found, name, wrapped)
setattr(owner, name, wrapped)
bullpen.hub.main.main()
"""


def write_role(pen: Pen, name: str, command: list[str], *more: str, folder: str = "roles") -> None:
    lines = [f"name: {name}", "agent_type: command", f"command: {json.dumps(command)}", *more]
    (pen.root / folder / f"{name}.yaml").write_text("\n".join(lines) + "\n")


def write_template(pen: Pen, name: str, *agents: str, **fields: str) -> None:
    lines = [f"pod_name: {name}", *(f"{key}: {value}" for key, value in fields.items())]
    lines += ["agents:", *(f"  - {{{agent}}}" for agent in agents)]
    (pen.root / "pods" / "templates" / f"{name}.yaml").write_text("\n".join(lines) + "\n")


def asked(pen: Pen, template: str, cwd: Path, **fields: Any) -> dict[str, Any]:
    """The body of `POST /pods`."""
    given = {"cwd": str(cwd), "env": pen.env, "run": uuid.uuid4().hex, "template": template}
    return {**given, **fields}


def launch(pen: Pen, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Ask once, whatever becomes of the hub: the lines that came."""
    lines: list[dict[str, Any]] = []
    headers = {"content-type": "application/json"}
    path = str(pen.home.socket(HUB))
    data = json.dumps(body).encode()
    rest = b""
    with (
        contextlib.suppress(wire.HubGone),
        wire.stream(path, "POST", "/pods", headers, data, 60.0) as answer,
    ):
        if answer.status != 200:
            return [json.loads(b"".join(answer))]
        for piece in answer:
            *whole, rest = (rest + piece).split(b"\n")
            lines += map(json.loads, filter(None, whole))
    return lines


@contextlib.contextmanager
def deadly_hub(pen: Pen, spec: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A hub that dies at that step; it has died at the end of the block."""
    script = pen.root / "deadly.py"
    script.write_text(DEADLY)
    words = [sys.executable, str(script), "hub-script", spec]
    env = {**pen.env, "BULLPEN_DIR": str(pen.root), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        words, env=env, cwd=pen.root, stdin=subprocess.DEVNULL, start_new_session=True
    ) as process:
        wait_until(lambda: pen.answers() or process.poll() is not None, 120)
        try:
            yield process
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(180)
        finally:
            was_reached = process.poll() == -9
            if process.poll() is None:
                process.kill()
        assert was_reached, f"{spec} was not reached"


def on_disk(pen: Pen, repo: Path) -> dict[str, str]:
    """Everything of agents and worktrees that a launch may change. Logs are added to."""
    wait_until(lambda: not leaving(pen))
    found = {}
    for path in sorted(list_files(pen.root / "sessions")):
        if path.name not in ("output.log", "output.timing", "api") and path.suffix != ".old":
            name = str(path.relative_to(pen.root))
            found[name] = path.read_text() if path.is_file() else ""
    for place in sorted((pen.root / "worktrees").iterdir()):
        if not place.name.startswith("."):
            found[f"worktrees/{place.name}"] = str(sorted(path.name for path in place.iterdir()))
    return {
        **found,
        "branches": git(repo, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads"),
        "git": git(repo, "worktree", "list", "--porcelain"),
        "sockets": str(sorted(path.name for path in (pen.root / "sockets").glob("agent.*"))),
    }


def leaving(pen: Pen) -> set[str]:
    """Whose holder has said goodbye, or was never to stay, and still has its socket."""
    found = set()
    for path in (pen.root / "sockets").glob("agent.*.sock"):
        name = path.name.removeprefix("agent.").removesuffix(".sock")
        session = pen.session(name)
        if not session.exists() or (session / "exit.json").exists():
            found.add(name)
    return found


def holders(pen: Pen) -> set[int]:
    """Living holders and their programs, by what sessions say of them. A number that a process of
    an ended agent had may be another's by now."""
    found = set()
    for data in read_files(pen.root / "sessions", "*/holder.json").values():
        record = json.loads(data)
        for name, began in (("pid", "start_time"), ("child", "child_start_time")):
            if record[began] and start_time(record[name]) == record[began]:
                found.add(record[name])
    return found
