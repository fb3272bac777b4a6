"""`discover`, `shutdown` and `kill --all`, with real hubs, agents and components; two homes side by
side that leave each other alone."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bullpen import proc
from bullpen.client import components
from bullpen.component import ask as asking
from bullpen.component import ports
from bullpen.errors import BullpenError, Kind
from bullpen.paths import HUB
from tests.api.http import ask
from tests.commands import BULLPEN
from tests.component.sample_process import Sample, running
from tests.hub.pen import Pen, made_pen
from tests.hub.programs import STUBBORN, python
from tests.ports import reserved_port
from tests.processes import alive, process_state
from tests.tasks.desk import Desk, made_desk
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def hub_port(pen: Pen) -> int:
    return int((pen.root / "config.yaml").read_text().split("port: ")[1].split()[0])


def set_range(pen: Pen, *found: int) -> None:
    """Where this home looks; components at other ports are known by the register only."""
    config = pen.root / "config.yaml"
    text = config.read_text().split("discovery:")[0]
    config.write_text(f"{text}discovery:\n  port_range: {min(found)}-{max(found)}\n")


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        set_range(made, hub_port(made))
        made.start()
        yield made


@pytest.fixture
def other() -> Iterator[Pen]:
    with made_pen() as made:
        set_range(made, hub_port(made))
        made.start()
        yield made


@pytest.fixture
def sample(pen: Pen) -> Iterator[Sample]:
    with reserved_port() as port, running(pen.home, "sam", port) as made:
        made.wait_for("idle")
        wait_until(lambda: registered(pen) == ["sam"])
        yield made


def registered(pen: Pen) -> list[str]:
    return [one["name"] for one in ask(pen.home.socket(HUB), "GET", "/components").json]


def discovered(pen: Pen, *words: str) -> list[dict[str, Any]]:
    done = pen.cli("discover", "--json", *words)
    assert done.code == 0, done.err
    found: list[dict[str, Any]] = done.json
    return found


def named(found: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(one["type"], one["name"], one["home"]) for one in found}


# ── discover ──


def test_f1_the_scan_and_the_register_are_shown(pen: Pen, sample: Sample) -> None:
    found = {one["name"]: one for one in discovered(pen)}
    assert set(found) == {"hub", "sam"}
    assert (found["sam"]["type"], found["sam"]["state"]) == ("director", "idle")
    assert found["sam"]["port"] == sample.port  # not in the range: known by the register
    assert {one["home"] for one in found.values()} == {"own"}
    lines = pen.cli("discover").out.splitlines()
    assert lines[0].split() == ["TYPE", "NAME", "STATE", "PORT", "VERSION", "HOME"]
    row = next(line for line in lines if "sam" in line)
    assert row.split() == ["director", "sam", "idle", str(sample.port), "0.1.0", "own"]


def test_f1_who_says_that_it_is_another_does_not_hide_that_one(
    pen: Pen, sample: Sample, tmp_path: Path
) -> None:
    with reserved_port() as port:
        set_range(pen, port)
        with thief(pen, port, tmp_path / "stolen", as_other=False):
            found = [one["port"] for one in discovered(pen) if one["name"] == "sam"]
            assert sorted(found) == sorted([sample.port, port])


def test_f1_filtered_by_interface(pen: Pen, sample: Sample) -> None:
    assert named(discovered(pen, "--interface", "taskable")) == {("director", "sam", "own")}
    assert named(discovered(pen, "--interface", "observable")) == {("hub", "hub", "own")}
    wrong = pen.cli("discover", "--interface", "edible")
    assert wrong.code == 2


def test_f1_the_hub_may_be_down_or_silent(pen: Pen, sample: Sample) -> None:
    os.kill(pen.pid, signal.SIGSTOP)
    found = {one["name"]: one for one in discovered(pen)}
    assert found["sam"]["state"] == "idle"
    os.kill(pen.pid, signal.SIGCONT)
    pen.kill_hub()
    assert named(discovered(pen)) == {("director", "sam", "own")}
    assert pen.hub_pids() == set()  # looking starts nothing


def test_f1_a_registered_one_that_is_silent_is_shown_so(pen: Pen, sample: Sample) -> None:
    os.kill(sample.process.pid, signal.SIGSTOP)
    found = {one["name"]: one for one in discovered(pen)}
    assert found["sam"]["state"] is None
    assert "no answer" in pen.cli("discover").out


def test_f1_nothing_serves(pen: Pen) -> None:
    pen.kill_hub()
    assert discovered(pen) == []
    assert "bullpen hub start" in pen.cli("discover").out


# ── two homes ──


def test_f1_two_homes_see_each_other_as_foreign(pen: Pen, other: Pen, sample: Sample) -> None:
    set_range(pen, hub_port(other))
    set_range(other, hub_port(pen), sample.port)
    assert ("hub", "hub", "foreign") in named(discovered(pen))
    assert ("hub", "hub", "own") in named(discovered(pen))
    theirs = named(discovered(other))
    assert {("hub", "hub", "own"), ("hub", "hub", "foreign")} <= theirs
    assert ("director", "sam", "foreign") in theirs


def test_f3_one_home_leaves_the_other_alone(pen: Pen, other: Pen, sample: Sample) -> None:
    for each in (pen, other):
        each.run(name="amy")
    set_range(other, hub_port(pen), sample.port, hub_port(other))
    set_range(pen, hub_port(other), hub_port(pen))
    before = other.pid
    refused = pen.cli("shutdown", "--port", str(hub_port(other)))
    assert refused.code == 6
    assert "another home" in refused.err
    done = other.cli("shutdown", "--all", "--timeout", "1s")
    assert done.code == 0, done.err
    assert not alive(before)
    assert pen.answers()
    assert pen.agents()["amy"]["running"]
    assert sample.status()["state"] == "idle"
    assert registered(pen) == ["sam"]


def test_f3_killing_one_home_leaves_the_other_alone(pen: Pen, other: Pen, sample: Sample) -> None:
    for each in (pen, other):
        each.run(name="amy")
    set_range(other, hub_port(pen), sample.port, hub_port(other))
    program, hub = pen.program("amy"), pen.pid
    done = other.cli("kill", "--all")
    assert done.code == 0, done.err
    assert other.processes() == {}
    assert alive(program)
    assert alive(hub)
    assert sample.status()["state"] == "idle"


def test_f3_a_copied_home_does_not_kill_the_original(
    pen: Pen, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    pen.run(name="amy")
    program, hub = pen.program("amy"), pen.pid
    with made_pen() as copy:
        for file in ("hub.json", "state.db", "state.db-wal", "state.db-shm", ".bullpen-id.txt"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(pen.root / file, copy.root / file)
        no_sockets = shutil.ignore_patterns("*.sock")
        shutil.copytree(
            pen.root / "sessions", copy.root / "sessions", ignore=no_sockets, dirs_exist_ok=True
        )
        set_range(copy, hub_port(copy))
        done = copy.cli("kill", "--all")
        assert (done.code, done.out) == (0, "nothing was running\n")
        # Its files tell of living processes: without a look at whose they are, they were ended.
        monkeypatch.setattr(components, "_is_this_homes", lambda *_: True)
        monkeypatch.setattr(components, "_is_forked_for", lambda *_: True)
        found = components.find_hub(copy.home)
        assert found is not None
        assert found.pid == hub
        assert [one.pid for one in components.find_agents(copy.home)] == [pen.holder("amy")]
        assert [one.pid for one in components.registered(copy.home)] == [sample.process.pid]
    assert alive(program)
    assert alive(hub)
    assert sample.process.poll() is None


# ── shutdown ──


def test_f3_everything_leaves_in_order(pen: Pen, sample: Sample) -> None:
    pen.run(name="amy")
    program, hub = pen.program("amy"), pen.pid
    done = pen.cli("shutdown", "--all", "--timeout", "2s")
    assert done.code == 0, done.err
    assert done.out.splitlines() == ["agent amy stopped", "director sam left", "hub hub left"]
    assert not alive(program)
    assert not alive(hub)
    assert sample.wait_until_gone() == 0
    wait_until(lambda: pen.processes() == {})  # holders and factory say goodbye before they end
    again = pen.cli("shutdown", "--all")
    assert (again.code, again.out) == (0, "nothing was running\n")
    assert pen.processes() == {}  # no hub was started to stop nobody


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("word", "left"),
    [("--agents", {"hub", "sam"}), ("--directors", {"hub", "amy"})],
    ids=["agents", "directors"],
)
def test_f3_only_those_that_are_meant(pen: Pen, sample: Sample, word: str, left: set[str]) -> None:
    pen.run(name="amy")
    done = pen.cli("shutdown", word, "--timeout", "1s", "--json")
    assert done.code == 0, done.err
    there = {"hub"} if pen.answers() else set()
    there |= {"sam"} if sample.process.poll() is None else set()
    there |= {name for name, agent in pen.agents().items() if agent["running"]}
    assert there == left


def test_f3_by_port(pen: Pen, sample: Sample) -> None:
    done = pen.cli("shutdown", "--port", str(sample.port), "--json")
    assert done.code == 0, done.err
    assert done.json == [
        {"type": "director", "name": "sam", "pid": sample.process.pid, "result": "left"}
    ]
    assert sample.wait_until_gone() == 0
    gone = pen.cli("shutdown", "--port", str(sample.port))
    assert gone.code == 4
    assert str(sample.port) in gone.err


def test_f3_a_working_one_is_not_interrupted_unless_one_says_so(pen: Pen, sample: Sample) -> None:
    sample.ask("POST", "/begin")
    refused = pen.cli("shutdown", "--directors")
    assert refused.code == 5
    assert "t-1" in refused.err
    assert "--force" in refused.err
    assert sample.status()["state"] == "working"
    done = pen.cli("shutdown", "--directors", "--timeout", "0s", "--force")
    assert done.code == 0, done.err
    assert sample.wait_until_gone() == 0


def test_f3_what_fails_does_not_hold_up_the_others(pen: Pen, sample: Sample) -> None:
    sample.ask("POST", "/begin")
    hub = pen.pid
    pen.home.config_file.write_text("prot: 1\n")
    done = pen.cli("shutdown", "--all")
    assert done.code == 5
    assert "hub hub left" in done.out
    assert not alive(hub)
    assert sample.status()["state"] == "working"


@pytest.mark.parametrize(
    "words", [(), ("--all", "--agents"), ("--port", "0"), ("--all", "--timeout", "soon")], ids=str
)
def test_f3_a_shutdown_needs_to_know_what(pen: Pen, words: tuple[str, ...]) -> None:
    assert pen.cli("shutdown", *words).code == 2
    assert pen.answers()


@pytest.mark.parametrize("words", [("shutdown", "--all"), ("kill", "--all", "--yes")], ids=str)
def test_f3_an_agent_may_not(pen: Pen, words: tuple[str, ...]) -> None:
    done = pen.cli(*words, BULLPEN_ACTOR="amy")
    assert done.code == 6
    assert pen.answers()


# ── who gets the token ──

STEAL = """
import encodings.idna, http.server, json, os, sys  # the other user may not read our Python
if len(sys.argv) > 3:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200, {"type": "director", "interfaces": ["statusable"], "name": "sam",
            "version": "0.1.0", "state": "idle", "uptime_seconds": 1, "home_id": sys.argv[1],
            "pid": os.getpid()})
    def do_POST(self):
        self.answer(202, {"message": "", "drain_timeout": 0, "pid": 999999})
    def answer(self, status, fields):
        given = self.headers.get("authorization")
        if given:
            print(given, flush=True)
        body = json.dumps(fields).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
server.serve_forever()
"""


@contextlib.contextmanager
def thief(pen: Pen, port: int, out: Path, *, as_other: bool) -> Iterator[None]:
    """Says that it is a component of this home, and writes down what it is sent."""
    words = [pen.home.id, str(port), *(["other"] if as_other else [])]
    with out.open("wb") as file:
        process = subprocess.Popen(
            [*_python(), "-I", "-S", "-c", STEAL, *words], stdout=file, cwd="/"
        )
    try:
        wait_until(lambda: bool(ports.owner_of(port)))
        yield
    finally:
        process.kill()
        process.wait()


def _python() -> list[str]:
    return [os.path.realpath(sys.executable)]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_f1_the_token_does_not_go_to_another_users_process(pen: Pen, tmp_path: Path) -> None:
    token = (pen.home.credentials / "api-token").read_text().strip()
    out = tmp_path / "stolen"
    with reserved_port() as port:
        set_range(pen, port)
        with thief(pen, port, out, as_other=True):
            assert ("director", "sam", "own") in named(discovered(pen))  # it says so
            refused = pen.cli("shutdown", "--port", str(port))
            assert refused.code == 6
            assert pen.cli("shutdown", "--directors").code == 6
            pen.cli("kill", "--all")
            assert out.read_text() == ""
        # The same program as this user's gets it: it is the look at the listener that counts.
        with thief(pen, port, out, as_other=False):
            pen.cli("shutdown", "--port", str(port))
            assert out.read_text() == f"Bearer {token}\n"


def test_f1_without_the_look_at_the_listener_the_token_is_sent(
    pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            line, _ = server.accept()
            got.append(line.recv(4096))
            line.close()

        threading.Thread(target=serve, daemon=True).start()
        monkeypatch.setattr(os, "getuid", lambda: 4_000_000)  # somebody else's, for us
        with pytest.raises(BullpenError) as refused:
            asking.request(port, "GET", "/status", token="secret")
        assert refused.value.kind is Kind.DENIED
        assert got == []
        monkeypatch.setattr(ports, "is_ours", lambda _: True)
        with contextlib.suppress(asking.NoAnswerError):
            asking.request(port, "GET", "/status", token="secret")
        assert b"secret" in got[0]


# ── kill ──


@pytest.mark.few(1)
@pytest.mark.parametrize("hub", ["runs", "is down", "is silent"])
def test_f3_kill_all_ends_everything(pen: Pen, sample: Sample, hub: str) -> None:
    for name in ("amy", "bob"):
        pen.run(name=name)
    programs = [pen.program(name) for name in ("amy", "bob")]
    holders = [pen.holder(name) for name in ("amy", "bob")]
    if hub == "is down":
        pen.kill_hub()
    if hub == "is silent":
        os.kill(pen.pid, signal.SIGSTOP)
    done = pen.cli("kill", "--all", "--json")
    assert done.code == 0, done.err
    kinds = [one["type"] for one in done.json]
    assert {"agent", "component"} <= set(kinds)
    assert ("hub" in kinds) == (hub != "is down")
    assert kinds.count("agent") == 2
    assert not [pid for pid in (*programs, *holders) if alive(pid)]
    sample.wait_until_gone()
    assert pen.processes() == {}
    for name in ("amy", "bob"):  # ended by their holders, which left a record
        assert (pen.session(name) / "exit.json").exists()
    if hub == "is silent":
        (killed,) = [one for one in done.json if one["type"] == "hub"]
        assert killed["result"] == "killed"


def test_f3_kill_all_ends_what_ignores_sigterm(pen: Pen, tmp_path: Path) -> None:
    grandchild = tmp_path / "grandchild"
    pen.run(*python(STUBBORN, grandchild), name="amy")
    wait_until(grandchild.exists)
    outside = int(grandchild.read_text())
    assert alive(outside)
    done = pen.cli("kill", "--all")
    assert done.code == 0, done.err
    assert not alive(outside)
    assert pen.processes() == {}


def test_f3_kill_all_ends_a_holder_that_is_stopped(pen: Pen) -> None:
    pen.run(name="amy")
    holder, program = pen.holder("amy"), pen.program("amy")
    os.kill(holder, signal.SIGSTOP)
    wait_until(lambda: process_state(holder) == "T")
    done = pen.cli("kill", "--all", "--json")
    assert done.code == 0, done.err
    (killed,) = [one for one in done.json if one["type"] == "agent"]
    assert killed["result"] == "killed"
    assert not alive(holder)
    assert not alive(program)


@pytest.mark.parametrize("place", ["in the range", "in a file, and the settings are broken"])
def test_f3_kill_all_ends_a_component_that_the_register_does_not_have(pen: Pen, place: str) -> None:
    pen.kill_hub()
    with reserved_port() as port, running(pen.home, "stray", port) as stray:
        stray.wait_for("idle")
        if place == "in the range":
            set_range(pen, port)
        else:
            (pen.home.directors / "stray.yaml").write_text(f"port: {port}\n")
            (pen.home.directors / "far.yaml").write_text("port: 99999\n")
            pen.home.config_file.write_text("prot: 1\n")
        done = pen.cli("kill", "--all", "--json")
        assert done.code == 0, done.err
        assert ("component", "stray") in {(one["type"], one["name"]) for one in done.json}
        stray.wait_until_gone()


def test_f3_kill_all_believes_no_pid_without_its_start_time(pen: Pen) -> None:
    """After a restart of the machine the pids in the files are other processes'."""
    pen.run(name="amy")
    pen.cli("kill", "--all")
    innocent = subprocess.Popen(["/bin/sleep", "1000"])
    try:
        for path in (pen.root / "hub.json", pen.session("amy") / "holder.json"):
            fields = {**json.loads(path.read_text()), "pid": innocent.pid, "child": innocent.pid}
            path.write_text(json.dumps(fields))
        done = pen.cli("kill", "--all")
        assert (done.code, done.out) == (0, "nothing was running\n")
        assert innocent.poll() is None
        # With its start time the hub's file would name it: it is that which counts.
        fields = json.loads((pen.root / "hub.json").read_text())
        fields["start_time"] = proc.start_time(innocent.pid)
        (pen.root / "hub.json").write_text(json.dumps(fields))
        found = components.find_hub(pen.home)
        assert found is not None
        assert found.pid == innocent.pid
        # A holder is known by its command line as well.
        record = json.loads((pen.session("amy") / "holder.json").read_text())
        record["start_time"] = proc.start_time(innocent.pid)
        (pen.session("amy") / "holder.json").write_text(json.dumps(record))
        assert components.find_agents(pen.home) == []
    finally:
        innocent.kill()
        innocent.wait()


def test_f3_kill_all_asks_a_person(pen: Pen) -> None:
    import pty

    for answer, code, lives in ((b"n\n", 130, True), (b"y\n", 0, False)):
        reading, writing = pty.openpty()
        process = subprocess.Popen(
            [BULLPEN, "kill", "--all"],
            env={**pen.env, "BULLPEN_DIR": str(pen.root)},
            stdin=writing,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        os.close(writing)
        os.write(reading, answer)
        _, err = process.communicate(timeout=60)
        os.close(reading)
        assert process.returncode == code
        assert str(pen.root).encode() in err or b"End all agents" in err
        assert pen.answers() is lives


def test_f3_kill_of_one_agent_is_as_it_was(pen: Pen) -> None:
    for name in ("amy", "bob"):
        pen.run(name=name)
    assert pen.cli("kill").code == 2
    assert pen.cli("kill", "--all", "amy").code == 2
    assert pen.cli("kill", "amy").code == 0
    assert {name: agent["running"] for name, agent in pen.agents().items()} == {
        "amy": False,
        "bob": True,
    }


# ── agents that take tasks ──


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with made_desk(tmp_path) as made:
        yield made


def working(desk: Desk) -> str:
    """A task of amy's that goes on until it is released."""
    desk.agent("amy", walls=False)
    task = desk.give("amy", "[[hold gate ; say done]]")
    desk.claude.wait_held("gate")
    return task


def test_f3_a_task_is_waited_for_before_the_hub_leaves(desk: Desk) -> None:
    task, hub = working(desk), desk.pen.pid
    refused = desk.pen.cli("shutdown", "--agents")
    assert refused.code == 5
    assert task in refused.err
    assert "--timeout" in refused.err
    with ThreadPoolExecutor(1) as pool:
        leaving = pool.submit(desk.pen.cli, "shutdown", "--all", "--timeout", "60s")
        wait_until(lambda: desk.status("amy")["state"] == "draining")
        assert alive(hub)
        desk.claude.release("gate")
        done = leaving.result(60)
    assert done.code == 0, done.err
    assert done.out.splitlines() == ["agent amy left", "hub hub left"]
    assert not alive(hub)
    desk.pen.start()
    assert desk.task(task)["state"] == "completed"


def test_f3_a_task_goes_on_after_its_time_unless_one_says_otherwise(desk: Desk) -> None:
    task = working(desk)
    done = desk.pen.cli("shutdown", "--agents", "--timeout", "0s")
    assert (done.code, done.out) == (0, "agent amy leaves when its task is over\n")
    assert desk.task(task)["state"] == "working"
    done = desk.pen.cli("shutdown", "--agents", "--timeout", "0s", "--force")
    assert (done.code, done.out) == (0, "agent amy left\n")
    assert desk.task(task)["state"] == "cancelled"


def test_f3_kill_all_ends_a_task_by_its_holder(desk: Desk) -> None:
    task = working(desk)
    done = desk.pen.cli("kill", "--all", "--json")
    assert done.code == 0, done.err
    results = {(one["type"], one["name"]): one["result"] for one in done.json}
    assert results["agent", "amy"] == "ended"
    assert desk.pen.processes() == {}
    assert list(desk.pen.session("amy").glob(f"tasks/{task}/*/exit.json"))
    found = desk.over(task)  # the next hub does not begin it anew
    assert (found["state"], len(found["runs"])) == ("failed", 1)
    assert "killed" in found["error"]["message"]
