"""What a machine and its people do to a home: full and read-only disks, deleted and damaged
files, clocks that jump, processes that stand still or are killed, code that goes away."""

import contextlib
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import unix_connect

from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import HUB
from tests.holder.client import pack
from tests.hub.http.http import ask
from tests.hub.pen import Pen, change_hub, made_pen
from tests.hub.programs import END, SLEEP, counter, python
from tests.hub.scripted_hub import CLOCK, scripted_hub
from tests.hub.small_disk import fill, small_disk
from tests.listing import delete
from tests.processes import alive, kill, process_state
from tests.waiting import wait_until
from tests.worktrees.repos import make_repo

pytestmark = pytest.mark.slow

UNKNOWN = "unknown (it reports no state)"


def wait_found(pen: Pen, *names: str) -> None:
    """Until a hub that was started again has heard of their holders, which may take their time on a
    busy machine."""
    for name in names:
        wait_until(lambda name=name: pen.state(name) == UNKNOWN)


def session_file(pen: Pen, directory: str, **fields: Any) -> Path:
    """A session directory as another version of the hub may have left it."""
    place = pen.session(directory)
    place.mkdir(mode=0o700)
    record = {
        "name": directory,
        "run": uuid.uuid4().hex,
        "cwd": "/",
        "command": ["sleep"],
        "created": "2026-01-01T00:00:00Z",
        **fields,
    }
    path = place / "session.json"
    path.write_text(json.dumps(record))
    (place / "private").mkdir(mode=0o700)
    (place / "private" / "env").write_text(json.dumps({"env": {"PATH": "/usr/bin"}}))
    return path


# ── disks ──


@pytest.mark.storm
def test_b3_full_disk_refuses_starts_and_lets_agents_be_stopped(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=8m") as disk, made_pen(disk / "h") as pen:
        pen.run(*counter(), name="stays")
        pen.run(*counter(), name="goes")
        fill(disk / "filler")
        with pytest.raises(BullpenError) as refused:
            pen.run(name="late")
        assert re.search("full|No space left", refused.value.message)
        assert refused.value.kind in (Kind.UNAVAILABLE, Kind.COMMAND_FAILED)
        assert not pen.session("late").exists()
        assert list((pen.root / "sessions").glob(".*")) == []
        assert sorted(pen.agents()) == ["goes", "stays"]
        goes = pen.program("goes")
        assert pen.stop("goes", grace=5)["words"] == "exited (signal 15)"
        assert not alive(goes)
        pen.kill_hub()
        down = pen.cli("list")
        assert (down.code in (1, 3)) == ("error" in down.err), down
        assert "bug" not in down.err
        (disk / "filler").unlink()
        wait_found(pen, "stays")
        assert pen.state("goes").startswith(("exited (signal 15)", "lost (its holder"))
        wait_until(lambda: len(pen.events("goes", "agent.stopped")) == 1)
        assert pen.run(name="late")["running"]


def test_b3_end_on_a_full_disk_is_recorded_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=8m") as disk, made_pen(disk / "h") as pen:
        pen.run(name="goes")
        fill(disk / "filler")
        end = {"state": "exited", "code": None, "signal": 15, "unasked": False}
        assert pen.stop("goes", grace=5)["state"] == end
        assert pen.events("goes", "agent.stopped") == []
        (disk / "filler").unlink()
        wait_until(lambda: len(pen.events("goes", "agent.stopped")) == 1)
        kinds = [
            event["kind"] for event in pen.events("goes") if "grace" in event or "code" in event
        ]
        assert kinds == ["agent.stopping", "agent.stopped"]


@pytest.mark.storm
def test_b1_read_only_home_is_named(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=8m") as disk, made_pen(disk / "h") as pen:
        pen.start()
        assert pen.cli("hub", "stop").code == 0
        wait_until(lambda: pen.processes() == {})
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for words in (("list",), ("run", "--", "true"), ("hub", "start")):
            refused = pen.cli(*words)
            assert refused.code in (1, 3), refused
            assert "read-only" in refused.err.lower(), refused
            assert "bug" not in refused.err
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        assert pen.cli("list").code == 0


# ── sockets that somebody deleted ──


def test_k2_deleted_socket_of_an_agent_is_made_anew(pen: Pen) -> None:
    pen.run(name="cut")
    path = pen.home.socket("cut")
    path.unlink()
    wait_until(path.exists)
    # A socket has its file a moment before it listens.
    wait_until(lambda: pen.ask("GET", "/agents/cut/screen")[0] == 200)
    # While the hub is away nobody notices; the next one does.
    pen.kill_hub()
    path.unlink()
    pen.start()
    wait_until(path.exists)
    wait_until(lambda: pen.state("cut") == UNKNOWN)
    assert pen.ask("GET", "/agents/cut/screen")[0] == 200
    assert pen.stop("cut")["words"] == "exited (signal 15)"
    wait_until(lambda: not alive(pen.holder("cut")))
    assert not path.exists()


def test_b1_deleted_socket_of_the_hub_is_made_anew(pen: Pen) -> None:
    pen.run(name="stays")
    hub, path = pen.pid, pen.home.socket(HUB)
    path.unlink()
    wait_until(pen.answers)
    assert pen.pid == hub
    assert path.stat().st_mode & 0o777 == 0o600
    # The whole directory: who misses the hub tells it.
    delete(pen.root / "sockets")
    listed = pen.cli("list")
    assert (listed.code, listed.err) == (0, "")
    assert "stays" in listed.out
    assert pen.hub_pids() == pen.lock_holders() == {hub} == {pen.pid}
    assert (pen.root / "sockets").stat().st_mode & 0o777 == 0o700
    wait_until(pen.home.socket("stays").exists)
    assert pen.stop("stays")["words"] == "exited (signal 15)"
    assert pen.run(name="more")["running"]


@pytest.mark.storm
def test_b1_agent_finds_a_hub_whose_socket_was_deleted(pen: Pen) -> None:
    pen.run(name="asks")
    token = json.loads((pen.session("asks") / "private" / "env").read_text())["env"][
        "BULLPEN_TOKEN"
    ]
    delete(pen.root / "sockets")
    listed = pen.cli("list", BULLPEN_ACTOR="asks", BULLPEN_TOKEN=token)
    assert (listed.code, listed.err) == (0, "")
    wait_until(pen.home.socket("asks").exists)


def test_b1_hub_that_stands_still_is_named(pen: Pen, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = pen.start()
    os.kill(pid, signal.SIGSTOP)
    try:
        stuck = pen.cli("hub", "stop")
        assert stuck.code == 3
        assert f"the hub (pid {pid}) did not answer within" in stuck.err
        assert f"kill -9 {pid}" in stuck.err
    finally:
        os.kill(pid, signal.SIGCONT)
    assert pen.cli("hub", "stop").out == "hub stopped; agents go on\n"


# ── clocks ──


def hook(pen: Pen, name: str, event: str, tool: str = "") -> None:
    body = {"hook_event_name": event, "tool_name": tool}
    assert ask(pen.home.socket(HUB), "POST", f"/agents/{name}/hooks", body=body).status == 200


@pytest.mark.storm
def test_b4_clock_that_is_set_back_changes_no_order_and_no_age(pen: Pen) -> None:
    offset = pen.root / "offset"
    offset.write_text("0")
    with scripted_hub(pen, CLOCK, str(offset)):
        pen.run(name="told")
        pen.run(*END, "0", name="ended")
        wait_until(lambda: pen.state("ended") == "exited (0)")
        hook(pen, "told", "UserPromptSubmit")
        assert pen.state("told") == "working"
        offset.write_text("-7200")
        hook(pen, "told", "Stop")
        assert pen.state("told") == "idle"
        assert re.search(r"^told +command +idle +0s$", pen.cli("list").out, re.M)
        hook(pen, "told", "PreToolUse", "Bash")
        assert pen.state("told") == "working (Bash)"
        assert "-" not in re.sub(r"\d{4}-\d\d-\d\d", "", pen.cli("explain", "told").out)
        pen.cli("gc", "--older-than", "1m")
        assert set(pen.agents()) == {"told", "ended"}
        offset.write_text("7200")
        hook(pen, "told", "Stop")
        assert pen.state("told") == "idle"
        ids = [event["id"] for event in pen.events()]
        assert ids == sorted(ids)
    # What was told while no hub ran counts, too, whatever its clock said.
    spool = pen.session("told") / "hooks.spool"
    line = json.dumps({"hook_event_name": "PreToolUse", "tool_name": "Edit"})
    spool.write_text(f"{time.time() - 86400:.3f}\t{line}\n")
    pen.start()
    assert not spool.exists()
    wait_until(lambda: pen.state("told") == "working (Edit)")


# ── paths ──


@pytest.mark.storm
def test_h5_home_with_a_long_path(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    with made_pen(deep) as pen:
        assert len(str(pen.root / "sockets" / "hub.sock")) > 120
        name = "n" * 60
        ran = pen.cli("run", "--name", name, "--", *SLEEP)
        assert (ran.code, ran.err) == (0, "")
        pen.kill_hub()
        assert name in pen.cli("list").out
        wait_found(pen, name)
        assert pen.cli("peek", name).code == 0
        # Cleaners of /tmp delete what looks old.
        delete(pen.home.socket(HUB).parent.parent)
        assert pen.cli("list").code == 0
        assert pen.cli("stop", name).out == f"{name} stopped · exited (signal 15)\n"
        # A holder says goodbye before it takes its socket away.
        wait_until(lambda: list((pen.root / "sockets").glob("agent.*")) == [])


# ── other versions ──


class PretendedHolder:
    """A holder of a protocol that has grown: more fields, more frames. It holds nothing."""

    def __init__(self, pen: Pen, name: str) -> None:
        self.run = json.loads((pen.session(name) / "session.json").read_text())["run"]
        self.session = pen.session(name)
        self.asked: list[bytes] = []
        self.lock = os.open(self.session, os.O_RDONLY)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.listener = socket.socket(socket.AF_UNIX)
        self.path = pen.home.socket(name)
        self.listener.bind(str(self.path))
        self.listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self.listener.accept()
                threading.Thread(target=self._talk, args=(line,), daemon=True).start()

    @property
    def greeting(self) -> dict[str, Any]:
        return {
            "version": 2,
            "name": "x",
            "pid": os.getpid(),
            "child": os.getpid(),
            "mode": "pty",
            "rows": 24,
            "cols": 80,
            "started": 1.0,
            "tag": self.run,
            "colour": {"deep": ["blue"]},
        }

    def _talk(self, line: socket.socket) -> None:
        line.sendall(pack("H", self.greeting) + pack("Z", b"\xff\0not JSON") + pack("!", {"a": 1}))
        with contextlib.suppress(OSError):
            while data := line.recv(4096):
                self.asked.append(data[:1])
                if data[:1] == b"X":
                    line.sendall(pack("Q", b"?") + pack("K", {"for": "X", "more": 1}))
                    record = {"version": 2, "tag": self.run, "code": 0, "signal": None}
                    record |= {"ended": time.time(), "mood": "fine"}
                    (self.session / "exit.json").write_text(json.dumps(record))
                    line.sendall(pack("E", record))
                    line.close()
                    self.close()
                elif data[:1] == b"A":
                    line.sendall(pack("K", {"for": "A"}) + pack("Y", b"") + pack("P", b"\x1b[Hhi"))

    def close(self) -> None:
        with contextlib.suppress(OSError):  # closing alone does not wake who waits in accept
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.path.unlink(missing_ok=True)
        lock, self.lock = self.lock, -1
        if lock >= 0:
            os.close(lock)


class HastyHolder(PretendedHolder):
    """Its program ends while it greets: all that it says comes at once."""

    def _talk(self, line: socket.socket) -> None:
        record = {"tag": self.run, "code": 4, "signal": None, "ended": time.time()}
        line.sendall(pack("H", self.greeting) + pack("E", record))
        line.close()


class MadHolder(PretendedHolder):
    """Greets, and then speaks nonsense, and so once more with everybody."""

    def _talk(self, line: socket.socket) -> None:
        line.sendall(pack("H", self.greeting) + b"O\xff\xff\xff\xff")
        line.close()


def test_k2_end_that_comes_with_the_greeting_is_heard(pen: Pen) -> None:
    session_file(pen, "hasty")
    holder = HastyHolder(pen, "hasty")
    try:
        pen.start()
        wait_until(lambda: pen.state("hasty") == "exited (4)")
    finally:
        holder.close()


def test_b2_holder_that_speaks_nonsense_is_asked_again_and_not_lost(pen: Pen) -> None:
    session_file(pen, "mad")
    holder = MadHolder(pen, "mad")
    try:
        pen.start()
        assert pen.state("mad").startswith("unknown")
        with pytest.raises(BullpenError):
            pen.stop("mad")
        assert pen.agents()["mad"]["running"]
    finally:
        holder.close()
    wait_until(lambda: pen.state("mad").startswith("lost"))


def test_k2_holder_of_a_later_version_is_understood(pen: Pen) -> None:
    session_file(pen, "later", engine="command", shoe_size=43)
    holder = PretendedHolder(pen, "later")
    try:
        pen.start()
        wait_found(pen, "later")
        assert pen.ask("GET", "/agents/later/screen")[1]["lines"][0].rstrip() == "hi"
        assert pen.stop("later")["words"] == "exited (0)"
    finally:
        holder.close()
    assert len(pen.events("later", "agent.started")) == 1
    assert len(pen.events("later", "agent.stopped")) == 1


@pytest.mark.storm
def test_b2_sessions_that_cannot_be_read_are_shown_and_left_alone(pen: Pen) -> None:
    pen.run(name="fine")
    pen.kill_hub()
    whole = json.loads(session_file(pen, "corrupt").read_text())
    (pen.session("corrupt") / "session.json").write_text('{"name": "corr')
    session_file(pen, "later", kind="swarm")
    session_file(pen, "strange", engine="oracle", unheard_of={"a": [1]})
    session_file(pen, "copied", name="fine")
    session_file(pen, "folder").unlink()
    (pen.session("folder") / "session.json").mkdir()
    session_file(pen, "gone").unlink()
    session_file(pen, "list").write_text("[]")
    session_file(pen, "binary").write_bytes(b"\xff\xfe\0")
    Path(os.fsdecode(bytes(pen.root / "sessions") + b"/\xe4\xff")).mkdir()
    (pen.root / "sessions" / "UPPER case").mkdir()
    (pen.root / "sessions" / "file").write_text("no directory")
    # Its records are damaged, but it is itself: gone, as far as can be told.
    odd = session_file(pen, "odd")
    run = json.loads(odd.read_text())["run"]
    (odd.parent / "exit.json").write_text(json.dumps({"tag": run}))
    (odd.parent / "holder.json").write_text(json.dumps({"tag": run, "pid": "x"}))
    (odd.parent / "hooks.spool").mkdir()

    before = {
        path: path.read_bytes()
        for path in pen.root.glob("sessions/*/session.json")
        if path.is_file()
    }
    pen.start()
    found = pen.client().get("agents")
    broken = {"corrupt", "later", "copied", "folder", "gone", "list", "binary", "UPPER case"}
    assert broken | {"\\xe4\\xff"} == set(found["broken"])
    assert {agent["name"] for agent in found["agents"]} == {"fine", "strange", "odd"}
    wait_found(pen, "fine")
    assert pen.state("strange").startswith("lost")
    assert pen.state("odd").startswith(("lost", "exited"))
    listed = pen.cli("list")
    assert listed.code == 0
    for name in broken:
        assert f"{name}: " in listed.out
    for name in sorted(broken - {"UPPER case"}):
        with pytest.raises(BullpenError) as refused:
            pen.run(name=name)
        assert refused.value.kind is Kind.CONFLICT, name
        with pytest.raises(BullpenError, match=f"{name}"):
            pen.stop(name)
    assert {path: path.read_bytes() for path in before} == before
    assert pen.run(*["/bin/sleep", "1000"], name=None, words=["/bin/sleep", "9"])["running"]
    # Mended, it is found again.
    (pen.session("corrupt") / "session.json").write_text(json.dumps(whole))
    assert pen.cli("hub", "restart").code == 0
    assert "corrupt" in pen.agents()


def test_b2_name_of_a_session_that_cannot_be_read_is_passed_over(pen: Pen) -> None:
    session_file(pen, "sleep").write_text("{")
    assert pen.run(*SLEEP)["name"] == "sleep-2"


def test_b2_program_whose_session_was_deleted_is_shown_until_it_ends(pen: Pen) -> None:
    pen.run(name="stray")
    program = pen.program("stray")
    pen.kill_hub()
    shutil.rmtree(pen.session("stray"))
    pen.start()
    assert "its program runs" in pen.client().get("agents")["broken"]["stray"]
    assert "stray" in pen.cli("list").out
    assert alive(program)
    with pytest.raises(BullpenError):
        pen.run(name="stray")
    assert alive(program)
    client = pen.connect("stray")
    client.stop(grace=0)
    wait_until(lambda: not pen.home.socket("stray").exists())
    assert pen.run(name="stray")["running"]


# ── the database ──


def test_b3_removed_database_costs_the_history_and_nothing_else(pen: Pen) -> None:
    pen.run(name="runs")
    pen.run(*END, "3", name="ended")
    wait_until(lambda: pen.state("ended") == "exited (3)")
    for path in pen.root.glob("state.db*"):
        path.unlink()
    assert pen.state("runs") == UNKNOWN  # the hub goes on with what it has open
    pen.kill_hub()
    pen.start()
    wait_found(pen, "runs")
    assert pen.state("ended") == "exited (3)"
    assert pen.stop("runs")["words"] == "exited (signal 15)"
    assert len(pen.events("runs", "agent.stopped")) == 1
    assert len(pen.events("ended", "agent.stopped")) == 1


@pytest.mark.storm
def test_b3_damaged_database_is_named_and_not_touched(pen: Pen) -> None:
    pen.run(name="runs")
    program = pen.program("runs")
    assert pen.cli("hub", "stop").code == 0
    for path in pen.root.glob("state.db-*"):
        path.unlink()
    (pen.root / "state.db").write_bytes(b"rubbish" * 1000)
    refused = pen.cli("list")
    assert refused.code == 3
    assert "state.db is damaged" in refused.err
    assert "Agents go on without it" in refused.err
    assert (pen.root / "state.db").read_bytes() == b"rubbish" * 1000
    assert alive(program)
    (pen.root / "state.db").unlink()
    wait_found(pen, "runs")


# ── processes ──


def test_b2_holder_that_stands_still_is_unknown_and_not_lost(pen: Pen) -> None:
    pen.run(name="frozen")
    pen.run(name="other")
    holder, program = pen.holder("frozen"), pen.program("frozen")
    pen.kill_hub()
    os.kill(holder, signal.SIGSTOP)
    wait_until(lambda: process_state(holder) == "T")
    # An answer of a holder is waited for 10 s elsewhere. A busy machine is slow now and then.
    took = []
    for _ in range(4):
        began = time.monotonic()
        pen.start()
        took.append(time.monotonic() - began)
        if took[-1] < 8:
            break
        pen.kill_hub()
    else:
        raise AssertionError(f"one that does not answer holds up the others: {took}")
    assert pen.state("frozen").startswith("unknown (its holder lives but does not answer")
    assert "its holder lives but does not answer" in pen.cli("explain", "frozen").out
    wait_found(pen, "other")
    assert alive(program)
    os.kill(holder, signal.SIGCONT)
    wait_until(lambda: pen.state("frozen") == UNKNOWN)
    assert pen.stop("frozen")["words"] == "exited (signal 15)"
    assert len(pen.events("frozen", "agent.started")) == 1


def test_b8_stop_of_a_holder_that_stands_still_says_so_and_happens_later(pen: Pen) -> None:
    pen.run(name="frozen")
    holder = pen.holder("frozen")
    os.kill(holder, signal.SIGSTOP)
    with pytest.raises(BullpenError, match="the holder of frozen does not answer") as refused:
        pen.stop("frozen", grace=1)
    assert refused.value.kind is Kind.UNAVAILABLE
    assert pen.state("frozen").startswith("unknown (its holder lives but does not answer")
    os.kill(holder, signal.SIGCONT)
    wait_until(lambda: pen.state("frozen") == "exited (signal 15)")


def test_b2_hub_without_free_descriptors_loses_nobody(pen: Pen) -> None:
    hub = pen.start()
    for number in range(4):
        pen.run(name=f"a{number}")
    names = [f"a{number}" for number in range(4)]
    before = resource.prlimit(hub, resource.RLIMIT_NOFILE)
    used = max(int(path.name) for path in Path(f"/proc/{hub}/fd").iterdir())
    resource.prlimit(hub, resource.RLIMIT_NOFILE, (used + 3, before[1]))
    for _ in range(3):
        with contextlib.suppress(BullpenError):
            pen.run(name="late")
    kill(pen.holder("a0"))
    client = pen.connect("a1")
    client.stop(grace=0)
    resource.prlimit(hub, resource.RLIMIT_NOFILE, before)
    wait_until(lambda: pen.state("a0") == "lost (its holder was killed)", 60)
    wait_until(lambda: pen.state("a1") == "exited (signal 15)", 60)
    assert {pen.state(name) for name in names[2:]} == {UNKNOWN}
    if "late" not in pen.agents():  # it may have got through
        pen.run(name="late")
    assert pen.state("late") == UNKNOWN
    assert pen.pid == hub


# A program that asked the kernel not to be killed with its holder, nor to be hung up.
CLINGER = """
import ctypes, signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
print("READY", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("hub_runs", [True, False], ids=["hub runs", "hub away"])
def test_b2_agent_whose_holder_was_killed_is_lost_and_its_program_gone(
    pen: Pen, hub_runs: bool
) -> None:
    pen.run(name="plain")
    pen.run(*python(CLINGER), name="clinger")
    wait_until(lambda: b"READY" in pen.log("clinger"))
    programs = [pen.program("plain"), pen.program("clinger")]
    if not hub_runs:
        pen.kill_hub()
    for name in ("plain", "clinger"):
        kill(pen.holder(name))
    pen.start()
    for name in ("plain", "clinger"):
        wait_until(lambda name=name: pen.state(name) == "lost (its holder was killed)")
        assert "gone: its holder was killed" in pen.cli("explain", name).out
        wait_until(lambda name=name: len(pen.events(name, "agent.stopped")) == 1)
    wait_until(lambda: not any(map(alive, programs)))
    assert pen.client().post("agents", "plain", "restart")["running"]


def test_b2_pids_of_others_are_left_alone(pen: Pen) -> None:
    pen.run(name="was")
    pen.kill_hub()
    record = pen.record("was", "holder.json")
    kill(record["pid"])
    with subprocess.Popen(SLEEP, start_new_session=True) as innocent:
        try:
            # As if the kernel had given both pids to somebody else since.
            record |= {"pid": innocent.pid, "child": innocent.pid}
            (pen.session("was") / "holder.json").write_text(json.dumps(record))
            pen.home.socket("was").unlink(missing_ok=True)
            pen.start()
            assert pen.state("was") == "lost (its holder was killed)"
            assert innocent.poll() is None
        finally:
            innocent.kill()


# ── the code ──

# Says every import that happens once the hub serves.
IMPORTS = """
import sys
note = sys.argv[2]
sys.argv = ["hub"]
import bullpen.hub.main as main
served = False
write = main.hub_file.write_hub_file
def written(*words):
    global served
    write(*words)
    served = True
main.hub_file.write_hub_file = written
def noticed(event, args):
    if served and event == "import":
        import traceback
        with open(note, "a") as file:
            file.write(f"{args[0]}\\n")
            where = [f for f in traceback.extract_stack() if "importlib" not in f.filename][-2:-1]
            file.write("".join(f"    {f.filename}:{f.lineno} {f.line}\\n" for f in where))
import traceback
sys.addaudithook(noticed)
main.main()
"""


def exercise(pen: Pen, repo: Path) -> None:
    """Every route, whatever it answers, and the ways through the hub that matter."""
    (pen.root / "roles" / "tree.yaml").write_text(
        'name: tree\nagent_type: command\ncommand: ["/bin/cat"]\ndeliver: lines\n'
        "worktree:\n  enabled: true\n  branch_from: main\n"
    )
    templates = pen.root / "pods" / "templates"
    templates.joinpath("two.yaml").write_text(
        "pod_name: two\nagents:\n  - name: member\n    role: tree\n    count: 2\n"
    )
    pen.run(name="plain")
    pen.run(words=[], role="tree", name="tree", cwd=str(repo), prompt="hello")
    hook(pen, "plain", "PreToolUse", "Bash")
    pen.ask("POST", "/agents/plain/input", {"text": "x"})
    target = "ws://localhost/agents/plain/terminal"
    with unix_connect(str(pen.home.socket(HUB)), target, open_timeout=60) as talk:
        talk.send(b"typed")
        talk.recv(60)
    body = {**pen.launch(), "template": "two", "cwd": str(repo)}
    body.pop("words")
    list(pen.client().stream("pods", body=body))
    pen.client().post("agents", "plain", "restart", grace=0)
    pen.stop("tree")
    paths = pen.ask("GET", "/openapi.json")[1]["paths"]
    for path, methods in paths.items():
        target = path.replace("{name}", "plain").replace("{id}", "1")
        for method in methods:
            if "stream" in path or path == "/shutdown":
                continue
            given = {} if method in ("post", "put", "patch") else None
            for odd in (target, f"{target}?text=1", target.replace("plain", "plaim")):
                with contextlib.suppress(json.JSONDecodeError):
                    pen.ask(method.upper(), odd, given)
    for odd in ("/docs", "/nowhere", "/events?after=x", "/events/stream?after=-1"):
        with contextlib.suppress(json.JSONDecodeError):
            pen.ask("GET", odd)
    with contextlib.suppress(json.JSONDecodeError):
        pen.ask("POST", "/gc", {"older_than_seconds": 0})
    pen.ask("GET", "/agents", token="bullpen_wrong")
    pen.run(name="last")
    pen.stop("last")


@pytest.mark.storm
def test_b1_hub_imports_everything_before_it_serves(pen: Pen, tmp_path: Path) -> None:
    repo, note = make_repo(tmp_path / "repo"), tmp_path / "imports"
    note.touch()
    with scripted_hub(pen, IMPORTS, str(note)):
        exercise(pen, repo)
    assert note.read_text() == ""


@pytest.mark.storm
def test_b1_code_that_is_deleted_under_a_hub_does_no_harm(pen: Pen, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    places = [Path(path) for path in sys.path if path.endswith("site-packages")]
    places.append(Path(sys.modules["bullpen"].__path__[0]).parent)
    copies = [tmp_path / f"copy{number}" for number in range(len(places))]
    for place, copy in zip(places, copies, strict=True):
        skip = shutil.ignore_patterns("*.pth", "mypy*", "*__mypyc*", "schemathesis", "pip")
        shutil.copytree(place, copy, symlinks=True, ignore=skip)
    code = (
        "import os, sys\n"
        "sys.path[:] = [p for p in sys.path"
        " if 'site-packages' not in p and not os.path.exists(p + '/bullpen')]\n"
        "sys.path += sys.argv[2:]\nsys.argv = ['hub']\n"
        "import bullpen.hub.main\nassert '/copy' in bullpen.hub.main.__file__\n"
        "bullpen.hub.main.main()\n"
    )
    with scripted_hub(pen, code, *map(str, copies), PYTHONPATH=""):
        before = pen.run(name="before")
        for copy in copies:
            shutil.rmtree(copy)
        exercise(pen, repo)
        assert pen.agents()["before"]["run"] == before["run"]
        assert pen.state("before") == UNKNOWN
        # Only a new factory needs the code: it says so, and nothing else suffers.
        factory = [pid for pid, what in pen.processes().items() if what == "factory or holder"]
        holders = {pen.holder(name) for name, a in pen.agents().items() if a["running"]}
        for pid in set(factory) - holders:
            kill(pid)
        with pytest.raises(BullpenError, match=r"is gone, Bullpen was removed or upgraded"):
            pen.run(name="after")
        assert not pen.session("after").exists()
        assert pen.stop("before")["words"] == "exited (signal 15)"
    # The next hub runs whatever code is there now.
    assert pen.run(name="after")["running"]


def test_s2_a_spool_without_one_good_line_does_not_hold_up_the_next(pen: Pen) -> None:
    pen.run(name="amy")
    pen.kill_hub()
    spool = pen.session("amy") / "hooks.spool"
    spool.write_bytes(b"\nno time\there\n")
    pen.start()
    wait_until(lambda: not spool.exists())
    pen.kill_hub()
    spool.write_bytes(b'1.0\t{"hook_event_name": "Stop"}\n')
    pen.start()
    wait_until(lambda: pen.state("amy") == "idle")


@pytest.mark.storm
def test_a_hub_imports_nothing_to_describe_its_api() -> None:
    """By then an upgrade may have removed it."""
    code = """
import sys
import bullpen.hub.main
from bullpen.hub.http.app import make_app
app = make_app(object())
before = set(sys.modules)
assert app.openapi()["paths"]
print(sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_h5_a_hub_clears_away_the_short_paths_of_homes_that_are_gone(
    pen: Pen, tmp_path: Path
) -> None:
    directory = tmp_path / f"bullpen-{os.getuid()}-01234567"
    directory.mkdir()
    (directory / "s").symlink_to(pen.root / "gone" / "sockets")
    # Not in /tmp, where other hubs would do it for this one.
    temp = f"it.remove_stale_sockets.__defaults__ = (it.Path({str(tmp_path)!r}),)"
    change_hub(pen, f"import bullpen.home.paths as it; {temp}")
    assert not directory.exists()
