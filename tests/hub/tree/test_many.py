"""Many agents at once: 40 spawn and report together, 100 wait on one hub."""

import contextlib
import itertools
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.hub.tree.support import Grove, made_grove
from tests.processes import cpu_seconds
from tests.waiting import quiet_for, wait_until

pytestmark = pytest.mark.storm

WINDOW_SECONDS = 5.0
MOST_WINDOWS = 30


@contextlib.contextmanager
def made_large_grove() -> Iterator[Grove]:
    with made_grove() as grove:
        config = grove.pen.root / "config.yaml"
        config.write_text(config.read_text() + "max_agents: 500\n")
        yield grove


def test_m2_m3_forty_agents_spawn_and_report_at_once_and_each_is_heard_once() -> None:
    with made_large_grove() as grove:
        leads = [f"lead{number}" for number in range(40)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(grove.run, leads))

        def live(lead: str) -> dict[str, Any]:
            wish = {"name": "kid", "task": "x", "role": "boss"}
            [started] = grove.call(lead, "spawn_workers", workers=[wish])["started"]
            grove.call(started["name"], "notify_parent", status="success", message=lead)
            return dict(grove.wait(lead, seconds=300))

        with ThreadPoolExecutor(40) as pool:
            heard = list(pool.map(live, leads))
        assert [event["data"]["message"] for event in heard] == leads
        for lead in leads:
            assert grove.kinds(lead) == [(f"{lead}.w.kid", "child_finished")]
        parents = {
            child["name"]: lead["name"]
            for lead in grove.pen.client().get("tree")["agents"]
            for child in lead["children"]
        }
        assert parents == {f"{lead}.w.kid": lead for lead in leads}


class Waiter:
    """An open call of `wait_for_event`, as the relay makes it."""

    def __init__(self, grove: Grove, agent: str) -> None:
        params = {"name": "wait_for_event", "arguments": {}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        head = (
            f"POST /agents/{agent}/mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            "content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self.link = socket.socket(socket.AF_UNIX)
        self.link.settimeout(300)
        self.link.connect(str(grove.pen.session(agent) / "api" / "hub.sock"))
        self.link.sendall((head + body).encode())

    def answer(self) -> str:
        with self.link, self.link.makefile("rb") as file:
            return file.read().decode()


def private_kb(pid: int) -> int:
    """Memory that is the process's own."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def test_m4_a_hundred_waiters_cost_no_time_and_little_memory_and_all_are_answered() -> None:
    with made_large_grove() as grove:
        names = [f"a{number}" for number in range(100)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(grove.run, names))
        for name in names[:10]:  # what the first calls load is not theirs
            grove.wait(name, seconds=0.01)
        hub = grove.pen.pid
        settle(hub)
        sizes = [private_kb(hub)]
        waiters = []
        for _ in range(3):  # something else may grow beside one of them
            waiters += [Waiter(grove, name) for name in names]
            settle(hub)
            sizes.append(private_kb(hub))
        growth = [after - before for before, after in itertools.pairwise(sizes)]
        assert min(growth) / len(names) <= 100
        assert min(idle_shares(hub)) <= 0.001
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: grove.pen.cli("send", name, f"for {name}"), names))
            answers = list(pool.map(Waiter.answer, waiters))
        assert all('\\"kind\\": \\"message\\"' in answer for answer in answers), answers[0]


def settle(pid: int) -> None:
    """Until it rests."""

    def rests() -> bool:
        before = cpu_seconds(pid)
        quiet_for(1.0)
        return cpu_seconds(pid) - before < 0.005

    wait_until(rests, 120)


def idle_shares(pid: int) -> Iterator[float]:
    """Of a core, in stretches of time, until one of them is as it should be: something else may
    happen in a few of them, and a hub that polls does so in all."""
    for _ in range(MOST_WINDOWS):
        before = cpu_seconds(pid)
        quiet_for(WINDOW_SECONDS)
        share = (cpu_seconds(pid) - before) / WINDOW_SECONDS
        yield share
        if share <= 0.001:
            return
