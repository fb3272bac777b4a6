"""Kill -9, at every step and at random: nothing that was acknowledged is lost or done twice."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bullpen import holder
from bullpen.errors import BullpenError, Kind
from bullpen.hot import wire
from bullpen.hub.agents import sessions
from bullpen.hub.agents import worktrees as agent_worktrees
from bullpen.hub.agents.stop import Stopper
from bullpen.hub.agents.watch import Watch
from bullpen.hub.holders import link as holder_link
from bullpen.hub.holders.factory import Factory
from bullpen.hub.holders.link import Link
from bullpen.hub.store.store import Store
from tests.hub.listener import Listener
from tests.hub.pen import Pen, change_hub, factory_pid, living_factory
from tests.hub.pods.support import deadly_hub
from tests.hub.programs import SLEEP, counter, python
from tests.hub.tasks.windows import Windows
from tests.processes import alive, kill, process_state
from tests.steps import Moment, after, before
from tests.waiting import wait_until
from tests.worktrees.repos import git, make_repo

pytestmark = pytest.mark.slow

KILLS = 20
AGENTS = 50
FEWEST_KILLS = 8
STORM_SECONDS = 65.0  # then that many will do, on a machine that is busy with others

# Keeps what is typed to it, line by line, in the file argv[1].
KEEPER = """
import sys
print("READY", flush=True)
for line in sys.stdin:
    with open(sys.argv[1], "a") as file:
        file.write(line)
"""


def runs(pen: Pen) -> dict[str, Counter[str]]:
    """For each run how often each kind of event was recorded."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for event in pen.events():
        if "run" in event and event["kind"] != "agent.state":
            found[event["run"]][event["kind"]] += 1
    return found


def assert_sound(pen: Pen) -> None:
    """What is true after whatever happened, once a hub has been started again."""
    for place in (pen.root / "sessions").iterdir():
        assert (place / "session.json").exists(), f"half-made: {place}"
    agents = pen.agents()
    told = runs(pen)
    for name, agent in agents.items():
        assert pen.record(name, "session.json")["run"] == agent["run"]
        assert agent["state"]["state"] != "starting", name
        assert alive(pen.program(name)) == agent["running"], name
        kinds = told[agent["run"]]
        assert kinds["agent.started"] == 1, (name, kinds)
        assert kinds["agent.stopped"] == (not agent["running"]), (name, kinds)
    for run, kinds in told.items():
        assert max(kinds[kind] for kind in kinds if kind != "agent.stopping") == 1, (run, kinds)


# ── at a given step ──

STARTING = {
    "session written": after(sessions.create),
    "about to be recorded": before(Store.append, 2),
    "recorded as starting": after(Store.append, 2),
    "worktree made": after(agent_worktrees.ensure_tree),
    "about to be held": before(Factory.hold),
    "held": after(Factory.hold),
    "recorded as started": before(Watch.reconcile),
    "connected": after(Watch.reconcile),
    "about to be given its prompt": before(holder_link.type_into),
    "given its prompt": after(holder_link.type_into),
}


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("spec", STARTING.values(), ids=STARTING.keys())
def test_b2_start_whose_hub_is_killed_happens_once(pen: Pen, tmp_path: Path, spec: str) -> None:
    repo = make_repo(tmp_path / "repo")
    kept = tmp_path / "kept"
    program = json.dumps(list(python(KEEPER, kept)))
    (pen.root / "roles" / "keeper.yaml").write_text(
        f"name: keeper\nagent_type: command\ncommand: {program}\ndeliver: lines\n"
        "worktree:\n  enabled: true\n  branch_from: main\n"
    )
    body = pen.launch(words=[], role="keeper", cwd=str(repo), prompt="do it")
    with deadly_hub(pen, spec):
        found = pen.client().post("agents", body=body, again=True)
    assert (found["name"], found["running"]) == ("keeper", True)
    assert list(pen.agents()) == ["keeper"]
    wait_until(lambda: kept.exists() and kept.read_text() == "do it\n")
    assert_sound(pen)
    programs = [pid for pid, what in pen.processes().items() if str(kept) in what]
    assert programs == [pen.program("keeper")]
    assert git(repo, "worktree", "list").count("\n") == 1
    # Asked once more, the same.
    assert pen.client().post("agents", body=body, again=True)["run"] == found["run"]
    pen.stop("keeper")
    assert kept.read_text() == "do it\n"
    assert_sound(pen)


@pytest.mark.storm
@pytest.mark.slow
@pytest.mark.parametrize("name", [None, "chosen"], ids=["any name", "given name"])
def test_b2_start_whose_hubs_are_killed_again_and_again_happens_once(
    pen: Pen, name: str | None
) -> None:
    body = pen.launch(*SLEEP, name=name)
    for spec in ("session written", "about to be held", "recorded as starting", "session written"):
        step = STARTING[spec]
        if spec == "session written" and list((pen.root / "sessions").iterdir()):
            step = after(sessions.rewrite)
        # Some of them die while they take up what the one before left.
        with deadly_hub(pen, step), contextlib.suppress(wire.HubError):
            pen.ask("POST", "/agents", body)
    found = pen.client().post("agents", body=body, again=True)
    assert list(pen.agents()) == [name or "sleep"]
    assert found["running"]
    assert_sound(pen)
    assert pen.client().post("agents", body=body, again=True)["run"] == found["run"]


@pytest.mark.storm
@pytest.mark.slow
@pytest.mark.parametrize("moment", [before, after])
def test_b2_failed_start_whose_hub_is_killed_while_it_is_taken_back(
    pen: Pen, moment: Moment
) -> None:
    body = pen.launch("/no/such/program", name="never")
    spec = moment(sessions.take_back)
    with deadly_hub(pen, spec), pytest.raises(BullpenError, match="/no/such/program"):
        pen.client().post("agents", body=body, again=True)
    assert all(not agent["running"] for agent in pen.agents().values())
    assert pen.run(name="never")["running"]
    assert_sound(pen)


STOPPING = {
    "about to be recorded": before(Stopper.stop),
    "recorded": before(Link.ask),
    "asked": after(Link.ask),
    "ended, not recorded": before(Watch._conclude),
    "ended and recorded": after(Watch._conclude),
}


@pytest.mark.storm
@pytest.mark.slow
@pytest.mark.parametrize("spec", STOPPING.values(), ids=STOPPING.keys())
def test_b2_stop_whose_hub_is_killed_happens(pen: Pen, spec: str) -> None:
    pen.run(name="other")
    pen.run(name="ending")
    pen.kill_hub()
    with deadly_hub(pen, spec):
        found = pen.client().delete("agents", "ending", grace=1)
    assert found["words"] == "exited (signal 15)"
    assert not alive(pen.program("ending"))
    assert pen.agents()["other"]["running"]
    assert_sound(pen)


@pytest.mark.storm
@pytest.mark.slow
@pytest.mark.parametrize("moment", [before, after])
def test_b2_end_that_a_killed_hub_saw_is_recorded_once(pen: Pen, moment: Moment) -> None:
    with deadly_hub(pen, moment(Watch._conclude)):
        pen.run(*python("import sys; sys.stdin.readline(); sys.exit(7)"), name="ending")
        gone(lambda: pen.ask("POST", "/agents/ending/input", {"text": "\r"}))
    wait_until(lambda: pen.state("ending") == "exited (7)")
    wait_until(lambda: len(pen.events("ending", "agent.stopped")) == 1)
    assert_sound(pen)


@pytest.mark.storm
def test_b2_restart_whose_hub_is_killed_loses_nothing(pen: Pen) -> None:
    pen.run(name="again")
    env = (pen.session("again") / "private" / "env").read_bytes()
    pen.kill_hub()
    with deadly_hub(pen, after(sessions.rewrite)), pytest.raises(wire.HubGone):
        pen.ask("POST", "/agents/again/restart?grace=0")
    pen.start()
    assert pen.state("again").startswith("lost (the hub was killed before it could start")
    assert (pen.session("again") / "private" / "env").read_bytes() == env
    assert pen.client().post("agents", "again", "restart")["running"]
    for run, kinds in runs(pen).items():
        assert kinds["agent.started"] <= 1, run
        assert kinds["agent.stopped"] <= 1, run


@pytest.mark.storm
def test_b1_hub_told_to_stop_takes_a_start_under_way_back(pen: Pen, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    (pen.root / "roles" / "slow.yaml").write_text(
        'name: slow\nagent_type: command\ncommand: ["/bin/sleep", "1000"]\n'
        "sandbox: {enabled: false}\n"
        "worktree:\n  enabled: true\n  branch_from: main\n"
        f"  setup: touch {tmp_path}/at; while ! test -e {tmp_path}/go; do sleep 0.05; done\n"
    )
    change_hub(pen, "from bullpen.hub import background; background.LEAVE_SECONDS = 60.0")
    body = pen.launch(words=[], role="slow", cwd=str(repo))
    with ThreadPoolExecutor(2) as pool:
        asking = pool.submit(pen.ask, "POST", "/agents", body)
        wait_until((tmp_path / "at").exists)
        stopping = pool.submit(pen.cli, "hub", "stop")
        # Answers under way have a little time; then they are told to end.
        wait_until(lambda: any("graceful shutdown" in line["message"] for line in pen.logged()))
        (tmp_path / "go").touch()
        assert stopping.result().out == "hub stopped; agents go on\n"
        status, answer = asking.result()
    assert status == 503
    assert "told to stop" in answer["message"]
    assert list((pen.root / "sessions").iterdir()) == []
    assert git(repo, "worktree", "list").count("\n") == 0
    assert pen.client().post("agents", body=body, again=True)["running"]
    assert list(pen.agents()) == ["slow"]
    assert_sound(pen)


@pytest.mark.storm
def test_b1_hub_told_to_stop_does_not_wait_for_an_endless_set_up(pen: Pen, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    note = tmp_path / "at"
    (pen.root / "roles" / "slow.yaml").write_text(
        'name: slow\nagent_type: command\ncommand: ["/bin/sleep", "1000"]\n'
        "sandbox: {enabled: false}\n"
        "worktree:\n  enabled: true\n  branch_from: main\n"
        f"  setup: test -e {note} || {{ echo $$ > {note}; sleep 1000; }}\n"
    )
    pen.run(name="stays")
    body = pen.launch(words=[], role="slow", cwd=str(repo))
    asking = threading.Thread(target=lambda: gone(lambda: pen.ask("POST", "/agents", body)))
    asking.start()
    wait_until(lambda: note.exists() and note.read_text().endswith("\n"))
    assert pen.cli("hub", "stop").out == "hub stopped; agents go on\n"
    asking.join(60)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(int(note.read_text()), signal.SIGKILL)  # an orphan, as after a crash
    assert pen.client().post("agents", body=body, again=True)["running"]
    assert sorted(pen.agents()) == ["slow", "stays"]
    assert_sound(pen)


def gone(ask: Callable[[], Any]) -> None:
    """Whether the hub answers before it dies is open."""
    with contextlib.suppress(wire.HubGone):
        ask()


# ── at random ──


class Storm:
    """Threads that start, stop, type and look, and remember what was acknowledged."""

    def __init__(self, pen: Pen, seed: int) -> None:
        self.pen = pen
        self.random = random.Random(seed)
        self.in_flight: Counter[str] = Counter()
        self.started: dict[str, dict[str, Any]] = {}
        self.stopped: set[str] = set()
        self.typed = 0
        self.refused: list[str] = []
        self.errors: list[BaseException] = []
        self.over = threading.Event()
        self._guard = threading.Lock()
        self._threads: list[threading.Thread] = []

    def begin(self, *works: Callable[[random.Random], None]) -> None:
        for number, work in enumerate(works):
            chance = random.Random(self.random.random() + number)
            thread = threading.Thread(target=self._loop, args=(work, chance), daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        if self.errors:
            raise self.errors[0]

    def _loop(self, work: Callable[[random.Random], None], chance: random.Random) -> None:
        try:
            while not self.over.is_set():
                work(chance)
        except BaseException as error:  # noqa: BLE001 - raised again at the end
            self.errors.append(error)

    @contextlib.contextmanager
    def asking(self, what: str) -> Iterator[None]:
        with self._guard:
            self.in_flight[what] += 1
        try:
            yield
        finally:
            with self._guard:
                self.in_flight[what] -= 1

    def patiently(self, what: str, ask: Callable[[], Any]) -> Any:
        """Ask until there is an answer; a hub that is away is no answer."""
        deadline = time.monotonic() + 50
        while True:
            try:
                with self.asking(what):
                    return ask()
            except BullpenError as error:
                if error.kind is not Kind.UNAVAILABLE or time.monotonic() > deadline:
                    raise
                self.refused.append(error.message)

    # ── the works ──

    def start_and_stop(self, chance: random.Random) -> None:
        name = f"s-{uuid.uuid4().hex[:8]}"
        words = counter() if chance.random() < 0.3 else SLEEP
        body = self.pen.launch(*words, name=name)
        found = self.patiently(
            "start", lambda: self.pen.client().post("agents", body=body, again=True)
        )
        assert found["name"] == name
        assert found["running"], found
        self.started[name] = found
        if chance.random() < 0.8:
            self.patiently("stop", lambda: self.pen.client().delete("agents", name, grace=1))
            self.stopped.add(name)

    def type(self, chance: random.Random) -> None:
        text = f"line {self.typed}\r"
        with contextlib.suppress(wire.HubError), self.asking("type"):
            status, _ = self.pen.ask("POST", "/agents/typed/input", {"text": text})
            self.typed += status == 200
        self.over.wait(chance.random() * 0.01)

    def look(self, chance: random.Random) -> None:
        known = set(self.started)
        found = self.patiently("look", lambda: self.pen.client().get("agents"))
        names = {agent["name"] for agent in found["agents"]}
        assert known - names == set() or self.over.is_set()
        assert not found["broken"], found["broken"]
        self.over.wait(chance.random() * 0.05)


def cut_short(pen: Pen, kills: list[float]) -> Counter[str]:
    """How often a kill came between the steps of a start or a stop, by what was recorded."""
    begun: dict[str, tuple[str, float]] = {}
    found: Counter[str] = Counter()
    for event in pen.events():
        if event["kind"] in ("agent.starting", "agent.stopping"):
            begun[event["run"]] = (event["kind"], event["time"])
        elif event["kind"] in ("agent.started", "agent.stopped") and event["run"] in begun:
            what, first = begun.pop(event["run"])
            found[what] += any(first <= kill <= event["time"] for kill in kills)
    return found


def ids(pen: Pen) -> list[int]:
    """Of all that was recorded; a hub that runs may record more."""
    return [event["id"] for event in pen.events()]


def assert_counted(text: bytes) -> int:
    """Every number from 1 on, none missing, none twice; the last one may be cut."""
    lines = text.split(b"\r\n")[:-1]
    assert lines == [str(number).encode() for number in range(1, len(lines) + 1)]
    return len(lines)


@pytest.mark.storm
def test_k1_storm_of_kills_of_the_hub(pen: Pen, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    began = time.monotonic()
    pen.start()
    kept = tmp_path / "kept"
    for number in range(AGENTS):
        pen.run(*counter(0.2), name=f"c{number}")
    pen.run(*python(KEEPER, kept), name="typed")
    programs = {name: pen.program(name) for name in pen.agents()}
    listener = Listener(pen)
    storm = Storm(pen, seed)
    storm.begin(*[storm.start_and_stop] * 3, storm.type, storm.look)
    hits: Counter[str] = Counter()
    served: list[int] = []
    kills: list[float] = []
    most_locks = 0
    while len(served) < FEWEST_KILLS or (
        len(served) < KILLS and time.monotonic() < began + STORM_SECONDS
    ):
        wait_until(lambda: pen.answers() and pen.pid not in served)
        pid = pen.pid
        pause = storm.random.random() * 0.4
        deadline = time.monotonic() + pause
        while time.monotonic() < deadline:
            most_locks = max(most_locks, len(pen.lock_holders()))
            storm.over.wait(0.01)
        hits.update({what: 1 for what, count in storm.in_flight.items() if count})
        os.kill(pid, signal.SIGKILL)
        kills.append(time.time())
        served.append(pid)
    storm.end()
    pen.start()
    cut = cut_short(pen, kills)
    print(
        f"{time.monotonic() - began:.1f} s, {len(served)} kills, {len(storm.started)} started,"
        f" {len(storm.stopped)} stopped, {storm.typed} typed; asked at the moment of a kill:"
        f" {dict(hits)}; begun by one hub and finished by another: {dict(cut)};"
        f" {listener.cuts} cuts; refused: {Counter(storm.refused).most_common(4)}"
    )

    assert hits["start"] + hits["stop"] > 0
    assert cut.total() > 0, "no kill came between two steps of anything"
    assert most_locks == 1
    # It is recorded before it serves, and logged after.
    serving = [line["pid"] for line in pen.logged("serving")]
    assert len(set(serving)) == len(serving)
    assert set(served) <= {event["pid"] for event in pen.events(kind="hub.started")}

    assert {name: alive(pid) for name, pid in programs.items()} == dict.fromkeys(programs, True)
    agents = pen.agents()
    assert {name for name in storm.started if name not in agents} == set()
    assert {name for name in storm.stopped if agents[name]["running"]} == set()
    assert {name for name in storm.stopped if alive(pen.program(name))} == set()
    going_on = {*programs, *(set(storm.started) - storm.stopped)}
    assert {name for name in going_on if not agents[name]["running"]} == set()
    for name in going_on:
        if name.startswith("c"):
            assert assert_counted(pen.log(name)) > 20
    assert_sound(pen)
    told = runs(pen)
    for name, found in storm.started.items():
        kinds = told[found["run"]]
        assert kinds["agent.starting"] <= 1
        assert kinds["agent.started"] == 1
        assert kinds["agent.stopped"] == (name in storm.stopped), (name, kinds)

    wait_until(lambda: listener.ids == ids(pen))
    listener.close()
    lines = kept.read_text().split("\n")[:-1]
    assert len(lines) >= storm.typed


@pytest.mark.storm
def test_k6_storm_of_kills_of_the_factory(pen: Pen) -> None:
    pen.start()
    for number in range(10):
        pen.run(*counter(0.05), name=f"c{number}")
    programs = {name: pen.program(name) for name in pen.agents()}
    hub = pen.pid
    storm = Storm(pen, random.randrange(1 << 30))
    storm.begin(*[storm.start_and_stop] * 3)
    hits: Counter[str] = Counter()
    killed = 0
    while killed < 25:
        pid = living_factory(pen)
        storm.over.wait(storm.random.random() * 0.15)
        hits.update({what: 1 for what, count in storm.in_flight.items() if count})
        kill(pid)
        killed += 1
        wait_until(lambda pid=pid: factory_pid(pen) not in (None, pid))
    storm.end()
    assert pen.pid == hub
    assert hits["start"] > 0
    assert {name: alive(pid) for name, pid in programs.items()} == dict.fromkeys(programs, True)
    agents = pen.agents()
    assert {name for name in storm.stopped if agents[name]["running"]} == set()
    left = {name for name in set(storm.started) - storm.stopped if not agents[name]["running"]}
    assert left == set()
    for name in programs:
        assert_counted(pen.log(name))
    print(f"{killed} kills, {dict(hits)}, {len(storm.started)} started, refused {storm.refused}")
    assert_sound(pen)


SPAWNED = after(Factory._spawn)


def test_k6_factory_of_a_killed_hub_that_comes_late_does_not_keep_the_next_from_starting(
    pen: Pen, tmp_path: Path
) -> None:
    windows = Windows(tmp_path / "windows", [SPAWNED])
    pen.env["PYTHONPATH"] = str(windows.place)
    with ThreadPoolExecutor(1) as pool:
        with windows.pause(SPAWNED):
            starting = pool.submit(pen.start)
            windows.wait_hit(SPAWNED)
            wait_until(lambda: factory_pid(pen) is not None)
            late = subprocess.Popen(holder.command(str(pen.home.factory_socket)))
            wait_until(lambda: factory_pid(pen) == late.pid)
        starting.result()
    assert late.wait(60) == 0
    pen.run(*SLEEP)


# ── a client that stands still ──

WATCHER = """
import json, socket, struct, sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
line.sendall(b"A" + struct.pack(">I", 2) + b"{}")
rest, dropped, last = b"", False, b""
while True:
    piece = line.recv(65536)
    if not piece:
        break
    rest += piece
    while len(rest) >= 5:
        length = struct.unpack(">I", rest[1:5])[0]
        if len(rest) < 5 + length:
            break
        if rest[:1] == b"D" and not dropped:
            dropped = True
            print("DROPPED", flush=True)
        if rest[:1] == b"P":
            print("ATTACHED", flush=True)
        rest = rest[5 + length:]
"""


@pytest.mark.storm
def test_k2_stopped_client_stalls_neither_the_program_nor_others(pen: Pen) -> None:
    flood = "import os\nn = 0\nwhile True:\n n += 1\n os.write(1, (b'%d\\n' % n) * 500)"
    pen.run(*python(flood), name="flood")
    words = [sys.executable, "-I", "-S", "-c", WATCHER, str(pen.home.socket("flood"))]
    watcher = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == b"ATTACHED\n"
        os.kill(watcher.pid, signal.SIGSTOP)
        wait_until(lambda: process_state(watcher.pid) == "T")
        # What its log holds is no measure: it begins a new one now and then.
        asking = pen.connect("flood")
        size = asking.status()["bytes"]
        wait_until(lambda: asking.status()["bytes"] > size + (8 << 20))
        other = pen.connect("flood")
        other.attach()
        seen = len(other.output)
        other.collect(seen + (2 << 20))
        assert pen.ask("GET", "/agents/flood/screen")[0] == 200
        os.kill(watcher.pid, signal.SIGCONT)
        assert watcher.stdout.readline() == b"DROPPED\n"
        other.close()
        assert pen.stop("flood", grace=5)["words"] == "exited (signal 15)"
        assert watcher.wait(60) == 0
    finally:
        watcher.kill()
        watcher.wait()
        if watcher.stdout:
            watcher.stdout.close()


@pytest.mark.storm
def test_b1_restarts_of_the_hub_fail_no_command(pen: Pen) -> None:
    pen.run(*counter(0.05), name="c0")
    storm = Storm(pen, 1)
    listener = Listener(pen)
    storm.begin(storm.start_and_stop, storm.start_and_stop, storm.look)
    hubs = {pen.pid}
    for _ in range(4):
        assert pen.cli("hub", "restart").code == 0
        hubs.add(pen.pid)
    storm.end()
    assert len(hubs) == 5
    assert storm.refused == []
    assert_counted(pen.log("c0"))
    assert_sound(pen)
    wait_until(lambda: listener.ids == ids(pen))
    listener.close()
