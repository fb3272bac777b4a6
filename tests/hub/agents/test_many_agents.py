"""Many agents on one hub. Figures are printed; asserted are ratios and sanity only."""

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.commands import BULLPEN
from tests.hub.pen import Pen
from tests.hub.programs import SLEEP
from tests.processes import alive, cpu_seconds, ticks
from tests.waiting import quiet_for, wait_until

AT_ONCE = 16
IDLE_SECONDS = 5.0

pytestmark = pytest.mark.slow


def memory(pid: int, field: str) -> float:
    """MB of that field of smaps_rollup."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(field)) / 1024


def timed(env: dict[str, str], *commands: list[str], times: int = 9) -> list[float]:
    """Milliseconds of each, the median. In turns: a machine may be busier now than in a moment."""
    taken: list[list[float]] = [[] for _ in commands]
    for _ in range(times):
        for argv, each in zip(commands, taken, strict=True):
            began = time.perf_counter()
            subprocess.run(argv, env=env, check=True, stdin=subprocess.DEVNULL, capture_output=True)
            each.append((time.perf_counter() - began) * 1000)
    return [statistics.median(each) for each in taken]


@pytest.mark.parametrize("number", [60, pytest.param(500, marks=pytest.mark.storm)])
def test_b7_many_agents(pen: Pen, number: int) -> None:
    hub = pen.start()
    bare = [os.path.realpath(sys.executable), "-S", "-E", "-c", "pass"]
    env = {**pen.env, "BULLPEN_DIR": str(pen.root)}
    (few,) = timed(env, [str(BULLPEN), "list"])
    empty_hub = memory(hub, "Pss:")

    def launch(each: int) -> float:
        began = time.perf_counter()
        assert pen.run(*SLEEP, name=f"a{each}")["running"]
        return (time.perf_counter() - began) * 1000

    def cost(*numbers: int) -> float:
        """Milliseconds of the hub's CPU for each: what a busy machine does not change."""
        before = ticks(hub)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            each.extend(pool.map(launch, numbers))
        return (ticks(hub) - before) * 10 / len(numbers)

    each: list[float] = []
    began = time.perf_counter()
    edges = [0, number // 3, number * 2 // 3, number]
    first, _, last = (cost(*range(*pair)) for pair in itertools.pairwise(edges))
    whole = time.perf_counter() - began
    print(
        f"\n{number} launched in {whole:.1f} s: {whole / number * 1000:.1f} ms each"
        f" ({AT_ONCE} at once; an answer takes {statistics.median(each):.0f} ms,"
        f" {first:.0f} ms of the hub's CPU at first, {last:.0f} ms at last)"
    )
    assert last < 3 * first + 10, "a start costs more, the more there are"

    listed = pen.cli("list")
    assert listed.code == 0
    assert len(listed.out.splitlines()) == number + 1
    base, many = timed(env, bare, [str(BULLPEN), "list"])
    print(f"list: {few:.1f} ms with none, {many:.1f} ms with {number}; bare Python {base:.1f} ms")
    assert many < 10 * base + 100

    holders = [pen.holder(name) for name in pen.agents()]
    samples = [memory(pid, "Pss:") for pid in holders[::10]]
    print(
        f"memory (PSS): hub {empty_hub:.0f} MB empty, {memory(hub, 'Pss:'):.0f} MB with {number};"
        f" a holder {statistics.mean(samples):.2f} MB"
    )
    assert memory(hub, "Pss:") < empty_hub + 0.5 * number
    assert statistics.mean(samples) < 4

    processes = [hub, *holders]

    def is_idle() -> bool:
        before = {pid: cpu_seconds(pid) for pid in processes}
        quiet_for(IDLE_SECONDS)
        spent = {pid: cpu_seconds(pid) - before[pid] for pid in processes}
        share = spent[hub] / IDLE_SECONDS * 100
        others = (sum(spent.values()) - spent[hub]) / IDLE_SECONDS * 100
        print(f"idle: hub {share:.4f} % of a core, all holders {others:.4f} %")
        return share < 1.0 and others < 1.0

    wait_until(is_idle)  # something is left to do after the last answer

    pen.kill_hub()
    began = time.perf_counter()
    hub = pen.start()
    print(f"killed -9 and started again: all found in {time.perf_counter() - began:.1f} s")
    agents = pen.agents()
    assert len(agents) == number

    def words() -> set[str]:
        return {agent["words"] for agent in pen.agents().values()}

    # A holder that says nothing for a while is not waited for.
    wait_until(lambda: words() == {"unknown (it reports no state)"})

    programs = [pen.program(name) for name in agents]
    began = time.perf_counter()
    stopped = pen.cli("stop", "--all", "--json", seconds=300)
    whole = time.perf_counter() - began
    assert stopped.code == 0, stopped.err
    assert len(json.loads(stopped.out)["agents"]) == number
    print(f"stop --all: {whole:.1f} s, {whole / number * 1000:.1f} ms each")
    assert not any(map(alive, programs))
    wait_until(lambda: not any(map(alive, holders)))
    assert list((pen.root / "sockets").glob("agent.*")) == []
    kinds = [event["kind"] for event in pen.events()]
    assert kinds.count("agent.started") == kinds.count("agent.stopped") == number
    assert pen.cli("hub", "stop").code == 0
    wait_until(lambda: pen.processes() == {})
