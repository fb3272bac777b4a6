"""Rows 16 and 17: a child through the tools, and the way of its report to a parent that waits.
Row w: what those who wait cost the hub. Row r: the relay through which engines reach the tools."""

import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

from bench.echo import echo
from bench.hubs import hub_file, launch, run
from bench.processes import cpu_seconds, pss
from bench.starts import start
from bench.table import BARE, Row, interleaved, timed, wait_until
from bench.tools import Relay, grove, relay_line
from bullpen.home.paths import Home

MORE_SECONDS = 0.020  # that an event may take, above the echo
WAITER_MB = 0.1
RELAY_MB = 4.0
LEAST_MB = 0.001
IDLE_PERCENT = 0.1


def rows(short: bool) -> Iterator[Row]:
    """All four, with one hub."""
    rounds, waiters, seconds = (1, 3, 1.0) if short else (15, 100, 20.0)
    with grove(files=20) as (home, env, repo):
        run(env, "run", "--role", "lead", "--name", "lead", "--detach", cwd=str(repo))
        with Relay(home, "lead") as lead:
            lead.call("list_agents")  # loads the tools
            spawned, started = interleaved(
                rounds, partial(_spawn, lead, count(1)), partial(_run, env, repo, count(1))
            )
            yield Row("16", "spawn_subtree, against run --detach", spawned, started, 1.2)
            yield from _events(home, lead, rounds)
            yield Row("r", "PSS of a relay (of 4 MB)", pss(lead.process.pid), RELAY_MB, 1.0, "MB")
        relay, bare = interleaved(rounds * 2, partial(_start_relay, home), partial(start, BARE, {}))
        yield Row("r", "start and end of a relay, against bare", relay, bare, 1.5)
        yield from _waiters(home, waiters, seconds)


def _spawn(lead: Relay, numbers: Iterator[int]) -> float:
    name = f"s{next(numbers)}"
    return timed(lambda: lead.call("spawn_subtree", task="x", branch_name=name, role="coder"))


def _run(env: dict[str, str], repo: Path, numbers: Iterator[int]) -> float:
    words = ("run", "--role", "coder", "--name", f"r{next(numbers)}", "--detach")
    return timed(lambda: run(env, *words, cwd=str(repo)))


def _events(home: Home, lead: Relay, rounds: int) -> Iterator[Row]:
    """From the child's call to the parent's answer, both through their relays."""
    child = lead.call("spawn_subtree", task="x", branch_name="teller", role="coder")["name"]
    last = 0

    def ours(teller: Relay) -> float:
        nonlocal last
        lead.ask("wait_for_event", after=last)
        time.sleep(0.02)  # it waits when it is told
        began = time.perf_counter()
        teller.ask("notify_parent", status="success", message="x")
        event = lead.answer()
        taken = time.perf_counter() - began
        teller.answer()
        last = int(event["id"])
        return taken

    with Relay(home, child) as teller, echo(str(home.root / "echo.sock")) as bare:
        ours(teller)
        mine, echoed = interleaved(rounds, partial(ours, teller), bare.seconds)
    yield Row("17", "event to a waiting parent (of echo + 20 ms)", mine, echoed + MORE_SECONDS, 1.0)


def _start_relay(home: Home) -> float:
    """Its engine leaves at once."""
    line = relay_line(home, "lead")
    work: Callable[[], object] = partial(
        subprocess.run, line, stdin=subprocess.DEVNULL, env={}, check=True
    )
    return timed(work)


def _waiters(home: Home, waiters: int, seconds: float) -> Iterator[Row]:
    launch(home, waiters, at_once=4)
    pid = int(hub_file(home)["pid"])
    names = [f"agent-{number}" for number in range(waiters)]
    for name in names[:10]:  # what the first ones need stays
        _wait(home, name).close()
    _settle(pid)
    before = pss(pid)
    links = [_wait(home, name) for name in names]
    _settle(pid)
    each = max((pss(pid) - before) / waiters, LEAST_MB)
    yield Row(
        "w", f"hub's memory, each of {waiters} waiters (of 0.1 MB)", each, WAITER_MB, 1.0, "MB"
    )
    used, began = cpu_seconds(pid), time.monotonic()
    threading.Event().wait(seconds)
    share = (cpu_seconds(pid) - used) / (time.monotonic() - began) * 100
    yield Row(
        "w", f"idle CPU of the hub, {waiters} waiters (of 0.1 %)", share, IDLE_PERCENT, 1.0, "%"
    )
    for link in links:
        link.close()


def _wait(home: Home, agent: str) -> socket.socket:
    """An open call, as a relay has it: a hundred of them would be measured with the hub."""
    params = {"name": "wait_for_event", "arguments": {}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    head = (
        f"POST /agents/{agent}/mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        "content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    link = socket.socket(socket.AF_UNIX)
    link.connect(str(home.session(agent) / "api" / "hub.sock"))
    link.sendall((head + body).encode())
    return link


def _settle(pid: int) -> None:
    """Until it has used next to nothing for a while."""

    def rests() -> bool:
        before = cpu_seconds(pid)
        time.sleep(0.3)
        return cpu_seconds(pid) - before <= 0.01

    wait_until(rests)
