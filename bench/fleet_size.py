"""Row 22: what a fleet costs its server and its hubs: very many hosts that are simulated, as far as
the server sees them (`bench/simulated_hosts`), and a few real hubs, all on this machine.

What grows with the number of hosts must not grow with its square: what one host costs is compared
at two sizes. `docs/fleet.md` has what follows for a thousand.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial

from bench.hubs import hub_file, hub_home, launch, run
from bench.nats_server import Server, fleet_server
from bench.processes import exact_cpu_seconds, rss_mb
from bench.simulated_hosts import AGENTS, SimulatedHosts, simulated_hosts
from bench.starts import compile_all, start
from bench.table import BULLPEN, Row, interleaved, timed, wait_until
from bench.tasks import do_tasks, start_workers
from bullpen.client import Hub
from bullpen.client.fleet import get_fleet
from bullpen.client.messages import send_message
from bullpen.home.paths import Home

THOUSAND_BEATS_SECONDS = 2.0 / 1000  # a thousand hosts say every two seconds that they are there
IDLE_ALONE = 0.1  # per cent of a core, as in row 13
AT_ONCE = 8
RECEIVED = "SELECT COUNT(*) FROM messages WHERE recipient = 'agent-0'"


@dataclass(frozen=True)
class Sizes:
    """How much of each."""

    few: int
    many: int
    seconds: float
    beats: int
    hubs: int
    agents: int  # of each hub
    rounds: int
    tasks: int
    messages: int


SHORT = Sizes(few=1, many=2, seconds=1.0, beats=4, hubs=2, agents=1, rounds=1, tasks=4, messages=4)
FULL = Sizes(
    few=25,
    many=100,
    seconds=30.0,
    beats=4000,
    hubs=5,
    agents=4,
    rounds=15,
    tasks=200,
    messages=400,
)


@dataclass(frozen=True)
class Used:
    """What one host costs the server while nothing happens."""

    percent: float  # of a core
    bytes: float  # a second, both ways


def rows(short: bool) -> Iterator[Row]:
    """The server's costs first, then those of hubs in the same fleet."""
    sizes = SHORT if short else FULL
    compile_all()
    simulated = [f"s{number}" for number in range(sizes.many)]
    real = [f"h{number}" for number in range(sizes.hubs)]
    with fleet_server([*simulated, *real]) as server:
        empty = rss_mb(server.pid)
        with simulated_hosts("presence", server, simulated[: sizes.few]) as hosts:
            few = _used(server, hosts, sizes.few, sizes.seconds)
        with simulated_hosts("presence", server, simulated) as hosts:
            many = _used(server, hosts, sizes.many, sizes.seconds)
            beat = hosts.ask(f"beats {sizes.beats}") / sizes.beats
        size = f"{sizes.many} hosts beside {sizes.few}"
        yield Row("22", f"presence, CPU each: {size}", many.percent, few.percent, 1.3, "%")
        yield Row("22", f"presence, traffic each: {size}", many.bytes, few.bytes, 1.3, "B/s")
        what = "a beat, all at once (of 1,000 hosts each 2 s)"
        yield Row("22", what, beat, THOUSAND_BEATS_SECONDS, 1.0)
        with simulated_hosts("whole", server, simulated) as hosts:
            whole = _used(server, hosts, sizes.many, sizes.seconds)
            what = "an idle host, {}, beside its presence"
            yield Row("22", what.format("CPU"), whole.percent, many.percent, None, "%")
            yield Row("22", what.format("traffic"), whole.bytes, many.bytes, None, "B/s")
            what = f"the server with {sizes.many} idle hosts, beside none"
            yield Row("22", what, rss_mb(server.pid), empty, None, "MB")
            yield from _hubs(server, real, sizes)


def _used(server: Server, hosts: SimulatedHosts, count: int, seconds: float) -> Used:
    cpu, moved, began = exact_cpu_seconds(server.pid), hosts.ask("bytes"), time.monotonic()
    threading.Event().wait(seconds)
    passed = time.monotonic() - began
    share = (exact_cpu_seconds(server.pid) - cpu) / passed * 100
    return Used(share / count, (hosts.ask("bytes") - moved) / passed / count)


def _hubs(server: Server, names: Sequence[str], sizes: Sizes) -> Iterator[Row]:
    """Those of real hubs beside so many others. The first one asks, the second is written to."""
    with ExitStack() as stack:
        homes = [stack.enter_context(hub_home()) for _ in names]
        for home, env in homes:
            start_workers(home, env, sizes.agents)
        (first, env), (second, _) = homes[:2]
        for home in (first, second):
            launch(home, 1, at_once=1)
        pid = int(hub_file(first)["pid"])
        listed = partial(start, [BULLPEN, "list"], env)
        all_listed = partial(start, [BULLPEN, "list", "--fleet"], env)
        interleaved(sizes.rounds, listed, all_listed)
        alone = rss_mb(pid)
        for name, (_, each) in zip(names, homes, strict=True):
            run(each, "fleet", "join", str(server.keys[name]), "--url", server.url)
        count = sizes.many + sizes.hubs
        wait_until(lambda: _reachable(first) == count, 0.1)
        of_all, of_one = interleaved(sizes.rounds, all_listed, listed)
        agents = sizes.many * AGENTS + sizes.hubs * sizes.agents + 2
        yield Row("22", f"list --fleet ({count} hosts, {agents} agents)", of_all, of_one, 3.0)
        yield Row("22", "a hub in that fleet, beside alone", rss_mb(pid), alone, 1.25, "MB")
        used, began = exact_cpu_seconds(pid), time.monotonic()
        threading.Event().wait(sizes.seconds)
        share = (exact_cpu_seconds(pid) - used) / (time.monotonic() - began) * 100
        yield Row("22", "idle CPU of a hub there, beside 0.1 %", share, IDLE_ALONE, None, "%")
        yield from _work(first, second, names[1], sizes)


def _reachable(home: Home) -> int:
    shown = Hub(home, start=False).do(get_fleet().unchecked())
    return sum(host.reachable for host in shown.hosts)


def _work(first: Home, second: Home, name: str, sizes: Sizes) -> Iterator[Row]:
    at_once = 2 * sizes.hubs * sizes.agents
    for fleet in (None, True):  # the first ones are slower
        do_tasks(first, at_once, at_once, fleet)
    others = timed(partial(do_tasks, first, sizes.tasks, at_once, True)) / sizes.tasks
    own = timed(partial(do_tasks, first, sizes.tasks, at_once)) / sizes.tasks
    what = f"a task, {sizes.hubs * sizes.agents} agents anywhere, beside one hub"
    yield Row("22", what, others, own, None)
    away = _sent(first, f"{name}/agent-0", second, sizes.messages)
    home = _sent(first, "agent-0", first, sizes.messages)
    yield Row("22", "a message to another machine, beside home", away, home, None)


def _sent(first: Home, to: str, receiver: Home, count: int) -> float:
    """Seconds for each of so many messages, until all are in their receiver's database."""

    def send(number: int) -> None:
        Hub(first, start=False).do(send_message(to, f"message {number}").unchecked())

    with closing(sqlite3.connect(receiver.root / "state.db")) as database:
        begun = time.perf_counter()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(send, range(count)))
        wait_until(lambda: bool(database.execute(RECEIVED).fetchone()[0] >= count), 0.005)
        return (time.perf_counter() - begun) / count
