"""Row t: what a task of a plain program costs the hub, from its request to its answer, in processor
time. Before the queue was looked through once for all free agents it was 21 ms (45 tasks a second
filled a core); the goal is half of that."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from bench.hubs import hub_file, hub_home, run
from bench.processes import TICKS, cpu_seconds
from bench.table import WAIT_SECONDS, Row
from bullpen.client import Hub, tasks
from bullpen.home.paths import Home

GOAL_SECONDS = 0.94 / 45 / 2
ROLE = {"name": "worker", "agent_type": "command", "command": ["cat"]}


def rows(short: bool) -> Iterator[Row]:
    """Twice as many ask at once as there are agents."""
    agents, count = (1, 4) if short else (8, 400)
    with hub_home() as (home, env):
        start_workers(home, env, agents)
        pid = int(hub_file(home)["pid"])
        do_tasks(home, 2 * agents, 2 * agents)  # the first ones are slower
        before = cpu_seconds(pid)
        do_tasks(home, count, 2 * agents)
        used = max(cpu_seconds(pid) - before, 1 / TICKS)  # the kernel tells no less than that
        each = used / count
    yield Row(
        "t", f"CPU of the hub for a task (of {GOAL_SECONDS * 1000:.1f} ms)", each, GOAL_SECONDS, 1.0
    )


def start_workers(home: Home, env: dict[str, str], count: int) -> None:
    """So many agents that answer a task with its prompt."""
    role = {**ROLE, "sandbox": {"enabled": False}}
    (home.root / "roles" / "worker.yaml").write_text(json.dumps(role))
    for number in range(count):
        run(env, "agent", "start", f"worker{number}", "--role", "worker")


def do_tasks(home: Home, count: int, at_once: int, fleet: bool | None = None) -> None:
    """Have them do that many, with `fleet` by those of all machines."""

    def one(number: int) -> None:
        prompt = f"task {number}"
        call = tasks.offer_task(prompt, role="worker", fleet=fleet, wait_seconds=WAIT_SECONDS)
        answer = json.dumps(Hub(home, start=False).do(call.unchecked()))
        if prompt not in answer:
            raise RuntimeError(f"a task without its answer: {answer}")

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, range(count)))
