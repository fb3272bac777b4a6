"""Rows 13–15: a hub with many agents: idle cost, recovery, launch and list."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.table import Row, interleaved, timed

BULLPEN = Path(sys.executable).with_name("bullpen")
IDLE_SECONDS = 20.0
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def hub_home() -> Iterator[tuple[Path, dict[str, str]]]:
    """A home with a running hub; everything in it is ended afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench") as place:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("BULLPEN_", "GIT_"))}
        env["HOME"] = place
        env["BULLPEN_DIR"] = f"{place}/home"
        run(env, "init", f"{place}/home", cwd=place)
        run(env, "hub", "start")
        try:
            yield Path(place, "home"), env
        finally:
            run(env, "stop", "--all", "--grace", "0s")
            run(env, "hub", "stop")


@contextmanager
def real_hub(home: Path) -> Iterator[None]:
    """A hub of that home with one agent, `amy`, for the rows of the hot verbs."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("BULLPEN_")}
    env["BULLPEN_DIR"] = str(home)
    run(env, "run", "--detach", "--name", "amy", "--", "sleep", "infinity")
    try:
        yield
    finally:
        run(env, "stop", "--all", "--grace", "0s")
        run(env, "hub", "stop")


def run(env: dict[str, str], *words: str, cwd: str = "/") -> str:
    """The installed command; its output."""
    call = {**env, "BULLPEN_DIR": ""} if words[0] == "init" else env
    done = subprocess.run(
        [BULLPEN, *words], env=call, cwd=cwd, capture_output=True, text=True, check=True
    )
    return done.stdout


def hub_pid(home: Path) -> int:
    """The hub's process."""
    return int(json.loads((home / "hub.json").read_text())["pid"])


def launch(home: Path, count: int, at_once: int) -> None:
    """Start that many agents through the API, as `run` does."""
    from bullpen.client.hub import HubClient
    from bullpen.paths import Home

    def start(number: int) -> None:
        body = {
            "cwd": "/",
            "env": {"PATH": os.environ["PATH"]},
            "name": f"agent-{number}",
            "words": ["sleep", "infinity"],
        }
        HubClient(Home(home)).post("agents", body=body)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(start, range(count)))


def cpu_seconds(pid: int) -> float:
    """What the process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def bare() -> None:
    """An interpreter that does nothing."""
    python = os.path.realpath(sys.executable)
    subprocess.run([python, "-S", "-E", "-c", "pass"], check=True)


def rows() -> list[Row]:
    """All three."""
    return [*_idle_and_recovery(), *_many()]


def _idle_and_recovery() -> list[Row]:
    with hub_home() as (home, env):
        launch(home, 30, 4)
        pid = hub_pid(home)
        before, began = cpu_seconds(pid), time.monotonic()
        threading.Event().wait(IDLE_SECONDS)
        share = (cpu_seconds(pid) - before) / (time.monotonic() - began) * 100
        expected = _states(env)
        os.kill(pid, 9)
        began = time.monotonic()
        run(env, "hub", "start")
        after = _states(env)
        seconds = time.monotonic() - began
        wrong = sum(after.get(name) != state for name, state in expected.items())
    return [
        Row("13", "idle CPU of the hub, 30 agents (% of a core)", share, 1.0, 0.1, "%"),
        Row("14", "kill -9 to all states right, 30 agents (of 2 s)", seconds, 2.0, 1.0),
        Row("14b", "states that are wrong after it", wrong, 30, 0.0, ""),
    ]


def _states(env: dict[str, str]) -> dict[str, str]:
    found = json.loads(run(env, "list", "--json"))["agents"]
    return {agent["name"]: agent["words"] for agent in found}


def _many(count: int = 500) -> list[Row]:
    with hub_home() as (home, env):
        seconds = timed(lambda: launch(home, count, 8))
        listing, nothing = interleaved(
            15, lambda: timed(lambda: run(env, "list")), lambda: timed(bare)
        )
        stopping = timed(lambda: run(env, "stop", "--all", "--grace", "1s"))
    print(f"     stop --all of {count}: {stopping:.1f} s")
    return [
        Row("15a", f"launch of {count} agents, each (of 10 ms)", seconds / count, 0.010, 1.0),
        Row("15b", f"list of {count} (of 1.6x bare + 20 ms)", listing, nothing * 1.6 + 0.020, 1.0),
    ]
