"""A life of agents under one hub: started, listed, named, stopped, started again; and the hub's
own life around them."""

import json
import os
import re
import socket
import stat
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bullpen.cli.commands import send_keys
from bullpen.client import start
from bullpen.errors import BullpenError, Kind
from bullpen.home import hub_file
from bullpen.hub.http import agents as http_agents
from tests.holder.programs import RAW, SLEEPER
from tests.holder.programs import python as held_python
from tests.hub.http.agents import token_of
from tests.hub.parts import Parts, in_parts
from tests.hub.pen import Pen, change_hub, made_pen
from tests.hub.programs import END, SLEEP, STUBBORN, python
from tests.listing import list_files
from tests.processes import alive
from tests.threads import together
from tests.waiting import wait_until
from tests.worktrees.repos import git, make_repo

pytestmark = pytest.mark.slow

# Writes to a file what comes at once, piece by piece.
PIECES = held_python(
    RAW
    + """
with open(sys.argv[1], "wb", 0) as file:
    os.write(1, b"READY")
    while piece := os.read(0, 99):
        file.write(piece.hex().encode() + b" ")
"""
)
TREE_ROLE = """\
name: {name}
agent_type: command
command: ["/bin/sleep", "1000000"]
worktree:
  enabled: true
  branch_from: main
"""


def tokens_of(pen: Pen) -> list[str]:
    """Every token there is: the owner's and those of all agents."""
    found = [(pen.root / "credentials" / "api-token").read_text().strip()]
    for path in (pen.root / "sessions").glob("*/private/env"):
        found.append(json.loads(path.read_text())["env"]["BULLPEN_TOKEN"])
    return found


# ── the whole way ──


def test_b1_ten_commands_at_once_start_one_hub(pen: Pen) -> None:
    results = together(*[lambda: pen.client().get("status")["pid"] for _ in range(10)])
    assert set(results) == {pen.pid}
    assert pen.hub_pids() == pen.lock_holders() == {pen.pid}
    wait_until(lambda: len(pen.logged("serving")) == 1)


def test_b1_hub_stop_and_restart_end_no_agent_and_keep_the_port(pen: Pen) -> None:
    pen.run(name="stays")
    program, first = pen.program("stays"), pen.pid
    described = json.loads((pen.root / "hub.json").read_text())
    assert described["host"] == socket.gethostname()
    assert described["pid"] == first
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert described["boot_id"] == boot
    assert described["start_time"].startswith(f"{boot}/")
    assert described["socket"] == str(pen.root / "sockets" / "hub.sock")
    assert described["version"]
    assert stat.S_IMODE((pen.root / "hub.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((pen.root / "sockets" / "hub.sock").stat().st_mode) == 0o600
    assert pen.cli("hub", "restart").code == 0
    assert pen.pid != first
    assert not alive(first)
    assert json.loads((pen.root / "hub.json").read_text())["port"] == described["port"]
    assert pen.cli("hub", "stop").out == "hub stopped; agents go on\n"
    assert pen.hub_pids() == set()
    assert pen.cli("hub", "stop").out == "the hub is not running\n"
    down = pen.cli("hub", "status")
    assert (down.code, down.err.splitlines()[0]) == (3, "error: the hub is down")
    assert alive(program)


def test_b1_no_hub_is_started_inside_an_agent(pen: Pen) -> None:
    assert pen.hub_pids() == set()
    for words in (("list",), ("run", "--", "true"), ("hub", "start"), ("hub", "restart")):
        refused = pen.cli(*words, BULLPEN_ACTOR="stays", BULLPEN_TOKEN="bullpen_x")
        assert refused.code == 3, refused
        assert "the hub is down, and an agent may not start it" in refused.err
    foreground = pen.cli("hub", "start", "--foreground", BULLPEN_ACTOR="stays")
    assert "an agent may not start it" in foreground.err
    assert pen.hub_pids() == set()


def test_i2_run_inside_an_agent_says_what_starts_children(pen: Pen) -> None:
    pen.run(name="amy")
    own = {"BULLPEN_ACTOR": "amy", "BULLPEN_TOKEN": token_of(pen.home, "amy")}
    refused = pen.cli("run", "--", "true", **own)
    assert refused.code == 6, refused
    assert refused.err.splitlines() == [
        "error: only the owner may do that",
        "hint:  an agent starts children with the tools spawn_subtree and spawn_workers",
    ]


@pytest.mark.storm
def test_b1_taken_port_fails_the_start_and_names_who_has_it(pen: Pen) -> None:
    """It can be taken if no agent lives: else the port is kept."""
    pen.run(name="stays")
    pen.stop("stays")
    pen.cli("hub", "stop")
    wait_until(lambda: pen.hub_pids() == set())
    port = json.loads((pen.root / "hub.json").read_text())["port"]
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        wait_until(lambda: is_bound(thief, port))
        thief.listen()
        refused = pen.cli("list")
    assert refused.code == 3
    assert f"port {port} is taken by pid {os.getpid()} (" in refused.err
    wait_until(lambda: pen.hub_pids() == set())
    assert pen.cli("list").code == 0


def is_bound(thief: socket.socket, port: int) -> bool:
    try:
        thief.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


# ── names ──


def test_r5_names_are_numbered_while_they_run(tidy: Pen) -> None:
    assert [tidy.run(*SLEEP)["name"] for _ in range(3)] == ["sleep", "sleep-2", "sleep-3"]
    tidy.stop("sleep-2")
    assert tidy.run(*SLEEP)["name"] == "sleep-2"


def test_r5_many_at_once_without_a_name_get_a_name_each(tidy: Pen) -> None:
    words = python("import time; time.sleep(1000)")
    found = together(*[lambda: tidy.run(*words)["name"] for _ in range(8)])
    base = Path(words[0]).name
    assert sorted(found) == sorted([base, *(f"{base}-{number}" for number in range(2, 9))])


def test_r5_of_many_starts_under_one_name_one_succeeds(tidy: Pen) -> None:
    bodies = [tidy.launch(name="only") for _ in range(6)]
    answers = together(*[lambda body=body: tidy.ask("POST", "/agents", body) for body in bodies])
    assert sorted(status for status, _ in answers) == [201] + [409] * 5
    assert Counter(event["kind"] for event in tidy.events("only"))["agent.started"] == 1


def test_r5_running_name_is_refused_with_a_way_out(tidy: Pen) -> None:
    tidy.run(name="mine")
    with pytest.raises(BullpenError) as refused:
        tidy.run(name="mine")
    assert refused.value.kind is Kind.CONFLICT
    assert refused.value.message == "mine is running"
    assert "bullpen attach mine" in refused.value.hint


def test_r5_same_run_asked_twice_is_one_agent(tidy: Pen) -> None:
    body = tidy.launch(name="twice")
    answers = together(*[lambda: tidy.ask("POST", "/agents", body) for _ in range(4)])
    assert {status for status, _ in answers} == {201}
    assert {found["run"] for _, found in answers} == {body["run"]}
    assert [e["run"] for e in tidy.events("twice", "agent.started")] == [body["run"]]


def test_r5_stopped_name_starts_again_in_its_worktree(tidy: Pen, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    (tidy.root / "roles" / "grower.yaml").write_text(TREE_ROLE.format(name="grower"))
    first = tidy.run(words=[], role="grower", cwd=str(repo))
    tree = Path(first["worktree"]["path"])
    assert first["cwd"] == str(tree)
    (tree / "work.txt").write_text("unsaved\n")
    assert "\nlocked " in git(repo, "worktree", "list", "--porcelain")
    tidy.stop("grower")
    assert "locked" not in git(repo, "worktree", "list", "--porcelain")
    second = tidy.run(words=[], name="grower", role="grower", cwd=str(repo))
    assert second["worktree"]["path"] == str(tree)
    assert second["created"] == first["created"]
    assert second["run"] != first["run"]
    assert (tree / "work.txt").read_text() == "unsaved\n"
    assert [e["kind"] for e in tidy.events("grower")].count("worktree.created") == 1
    assert "\nlocked " in git(repo, "worktree", "list", "--porcelain")


# ── starts that fail ──


def left_of(pen: Pen, name: str) -> list[Path]:
    """Files of that name; what lies in a bin is on its way out."""
    places = (pen.root / "sessions", pen.root / "sockets", pen.root / "worktrees")
    found = [path for place in places for path in list_files(place) if name in path.name]
    half_made = list((pen.root / "sessions").glob(".*"))
    return [path for path in found if path.parent.name != ".trash"] + half_made


@pytest.mark.parametrize(
    ("fields", "kind", "says"),
    [
        ({"words": ["/no/such/program"]}, Kind.NOT_FOUND, "/no/such/program"),
        ({"words": ["/etc/passwd"]}, Kind.DENIED, "/etc/passwd"),
        ({"words": ["true"], "cwd": "/no/such/dir"}, Kind.INVALID, "/no/such/dir"),
        ({"words": ["true"], "env": {"A=B": "x"}}, Kind.INVALID, "env"),
        ({"words": ["true"], "overrides": ["model=x"]}, Kind.INVALID, "role"),
        ({"words": ["true"], "resume": True}, Kind.INVALID, "resume"),
        ({"words": [], "role": "nobody"}, Kind.NOT_FOUND, "nobody"),
    ],
)
def test_k5_start_that_fails_leaves_nothing(
    tidy: Pen, fields: dict[str, Any], kind: Kind, says: str
) -> None:
    with pytest.raises(BullpenError) as failed:
        tidy.run(**{"name": "failing", **fields})
    assert failed.value.kind is kind
    assert says in failed.value.message
    assert left_of(tidy, "failing") == []
    assert "failing" not in tidy.agents()
    assert [pid for pid, what in tidy.processes().items() if "failing" in what] == []


def test_k5_failed_start_removes_the_worktree_it_made(tidy: Pen, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    (tidy.root / "roles" / "wilting.yaml").write_text(
        TREE_ROLE.format(name="wilting").replace("/bin/sleep", "/no/such/program")
    )
    with pytest.raises(BullpenError, match="/no/such/program"):
        tidy.run(words=[], role="wilting", cwd=str(repo))
    assert left_of(tidy, "wilting") == []
    assert "wilting" not in git(repo, "worktree", "list")
    assert git(repo, "branch", "--list", "*wilting*") == ""
    # A directory that is not committed is not in the worktree either.
    (tidy.root / "roles" / "wilting.yaml").write_text(TREE_ROLE.format(name="wilting"))
    (repo / "new").mkdir()
    with pytest.raises(BullpenError, match="has no committed files"):
        tidy.run(words=[], role="wilting", cwd=str(repo / "new"))
    assert left_of(tidy, "wilting") == []
    assert "wilting" not in git(repo, "worktree", "list")


def test_k5_failed_start_of_a_stopped_agent_leaves_it_as_it_was(tidy: Pen) -> None:
    tidy.run(*END, "3", name="before")
    wait_until(lambda: tidy.state("before") == "exited (3)")
    files = ("session.json", "private/env", "exit.json", "holder.json")
    was = {name: (tidy.session("before") / name).read_bytes() for name in files}
    with pytest.raises(BullpenError):
        tidy.run("/no/such/program", name="before")
    assert {name: (tidy.session("before") / name).read_bytes() for name in files} == was
    assert tidy.state("before") == "exited (3)"
    assert tidy.client().post("agents", "before", "restart")["command"] == [*END, "3"]


def test_k5_program_that_ends_at_once_is_exited(tidy: Pen) -> None:
    for code in (0, 7):
        found = tidy.run(*END, str(code), name=f"short{code}")
        wait_until(lambda code=code: tidy.state(f"short{code}") == f"exited ({code})")
        assert found["run"] == tidy.record(f"short{code}", "exit.json")["tag"]
        wait_until(lambda code=code: bool(tidy.events(f"short{code}", "agent.stopped")))
        kinds = Counter(event["kind"] for event in tidy.events(f"short{code}"))
        assert kinds["agent.started"] == kinds["agent.stopped"] == 1


def test_k5_prompt_to_a_program_that_has_ended_is_no_failure(tidy: Pen) -> None:
    (tidy.root / "roles" / "brief.yaml").write_text(
        'name: brief\nagent_type: command\ncommand: ["true"]\ndeliver: lines\n'
    )
    for number in range(5):
        tidy.run(words=[], role="brief", name=f"brief{number}", prompt="do it")
        wait_until(lambda number=number: tidy.state(f"brief{number}") == "exited (0)")


# ── stopping, starting again ──


def test_k4_stop_kills_after_the_grace_and_leaves_no_descendant(tidy: Pen, tmp_path: Path) -> None:
    note = tmp_path / "note"
    tidy.run(*python(STUBBORN, note), name="stubborn")
    wait_until(note.exists)
    grandchild = int(note.read_text())
    assert tidy.stop("stubborn", grace=0.2)["words"] == "exited (signal 9)"
    assert not alive(grandchild)
    assert not alive(tidy.program("stubborn"))


def test_k4_kill_does_not_wait_for_a_stop_under_way(tidy: Pen, tmp_path: Path) -> None:
    note = tmp_path / "note"
    tidy.run(*python(STUBBORN, note), name="slow")
    wait_until(note.exists)

    def kill_it() -> dict[str, Any]:
        wait_until(lambda: bool(tidy.events("slow", "agent.stopping")))
        return tidy.stop("slow", grace=0)

    ended = together(lambda: tidy.stop("slow", grace=60), kill_it)
    assert [found["words"] for found in ended] == ["exited (signal 9)"] * 2
    assert len(tidy.events("slow", "agent.stopped")) == 1


def test_b8_stop_of_what_has_ended_or_never_was(tidy: Pen) -> None:
    tidy.run(*END, "0", name="over")
    wait_until(lambda: tidy.state("over") == "exited (0)")
    assert tidy.stop("over")["words"] == "exited (0)"
    with pytest.raises(BullpenError, match="no agent called nobody"):
        tidy.stop("nobody")


def test_b8_restart_keeps_identity_environment_and_token(tidy: Pen) -> None:
    first = tidy.run(name="again", pod="p")
    env = (tidy.session("again") / "private" / "env").read_bytes()
    token = json.loads(env)["env"]["BULLPEN_TOKEN"]
    second = tidy.client().post("agents", "again", "restart", grace=0)
    assert (tidy.session("again") / "private" / "env").read_bytes() == env
    same = ("name", "pod", "command", "cwd", "created", "engine")
    assert {key: second[key] for key in same} == {key: first[key] for key in same}
    assert second["run"] != first["run"]
    assert tidy.ask("GET", "/agents/again", token=token)[0] == 200
    started = [event["run"] for event in tidy.events("again", "agent.started")]
    assert started == [first["run"], second["run"]]


def test_b8_what_could_not_start_again_is_not_stopped(pen: Pen) -> None:
    pen.role("worker", agent_type="command", command=list(SLEEP))
    pen.client().post("agents", body={**pen.launch(role="worker", name="amy"), "words": []})
    program, hub = pen.program("amy"), pen.pid
    role, config = pen.root / "roles" / "worker.yaml", pen.root / "config.yaml"
    before = role.read_text()
    role.write_text(before.replace("agent_type", "agent_tpye"))
    refused = pen.cli("restart", "amy")
    assert refused.code == 2
    assert "agent_tpye" in refused.err
    assert (pen.program("amy"), alive(program)) == (program, True)
    assert not pen.events("amy", "agent.stopping")
    role.write_text(before)
    config.write_text(f"{config.read_text()}stop_grcae: 1s\n")
    refused = pen.cli("hub", "restart")
    assert refused.code == 2
    assert "stop_grcae" in refused.err
    assert (pen.pid, alive(hub)) == (hub, True)
    assert pen.cli("restart", "amy").code == 0


def test_b8_restart_does_not_trip_over_a_client_that_reads_nothing(tidy: Pen) -> None:
    flood = python("import os\nwhile True: os.write(1, b'x' * 65536)")
    tidy.run(*flood, name="flood")
    client = tidy.connect("flood")
    client.send("A", {})
    wait_until(lambda: len(tidy.log("flood")) > 8 << 20)
    again = tidy.client().post("agents", "flood", "restart", grace=0)
    assert again["running"]


def sleepers(pen: Pen) -> list[int]:
    return [pid for pid, what in pen.processes().items() if what.startswith(SLEEP[0])]


def test_b8_restarts_and_stops_at_once_leave_one_program_or_none(tidy: Pen) -> None:
    tidy.run(name="busy")
    for _ in range(3):
        asked = ["POST /agents/busy/restart?grace=0"] * 3 + ["DELETE /agents/busy?grace=0"] * 2
        answers = together(*[lambda words=words: tidy.ask(*words.split()) for words in asked])
        assert {status for status, _ in answers} <= {200, 409}, answers
        running = tidy.agents()["busy"]["running"]
        # One that has just been executed has no words yet.
        wait_until(lambda running=running: len(sleepers(tidy)) == running)
    tidy.stop("busy")
    kinds = Counter(event["kind"] for event in tidy.events("busy"))
    assert kinds["agent.started"] == kinds["agent.stopped"] >= 2


def test_b8_stop_of_an_agent_that_is_being_started_ends_it(tidy: Pen) -> None:
    for number in range(5):
        name = f"cut-off{number}"

        def stop(name: str = name) -> Any:
            wait_until(lambda: name in tidy.agents())
            return tidy.stop(name)

        together(lambda name=name: tidy.run(name=name), stop)
        assert tidy.state(name) == "exited (signal 15)"


# ── what is kept, what is told ──


def test_r7_session_directory_holds_the_identity(tidy: Pen) -> None:
    (tidy.root / "roles" / "keeper.yaml").write_text(
        'name: keeper\nagent_type: command\ncommand: ["/bin/sleep"]\n'
    )
    found = tidy.run(
        words=["1000"], role="keeper", pod="pond", overrides=["description=odd"], name="kept"
    )
    record = tidy.record("kept", "session.json")
    expected = {
        "name": "kept",
        "role": "keeper",
        "pod": "pond",
        "parent": "",
        "kind": "interactive",
        "birth_branch": "",
        "engine": "command",
        "engine_session": "",
        "cwd": str(tidy.root),
        "worktree": None,
        "command": ["/bin/sleep", "1000"],
        "overrides": ["description=odd"],
    }
    assert {key: record[key] for key in expected} == expected
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*(Z|\+00:00)", record["created"])
    assert record["run"] == found["run"]
    for name in ("private/env", "session.json", "output.log", "holder.json"):
        assert stat.S_IMODE((tidy.session("kept") / name).stat().st_mode) == 0o600, name
    assert stat.S_IMODE(tidy.session("kept").stat().st_mode) == 0o700


def test_b6_no_token_is_told_anywhere(tidy: Pen) -> None:
    tidy.run(name="secretive")
    tidy.stop("secretive")
    tokens = tokens_of(tidy)
    assert len(set(tokens)) == len(tokens) >= 2
    files = [
        path
        for pattern in ("state.db*", "hub.json", "logs/*", "sessions/*/*.json", "sessions/*/*.log")
        for path in list_files(tidy.root, pattern)
    ]
    assert len(files) > 5
    told = b"".join(path.read_bytes() for path in files)
    told += json.dumps(tidy.client().get("agents")).encode()
    told += json.dumps(tidy.client().get("events", limit=1000)).encode()
    told += tidy.cli("status", "secretive").out.encode()
    assert [token for token in tokens if token.encode() in told] == []
    assert "token_hash" not in tidy.client().get("agents", "secretive")


def test_b4_explain_names_the_evidence(tidy: Pen) -> None:
    tidy.run(name="plain")
    program, holder = tidy.program("plain"), tidy.holder("plain")
    text = tidy.cli("explain", "plain").out
    assert text.startswith("unknown (it reports no state), since ")
    assert re.search(
        rf"process +alive, pid {program} in holder {holder} +[\d: -]+ +← decides", text
    )
    assert text.rstrip().endswith("missing: it reports no state")
    tidy.stop("plain")
    assert "exited (signal 15)" in tidy.cli("explain", "plain").out
    assert "ended by signal 15" in tidy.cli("explain", "plain").out


def test_b3_events_of_a_run_are_told_once_and_in_order(tidy: Pen) -> None:
    found = tidy.run(name="told")
    tidy.stop("told")
    tidy.stop("told")
    kinds = [
        event["kind"]
        for event in tidy.events("told")
        if event["kind"] != "agent.state" and event["run"] == found["run"]
    ]
    assert kinds == ["agent.starting", "agent.started", "agent.stopping", "agent.stopped"]
    states = [event["state"]["state"] for event in tidy.events("told", "agent.state")]
    assert states == ["starting", "unknown", "exited"]


@pytest.mark.storm
def test_h8_homes_do_not_touch_each_other(tidy: Pen) -> None:
    with made_pen(with_port=False) as other:
        tidy.run(name="same")
        other.run(name="same")
        assert other.pid != tidy.pid
        mine, theirs = tidy.program("same"), other.program("same")
        other.kill_hub()
        assert other.cli("stop", "--all").code == 0
        assert (alive(mine), alive(theirs)) == (True, False)
        assert tidy.agents()["same"]["running"]
        token = (other.root / "credentials" / "api-token").read_text().strip()
        assert tidy.ask("GET", "/agents", token=token)[0] == 401


# ── the hub's files ──


def test_b1_nobody_is_signalled_for_a_hub_file_of_another_host_or_time(
    pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    signalled: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _number: signalled.append(pid))
    hub_file.write_hub_file(pen.home, 1, "0.1.0")
    ours = json.loads((pen.root / "hub.json").read_text())
    for odd in ({"host": "elsewhere"}, {"start_time": "x/1"}, {"start_time": None}, {"pid": "1"}):
        (pen.root / "hub.json").write_text(json.dumps({**ours, **odd}))
        start.ask_to_listen(pen.home)
    (pen.root / "hub.json").write_text("not JSON")
    start.ask_to_listen(pen.home)
    assert signalled == []
    (pen.root / "hub.json").write_text(json.dumps(ours))
    start.ask_to_listen(pen.home)
    assert signalled == [os.getpid()]


def test_b8_stopping_what_has_ended_says_so(pen: Pen) -> None:
    pen.run("cat", name="amy")
    assert "amy stopped" in pen.cli("stop", "amy").out
    assert "amy had ended before" in pen.cli("kill", "amy").out


@pytest.mark.storm
def test_a1_text_and_keys_are_typed_one_after_the_other(pen: Pen, tmp_path: Path) -> None:
    """A program takes what comes at once for a paste, in which Enter is a new line. On a busy
    machine it takes its time to read."""
    change_hub(pen, "import bullpen.hub.http.agents as it; it.PART_SECONDS = 2.0")
    pen.run(*PIECES, str(tmp_path / "pieces"), name="amy")
    wait_until(lambda: "READY" in pen.cli("peek", "amy").out)
    assert pen.cli("send-keys", "amy", "do it", " now", "Enter", "C-c", "x").code == 0
    wait_until(lambda: (tmp_path / "pieces").read_text().endswith("78 "))
    assert (tmp_path / "pieces").read_text() == "646f206974206e6f77 0d03 78 "


def test_a1_text_and_keys_are_typed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_agents, "PART_SECONDS", 0.1)

    async def story(parts: Parts) -> None:
        holder = await parts.hold(parts.put())
        words = ("do it", " now", "Enter", "C-c", "x")
        given = http_agents.Input(text=send_keys._parts(words, literal=False))
        began = time.monotonic()
        await http_agents.type_into(parts.hub, "amy", given)
        assert holder.typed == [b"do it now", b"\r\x03", b"x"]
        assert time.monotonic() - began >= 0.2

    in_parts(story)


def test_b4_explain_tells_that_a_program_was_woken_after_ctrl_z(tidy: Pen) -> None:
    tidy.run(*SLEEPER, name="amy")
    wait_until(lambda: "READY" in tidy.cli("peek", "amy").out)
    assert "Ctrl-Z" not in tidy.cli("explain", "amy").out
    tidy.cli("send-keys", "amy", "C-z")
    wait_until(lambda: "BACK" in tidy.cli("peek", "amy").out)
    # A holder that does not answer at once is not asked on.
    woken = re.compile(r"terminal +slept at Ctrl-Z, was woken")
    wait_until(lambda: woken.search(tidy.cli("explain", "amy").out) is not None)
