"""Homes with a running hub, for the sections that need one."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.table import BULLPEN
from bullpen.client import Hub, agents
from bullpen.client.shell import Shell
from bullpen.home.paths import Home

# Takes a message as a line, and says which one it heard.
LISTENER = 'while read -r line; do echo "HEARD ${line##* }"; done'


@contextmanager
def hub_home() -> Iterator[tuple[Home, dict[str, str]]]:
    """A home with a running hub; everything in it is ended afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        env = {**os.environ, "HOME": scratch}
        run(env, "init", f"{scratch}/home", cwd=scratch)
        env["BULLPEN_DIR"] = f"{scratch}/home"
        try:
            run(env, "hub", "start")
            yield Home(Path(env["BULLPEN_DIR"])), env
        finally:
            for words in (("stop", "--all", "--grace", "0s"), ("hub", "stop")):
                subprocess.run([BULLPEN, *words], env=env, capture_output=True, check=False)


def run(env: dict[str, str], *words: str, cwd: str = "/") -> str:
    """The installed command; its output."""
    done = subprocess.run(
        [BULLPEN, *words], env=env, cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"bullpen {' '.join(words)}: exit {done.returncode}: {done.stderr}")
    return done.stdout


def hub_file(home: Home) -> dict[str, Any]:
    """Its pid and port."""
    found: dict[str, Any] = json.loads((home.root / "hub.json").read_text())
    return found


def launch(home: Home, count: int, at_once: int) -> None:
    """Start that many agents through the API, as `run` does."""

    def start(number: int) -> None:
        shell = Shell(cwd="/", env={"PATH": os.environ["PATH"]})
        words = ("sleep", "infinity")
        Hub(home).do(agents.start_agent(shell, name=f"agent-{number}", words=words).unchecked())

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(start, range(count)))


def launch_listener(home: Home, env: dict[str, str], name: str, command: list[str]) -> Path:
    """Start an agent that takes messages as lines; its output."""
    role = home.root / "roles" / "listener.yaml"
    role.write_text(
        f"name: listener\nagent_type: command\ndeliver: lines\ncommand: {json.dumps(command)}\n"
    )
    run(env, "run", "--role", "listener", "--name", name, "--detach")
    return home.session(name) / "output.log"


def is_in(file: Path, text: str) -> bool:
    """Whether an output has it."""
    return file.exists() and text.encode() in file.read_bytes()
