"""`discover`, `shutdown` and `kill --all`, with real hubs, agents and components; two homes side by
side that leave each other alone."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bullpen import proc
from bullpen.cli.commands import shutdown
from bullpen.client import processes
from bullpen.client.call import Call
from bullpen.component import ask as asking
from bullpen.component import own_socket, ports
from bullpen.home.paths import HUB
from tests.cli.shown_agent import shown_agent
from tests.commands import BULLPEN, Ran
from tests.component.sample_process import Sample, running
from tests.hub.http.http import ask
from tests.hub.pen import Pen, made_pen
from tests.hub.programs import STUBBORN, python
from tests.hub.tasks.desk import Desk, made_desk
from tests.ports import reserved_port
from tests.processes import alive, process_state
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
    found: list[dict[str, Any]] = done.json["components"]
    return found


def wait_shown(
    pen: Pen, wanted: set[tuple[str, str, str]], *words: str
) -> dict[str, dict[str, Any]]:
    """Look until these are shown and answer: whoever takes more than a second is left out, and on
    a busy machine that may be anybody. By name."""
    found: list[dict[str, Any]] = []

    def is_shown() -> bool:
        found[:] = [one for one in discovered(pen, *words) if one["state"]]
        return wanted <= named(found)

    wait_until(is_shown)
    return {one["name"]: one for one in found}


def refuses(pen: Pen, port: int) -> Ran:
    """To shut down what listens there, and is not this home's: once it has said who it is."""
    answers: list[Ran] = []

    def has_answered() -> bool:
        answers.append(pen.cli("shutdown", "--port", str(port)))
        return "no component answers" not in answers[-1].err

    wait_until(has_answered)
    return answers[-1]


def named(found: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(one["type"], one["name"], one["home"]) for one in found}


# ── discover ──


@pytest.mark.storm
def test_f1_the_scan_and_the_register_are_shown(pen: Pen, sample: Sample) -> None:
    found = wait_shown(pen, {("hub", "hub", "own"), ("director", "sam", "own")})
    assert set(found) == {"hub", "sam"}
    assert (found["sam"]["type"], found["sam"]["state"]) == ("director", "idle")
    assert found["sam"]["port"] == sample.port  # not in the range: known by the register
    assert {one["home"] for one in found.values()} == {"own"}
    row = ["director", "sam", "idle", str(sample.port), "0.1.0", "own"]

    def lines() -> list[list[str]]:
        return [line.split() for line in pen.cli("discover").out.splitlines()]

    assert lines()[0] == ["TYPE", "NAME", "STATE", "PORT", "VERSION", "HOME"]
    wait_until(lambda: row in lines())


@pytest.mark.storm
def test_f1_who_says_that_it_is_another_does_not_hide_that_one(
    pen: Pen, sample: Sample, tmp_path: Path
) -> None:
    with reserved_port() as port:
        set_range(pen, port)
        with thief(pen, port, tmp_path / "stolen", as_other=False):
            wait_shown(pen, {("director", "sam", "says own")})

            def homes() -> dict[int, str]:
                return {one["port"]: one["home"] for one in discovered(pen) if one["name"] == "sam"}

            wait_until(lambda: homes() == {sample.port: "own", port: "says own"})


@pytest.mark.storm
def test_f1_filtered_by_interface(pen: Pen, sample: Sample) -> None:
    for interface, one in {
        "taskable": ("director", "sam", "own"),
        "observable": ("hub", "hub", "own"),
    }.items():
        assert set(wait_shown(pen, {one}, "--interface", interface)) == {one[1]}
    wrong = pen.cli("discover", "--interface", "edible")
    assert wrong.code == 2


@pytest.mark.storm
def test_f1_the_hub_may_be_down_or_silent(pen: Pen, sample: Sample) -> None:
    os.kill(pen.pid, signal.SIGSTOP)
    found = wait_shown(pen, {("director", "sam", "own")})
    assert found["sam"]["state"] == "idle"
    os.kill(pen.pid, signal.SIGCONT)
    pen.kill_hub()
    assert set(wait_shown(pen, {("director", "sam", "own")})) == {"sam"}
    assert pen.hub_pids() == set()  # looking starts nothing


@pytest.mark.storm
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
    hubs = {("hub", "hub", "own"), ("hub", "hub", "foreign")}
    wait_shown(pen, hubs)
    wait_shown(other, hubs | {("director", "sam", "foreign")})


@pytest.mark.storm
def test_f3_one_home_leaves_the_other_alone(pen: Pen, other: Pen, sample: Sample) -> None:
    for each in (pen, other):
        each.run(name="amy")
    set_range(other, hub_port(pen), sample.port, hub_port(other))
    set_range(pen, hub_port(other), hub_port(pen))
    before = other.pid
    refused = refuses(pen, hub_port(other))
    assert refused.code == 6
    assert "another home" in refused.err
    done = other.cli("shutdown", "--all", "--timeout", "1s")
    assert done.code == 0, done.err
    assert not alive(before)
    assert pen.answers()
    assert pen.agents()["amy"]["running"]
    assert sample.status()["state"] == "idle"
    assert registered(pen) == ["sam"]


@pytest.mark.storm
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


def test_f3_a_home_that_was_moved_while_it_ran_is_killed_where_it_is_now(pen: Pen) -> None:
    pen.run(name="amy")
    living = [pen.pid, pen.holder("amy"), pen.program("amy")]
    moved = pen.root.rename(pen.root.parent / "moved")
    try:
        done = pen.cli("kill", "--all", cwd=moved, BULLPEN_DIR=str(moved))
        assert done.code == 0, done.err
        assert [pid for pid in living if alive(pid)] == []
    finally:
        moved.rename(pen.root)


@pytest.mark.storm
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
        monkeypatch.setattr(processes, "_is_this_homes", lambda *_: True)
        monkeypatch.setattr(processes, "_is_forked_for", lambda *_: True)
        found = processes.find_hub(copy.home)
        assert found is not None
        assert found.pid == hub
        assert [one.pid for one in processes.find_agents(copy.home)] == [pen.holder("amy")]
        assert [one.pid for one in processes.registered(copy.home)] == [sample.process.pid]
    assert alive(program)
    assert alive(hub)
    assert sample.process.poll() is None


# ── shutdown ──


@pytest.mark.storm
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


@pytest.mark.storm
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


@pytest.mark.storm
def test_f3_by_port(pen: Pen, sample: Sample) -> None:
    done = pen.cli("shutdown", "--port", str(sample.port), "--json")
    assert done.code == 0, done.err
    assert done.json["results"] == [
        {"type": "director", "name": "sam", "pid": sample.process.pid, "result": "left"}
    ]
    assert sample.wait_until_gone() == 0
    gone = pen.cli("shutdown", "--port", str(sample.port))
    assert gone.code == 4
    assert str(sample.port) in gone.err


@pytest.mark.storm
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


@pytest.mark.storm
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


@pytest.mark.parametrize(
    "as_other",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user"),
        ),
    ],
)
def test_b6_no_token_goes_to_what_a_scan_found(pen: Pen, tmp_path: Path, as_other: bool) -> None:
    """Also not to a process of this user: an agent in a sandbox with network is one. There is no
    check that could be taken away: `component/ask` cannot ask a port. So the attack is shown as it
    was, by a request to what the scan found."""
    out = tmp_path / "stolen"
    with reserved_port() as port:
        set_range(pen, port)
        with thief(pen, port, out, as_other=as_other):
            wait_shown(pen, {("director", "sam", "says own")})
            refused = refuses(pen, port)
            assert refused.code == 6
            assert "and it is not" in refused.err
            done = pen.cli("shutdown", "--directors")
            assert (done.code, done.out) == (0, "nothing was running\n")
            assert pen.cli("kill", "--all").code == 0
            assert ports.owner_of(port), "nor is it ended: it may be anybody's"
            assert out.read_text() == ""
            token = asking.owner_token(pen.home)
            ask(port, "POST", "/shutdown", token=token)
            assert out.read_text() == f"Bearer {token}\n"


@pytest.mark.storm
def test_b6_a_thief_with_the_name_and_port_of_a_component_gets_nothing(
    pen: Pen, sample: Sample, tmp_path: Path
) -> None:
    """The register still has the component: its process was stopped, and its port taken."""
    out = tmp_path / "stolen"
    (pen.home.directors / "sam.yaml").write_text(f"port: {sample.port}\n")
    sample.kill()
    with thief(pen, sample.port, out, as_other=False):
        for words in (("--port", str(sample.port)), ("--directors",), ("--all",)):
            pen.cli("shutdown", *words)
        pen.cli("kill", "--all")
        assert out.read_text() == ""


@pytest.mark.storm
def test_b6_a_component_is_commanded_by_a_socket_that_only_the_owner_reaches(
    pen: Pen, sample: Sample
) -> None:
    path = pen.home.component_socket(sample.process.pid)
    assert path.stat().st_mode & 0o777 == 0o600
    assert pen.home.sockets.stat().st_mode & 0o777 == 0o700
    assert asking.get_status(path).pid == sample.process.pid
    assert own_socket.is_listened_to(path, sample.process.pid)
    assert not own_socket.is_listened_to(path, os.getpid())
    # A token that is sent is looked at, there too.
    assert ask(path, "GET", "/status", token="wrong").status == 401
    assert pen.cli("shutdown", "--directors").out == "director sam left\n"
    assert not path.exists()


@pytest.mark.storm
def test_f3_the_socket_of_a_killed_component_is_cleared_away(pen: Pen, sample: Sample) -> None:
    path = pen.home.component_socket(sample.process.pid)
    sample.kill()
    assert path.exists()
    done = pen.cli("shutdown", "--directors")
    assert (done.code, done.out) == (0, "nothing was running\n")
    assert not path.exists()


@pytest.mark.storm
def test_f3_one_that_listens_at_no_socket_of_the_home_is_named(pen: Pen, sample: Sample) -> None:
    """As one of an earlier version does not."""
    pen.home.component_socket(sample.process.pid).unlink()
    done = pen.cli("shutdown", "--directors")
    assert done.code == 3
    assert f"director sam (pid {sample.process.pid}) listens at no socket" in done.err
    assert sample.status()["state"] == "idle"
    assert pen.cli("kill", "--all").code == 0
    sample.wait_until_gone()


def test_f3_an_agents_port_is_told_through_the_hub(desk: Desk) -> None:
    with reserved_port() as port:
        desk.agent("amy", walls=False, port=port)
        done = desk.pen.cli("shutdown", "--port", str(port))
        assert (done.code, done.out) == (0, "agent amy left\n")
        hub = desk.pen.pid
        done = desk.pen.cli("shutdown", "--port", str(hub_port(desk.pen)))
        assert (done.code, done.out) == (0, "hub hub left\n")
        assert not alive(hub)


# ── kill ──


@pytest.mark.storm
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
    kinds = [one["type"] for one in done.json["results"]]
    assert {"agent", "component"} <= set(kinds)
    assert ("hub" in kinds) == (hub != "is down")
    assert kinds.count("agent") == 2
    assert not [pid for pid in (*programs, *holders) if alive(pid)]
    sample.wait_until_gone()
    assert pen.processes() == {}
    for name in ("amy", "bob"):  # ended by their holders, which left a record
        assert (pen.session(name) / "exit.json").exists()
    if hub == "is silent":
        (killed,) = [one for one in done.json["results"] if one["type"] == "hub"]
        assert killed["result"] == "killed"


def test_f3_kill_all_ends_what_ignores_sigterm(pen: Pen, tmp_path: Path) -> None:
    grandchild = tmp_path / "grandchild"
    pen.run(*python(STUBBORN, grandchild), name="amy")
    wait_until(grandchild.exists)
    outside = int(grandchild.read_text())
    assert alive(outside)
    done = pen.cli("kill", "--all")
    assert done.code == 0, done.err
    lines = [line.partition(" · pid ")[0] for line in done.out.splitlines()]
    assert {"agent amy ended", "hub ended"} <= set(lines), done.out
    assert not alive(outside)
    assert pen.processes() == {}


def test_f3_kill_all_ends_a_holder_that_is_stopped(pen: Pen) -> None:
    pen.run(name="amy")
    holder, program = pen.holder("amy"), pen.program("amy")
    os.kill(holder, signal.SIGSTOP)
    wait_until(lambda: process_state(holder) == "T")
    done = pen.cli("kill", "--all", "--json")
    assert done.code == 0, done.err
    (killed,) = [one for one in done.json["results"] if one["type"] == "agent"]
    assert killed["result"] == "killed"
    assert not alive(holder)
    assert not alive(program)


@pytest.mark.parametrize("place", ["in the range", "in a file, and the settings are broken"])
@pytest.mark.storm
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
        assert ("component", "stray") in {
            (one["type"], one["name"]) for one in done.json["results"]
        }
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
        found = processes.find_hub(pen.home)
        assert found is not None
        assert found.pid == innocent.pid
        # A holder is known by its command line as well.
        record = json.loads((pen.session("amy") / "holder.json").read_text())
        record["start_time"] = proc.start_time(innocent.pid)
        (pen.session("amy") / "holder.json").write_text(json.dumps(record))
        assert processes.find_agents(pen.home) == []
    finally:
        innocent.kill()
        innocent.wait()


@pytest.mark.storm
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


@pytest.mark.storm
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


@pytest.mark.storm
def test_f3_a_task_goes_on_after_its_time_unless_one_says_otherwise(desk: Desk) -> None:
    task = working(desk)
    done = desk.pen.cli("shutdown", "--agents", "--timeout", "0s")
    assert (done.code, done.out) == (0, "agent amy leaves when its task is over\n")
    assert desk.task(task)["state"] == "working"
    done = desk.pen.cli("shutdown", "--agents", "--timeout", "0s", "--force")
    assert (done.code, done.out) == (0, "agent amy left\n")
    assert desk.task(task)["state"] == "cancelled"


STATUS_OF_AN_IDLE_AGENT = {
    "type": "agent",
    "interfaces": [],
    "name": "amy",
    "version": "0",
    "state": "idle",
    "uptime_seconds": 1,
    "home_id": "h",
    "pid": 1,
    "current_task": None,
    "config": {},
    "sandbox": None,
    "log": [],
}


class HubThatTakesItsTime:
    """Its agent has no task, and is told to leave; it has left at the fourth look."""

    def __init__(self) -> None:
        self.looks = 0

    def do(self, call: Call[Any]) -> Any:
        if call.path.endswith("/shutdown"):
            return call.read(json.dumps({"message": "", "drain_timeout": 0, "pid": 1}).encode())
        if call.path.endswith("/status"):
            return call.read(json.dumps(STATUS_OF_AN_IDLE_AGENT).encode())
        self.looks += 1
        return call.read(json.dumps(shown_agent("amy", running=self.looks < 4)).encode())


def test_f3_an_agent_without_a_task_is_waited_for_however_busy_the_hub_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutdown, "SETTLE_SECONDS", 0.0)
    hub: Any = HubThatTakesItsTime()
    assert shutdown._drain(hub, "amy", 0.0, force=False) == "left"


@pytest.mark.storm
def test_f3_kill_all_ends_a_task_by_its_holder(desk: Desk) -> None:
    task = working(desk)
    done = desk.pen.cli("kill", "--all", "--json")
    assert done.code == 0, done.err
    results = {(one["type"], one["name"]): one["result"] for one in done.json["results"]}
    assert results["agent", "amy"] == "ended"
    assert desk.pen.processes() == {}
    assert list(desk.pen.session("amy").glob(f"tasks/{task}/*/exit.json"))
    found = desk.over(task)  # the next hub does not begin it anew
    assert (found["state"], found["reason"], len(found["runs"])) == ("cancelled", "killed", 1)
    assert "cancelled (killed)" in desk.cli("history").out
    assert desk.pen.agents()["amy"]["state"] == {"state": "ended", "reason": "killed"}


@pytest.mark.storm
def test_f3_what_was_killed_stays_ended_until_somebody_starts_it(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    desk.write_file("amy", autostart=True)
    resting = desk.give("amy", "[[say hi]]", keep_open=True)
    desk.wait(resting, "idle")
    assert desk.pen.cli("kill", "--all").code == 0
    assert "ended (killed)" in desk.cli("list").out  # a hub was started
    found = desk.over(resting)
    assert (found["state"], found["reason"]) == ("cancelled", "killed")
    desk.pen.kill_hub()
    desk.pen.start()
    assert not desk.pen.agents()["amy"]["running"]
    desk.start("amy")
    assert desk.done(desk.give("amy", "[[say back]]"))["output"] == "back"
