"""Agents that take tasks, as components: how they start, what their files do, how they leave."""

import contextlib
import json
import os
import shlex
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.home import credentials
from bullpen.home.yamlfile import read
from bullpen.hub.agents import sessions
from bullpen.hub.tasks.agent_config import merge_variables
from tests.hub.tasks.desk import Desk
from tests.hub.tasks.office import OVER, made_office, running, seated, task_agent, write_free
from tests.listing import list_files
from tests.processes import kill
from tests.threads import together
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Desk]:
    with made_office(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """For tests that leave the hub alone, each with agents of its own."""
    with made_office(tmp_path_factory.mktemp("office")) as made:
        yield made


def wrapper(office: Desk, lines: str, name: str = "wrapped") -> Path:
    """The stand-in behind some lines of shell."""
    path = office.claude.root / name
    path.write_text(f'#!/bin/sh\n{lines}\nexec {shlex.quote(str(office.claude.program))} "$@"\n')
    path.chmod(0o755)
    return path


def path_of(office: Desk) -> dict[str, str]:
    """Variables with which the stand-in is found by its name."""
    return {"PATH": f"{office.claude.program.parent}:{os.environ['PATH']}"}


def slow_version(office: Desk, gate: Path) -> dict[str, str]:
    """An environment whose engine says its version only when the file is there."""
    wait = f"while [ ! -e {shlex.quote(str(gate))} ]; do sleep 0.02; done"
    program = wrapper(office, f'if [ "$1" = --version ]; then {wait}; fi')
    return {**office.pen.env, "BULLPEN_CLAUDE_BIN": str(program)}


KEY = {"ANTHROPIC_API_KEY": "sk-ant-none"}


# ── stages ──


@pytest.mark.storm
def test_e2_an_agent_in_a_sandbox_that_could_not_log_in_is_not_started(shared: Desk) -> None:
    shared.role("lone", sandbox={"enabled": True})
    shared.write_file("lone", role="lone")
    env = {k: v for k, v in shared.pen.env.items() if not k.startswith("ANTHROPIC_")}
    status, answer = shared.launch("lone", env=env)
    assert status == 503
    assert answer["message"] == "nobody is logged in to Claude Code"
    assert answer["details"]["hint"].startswith("bullpen auth claude")
    credentials.store(shared.pen.home, "claude-token", b"sk-ant-oat01-1")
    assert shared.launch("lone", env=env)[0] == 201
    shared.wait_ready("lone")
    credentials.clear(shared.pen.home, "claude-token")
    # Nor does it take a task then: nothing runs, and nothing is kept.
    queued = {"prompt": "hi", "agent": "lone"}
    for path, body in (("/agents/lone/task", {"prompt": "hi"}), ("/tasks", queued)):
        status, answer = shared.ask("POST", path, body)
        assert (status, answer["message"]) == (503, "nobody is logged in to Claude Code")
        assert answer["details"]["hint"].startswith("bullpen auth claude")
    asked = shared.cli("task", "lone", "hi")
    assert asked.code != 0
    assert "nobody is logged in to Claude Code" in asked.err
    assert "hint:  bullpen auth claude" in asked.err
    assert shared.pen.client().get("agents", "lone", "history")["total"] == 0
    given = shared.ask("POST", "/agents/lone/task", {"prompt": "[[say hi]]", "env": KEY})
    assert given[0] == 201  # it brings one of its own
    shared.over(given[1]["task_id"])
    shared.pen.stop("lone")


@pytest.mark.storm
def test_c3_an_agent_starts_in_stages(office: Desk, tmp_path: Path) -> None:
    gate, port = tmp_path / "gate", office.pen.free_port()
    write_free(office, "amy", port=port)
    status, _ = office.launch("amy", env=slow_version(office, gate))
    assert status == 201
    side = seated(office, "amy", port).at_port  # bound at once
    assert side.state() == "starting"
    assert side.ask("GET", "/status", token="").json["state"] == "starting"
    answer = side.ask("POST", "/task", {"prompt": "[[say hi]]"})
    assert (answer.status, answer.json["error"]) == (503, "starting")
    assert answer.json["details"]["retryable"] is True
    queued = office.pen.client().post("tasks", body={"prompt": "[[say from the queue]]"})
    assert office.task(queued["task_id"])["state"] == "queued"
    gate.touch()
    assert office.done(queued["task_id"])["output"] == "from the queue"
    side.wait_state("idle")
    assert side.wait(side.give("[[say hi]]"), *OVER)["output"] == "hi"


@pytest.mark.storm
def test_c3_a_hub_that_leaves_does_not_wait_for_an_engine(office: Desk, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    write_free(office, "amy")
    office.launch("amy", env=slow_version(office, gate))
    assert office.status("amy")["state"] == "starting"
    try:
        os.kill(office.pen.pid, signal.SIGTERM)
        wait_until(lambda: not office.pen.hub_pids())
    finally:
        gate.touch()
    office.pen.start()
    office.wait_ready("amy")  # asked anew


ENGINES = {
    "missing": (None, "no such"),
    "old": ("echo 1.0.3; exit 0", "1.0.3 is too old"),
    "failing": ("echo broken; exit 3", "broken (exit code 3)"),
    "silent": ("exit 0", "--version failed: it says nothing"),
}


@pytest.mark.parametrize("kind", ENGINES)
def test_c3_an_engine_that_does_not_serve_is_an_error(shared: Desk, kind: str) -> None:
    lines, reason = ENGINES[kind]
    program = str(wrapper(shared, lines, f"engine-{kind}") if lines else "/nonexistent/claude")
    write_free(shared, kind)
    env = {**shared.pen.env, "BULLPEN_CLAUDE_BIN": program}
    assert shared.launch(kind, env=env)[0] == 201
    wait_until(lambda: shared.status(kind)["state"] != "starting")
    found = shared.status(kind)
    assert found["state"] == "error"
    entry = found["log"][-1]
    assert entry["level"] == "error"
    assert reason in entry["message"] or kind == "missing"
    status, error = shared.ask("POST", f"/agents/{kind}/task", {"prompt": "x"})
    assert (status, error["error"], error["details"]["retryable"]) == (503, "unavailable", False)
    assert entry["message"] in error["message"]
    # It still leaves in order.
    assert shared.ask("POST", f"/agents/{kind}/shutdown")[0] == 202
    wait_until(lambda: not running(shared, kind))


def test_c3_a_program_that_is_none_is_an_error(shared: Desk) -> None:
    path = shared.claude.root / "no-program"
    path.write_bytes(b"\x7fELF nothing")
    path.chmod(0o755)
    write_free(shared, "nora")
    assert shared.launch("nora", env={**shared.pen.env, "BULLPEN_CLAUDE_BIN": str(path)})[0] == 201
    wait_until(lambda: shared.status("nora")["state"] == "error")
    shared.pen.stop("nora")


def test_c3_the_engine_is_looked_for_as_tasks_find_it(shared: Desk) -> None:
    """Variables of the role and of the file are the engine's, too."""
    write_free(shared, "vera", env=path_of(shared))
    nothing = {k: v for k, v in shared.pen.env.items() if k != "BULLPEN_CLAUDE_BIN"}
    assert shared.launch("vera", env={**nothing, "PATH": "/usr/bin:/bin"})[0] == 201
    shared.wait_ready("vera")
    assert shared.done(shared.give("vera", "[[say hi]]"))["output"] == "hi"


def surroundings(office: Desk, name: str) -> set[str]:
    """Everything in the home that bears the agent's name, but for its file."""
    found = list_files(office.pen.root, f"**/*{name}*")
    return {str(path.relative_to(office.pen.root)) for path in found} - {f"agents/{name}.yaml"}


def test_c3_a_wrong_file_is_told_as_a_whole_before_anything_happens(shared: Desk) -> None:
    port = shared.pen.free_port()
    write_free(shared, "zoe", port=port, claude={"timeout": "soon"}, prot=1, log_level="loud")
    status, error = shared.launch("zoe")
    assert (status, error["error"]) == (400, "validation_error")
    text = json.dumps(error)
    assert [word for word in ("claude.timeout", "prot", "log_level") if word not in text] == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
    assert "zoe" not in shared.pen.agents()
    assert surroundings(shared, "zoe") == {"roles/zoe.yaml"}


def test_c3_a_port_in_use_names_its_owner_and_leaves_nothing(shared: Desk) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        write_free(shared, "yves", port=taken.getsockname()[1])
        status, error = shared.launch("yves")
        assert (status, error["error"]) == (422, "command_failed")  # a command then exits with 1
        assert f"pid {os.getpid()}" in error["message"]
        assert "yves" not in shared.pen.agents()
        assert surroundings(shared, "yves") == {"roles/yves.yaml"}
    write_free(shared, "yves", port=shared.pen.free_port())
    shared.start("yves")
    shared.pen.stop("yves")


@pytest.mark.storm
def test_c3_what_is_lost_while_the_hub_is_away_is_an_error(office: Desk) -> None:
    """A port that somebody else has taken; a file that makes no sense any more."""
    amy = task_agent(office, "amy")
    task_agent(office, "ben")
    office.pen.kill_hub()
    launch_env = office.pen.session("ben") / sessions.ENVIRONMENT
    launch_env.write_text(json.dumps({**json.loads(launch_env.read_text()), "env": 1}))
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def is_bound() -> bool:  # the last thread of the hub may still be leaving
            try:
                taken.bind(("127.0.0.1", amy.at_port.port))
            except OSError:
                return False
            return True

        wait_until(is_bound)
        taken.listen()
        office.pen.start()
        found = office.status("amy")
        assert found["state"] == "error"
        assert f"pid {os.getpid()}" in found["log"][-1]["message"]
        wait_until(lambda: office.status("ben")["state"] == "error")
    office.pen.client().post("agents", "amy", "restart")
    office.wait_ready("amy")
    assert amy.at_port.state() == "idle"


# ── the log ──


def test_c1_the_log_tells_of_life_and_not_of_work(shared: Desk) -> None:
    shared.agent("lena", walls=False, log_level="debug")
    prompt, answer = "Pr0mpt-words", "M0del-words"
    task = shared.give("lena", f"{prompt} [[say {answer}]]")
    shared.done(task)
    failed = shared.give("lena", f"{prompt} [[say {answer} ; status 401]]")
    shared.over(failed)

    def said() -> list[tuple[str, str | None]]:
        log = shared.status("lena")["log"]
        return [(entry["message"], entry.get("task")) for entry in log]

    wait_until(lambda: ("a task is failed", failed) in said())
    assert ("a task is completed", task) in said()
    log = shared.status("lena")["log"]
    for text in (json.dumps(log), (shared.pen.root / "logs" / "hub.log").read_text()):
        assert prompt not in text
        assert answer not in text
    assert all({"time", "level", "message"} <= set(entry) for entry in log)


def test_c4_the_log_is_as_loud_as_the_file_says(shared: Desk) -> None:
    shared.agent("luca", walls=False, log_level="error")
    shared.done(shared.give("luca", "[[say hi]]"))
    assert shared.status("luca")["log"] == []
    config = shared.ask("GET", "/agents/luca/config")[1]["config"]
    answer = shared.ask("PUT", "/agents/luca/config", {**config, "log_level": "debug"})[1]
    assert answer["live"] == ["log_level"]
    wait_until(lambda: shared.status("luca")["state"] == "idle")
    shared.done(shared.give("luca", "[[say hi]]"))

    def logged() -> bool:
        entries = shared.status("luca")["log"]
        return "a task is completed" in [entry["message"] for entry in entries]

    wait_until(logged)


# ── what the keys of the file do ──


def test_c4_model_and_turns_are_the_engines(shared: Desk) -> None:
    seen = shared.claude.root / "argv"
    program = wrapper(shared, f'echo "$@" >>{shlex.quote(str(seen))}', "recorder")
    write_free(shared, "mona", claude={"model": "opus", "max_turns": 7})
    shared.launch("mona", env={**shared.pen.env, "BULLPEN_CLAUDE_BIN": str(program)})
    shared.wait_ready("mona")
    shared.done(shared.give("mona", "[[say hi]]"))
    last = seen.read_text().splitlines()[-1]
    assert "--model opus" in last
    assert "--max-turns 7" in last
    wait_until(lambda: shared.status("mona")["state"] == "idle")
    shared.ask("PUT", "/agents/mona/config", {"role": "mona", "claude": {"max_turns": 9}})
    shared.done(shared.give("mona", "[[say hi]]"))
    last = seen.read_text().splitlines()[-1]
    assert "--model sonnet" in last
    assert "--max-turns 9" in last


@pytest.mark.storm
def test_c4_time_out_directory_and_keeping_open(shared: Desk, tmp_path: Path) -> None:
    work = tmp_path / "work"
    shared.agent(
        "nils",
        walls=False,
        session_dir=str(work),
        keep_open=True,
        open_timeout="3s",
        claude={"timeout": "1s"},
    )
    late = shared.over(shared.give("nils", "[[hold nobody]]"))
    assert late["error"]["type"] == "timeout"
    wait_until(lambda: shared.status("nils")["state"] == "idle")
    config = shared.ask("GET", "/agents/nils/config")[1]["config"]
    put(shared, "nils", {**config, "claude": {"timeout": "1m"}})
    task = shared.give("nils", "[[say hi]]")
    found = shared.over(task)
    assert Path(found["directory"]) == work / found["session_id"]
    assert shared.moves(task) == ["queued", "working", "idle", "completed"]  # open for too long


def test_c4_variables_of_the_file_are_the_tasks(shared: Desk) -> None:
    task_agent(shared, "olga", env={"OLGA_WORD": "w0rd"})
    prompt = '[[tool Bash {"command": "echo $OLGA_WORD > out"} ; say done]]'
    found = shared.done(shared.give("olga", prompt))
    assert (Path(found["directory"]) / "out").read_text() == "w0rd\n"


@pytest.mark.storm
def test_c4_labels_and_role_bring_tasks_from_the_queue(shared: Desk) -> None:
    shared.agent("pia", walls=False, labels={"team": "red"})
    shared.agent("paul", walls=False, labels={"team": "blue"})

    def offer(**fields: Any) -> str:
        body = {"prompt": "[[say hi]]", **fields}
        return str(shared.pen.client().post("tasks", body=body)["task_id"])

    assert shared.done(offer(labels={"team": "blue"}))["agent"] == "paul"
    assert shared.done(offer(labels={"team": "red"}))["agent"] == "pia"
    assert shared.done(offer(role="pia"))["agent"] == "pia"


def test_c4_the_sandbox_of_the_file_is_laid_over_the_roles(shared: Desk) -> None:
    shared.agent(
        "quin",
        role={"sandbox": {"enabled": False, "processes": 100}},
        sandbox={"enabled": True},
    )
    found = shared.status("quin")
    assert found["sandbox"]["enabled"] is True
    assert found["sandbox"]["processes"] == 100
    prompt = '[[tool Bash {"command": "cat /proc/1/comm > out"} ; say done]]'
    done = shared.done(shared.give("quin", prompt))
    assert (Path(done["directory"]) / "out").read_text() == "bwrap\n"
    # Sent back as it was read, it changes nothing: the rest is the role's.
    config = shared.ask("GET", "/agents/quin/config")[1]["config"]
    answer = shared.ask("PUT", "/agents/quin/config", config)[1]
    assert (answer["live"], answer["restart"]) == ([], [])
    assert shared.status("quin")["sandbox"] == found["sandbox"]


@pytest.mark.storm
def test_c4_autostart_is_with_the_hub(office: Desk) -> None:
    write_free(office, "auto", autostart=True, env=path_of(office))
    write_free(office, "wrong", autostart=True, prot=1)
    write_free(office, "zero", autostart=True, env=path_of(office))
    write_free(office, "hand")
    office.pen.kill_hub()
    office.pen.start()
    wait_until(lambda: {"auto", "zero"} <= set(office.pen.agents()))
    office.wait_ready("auto")
    office.wait_ready("zero")  # what is wrong with another file does not stop it
    assert not {"hand", "wrong"} & set(office.pen.agents())
    told = [entry for entry in office.ask("GET", "/status")[1]["log"] if entry["level"] == "error"]
    assert [(entry["agent"], "prot" in entry["why"]) for entry in told] == [("wrong", True)]
    assert office.done(office.give("auto", "[[say hi]]"))["output"] == "hi"


@pytest.mark.parametrize("words", [["agent", "stop"], ["stop"]])
@pytest.mark.storm
def test_c4_who_was_stopped_by_a_person_stays_stopped_until_somebody_starts_it(
    office: Desk, words: list[str]
) -> None:
    for name in ("auto", "other"):
        write_free(office, name, autostart=True, env=path_of(office))
    office.pen.kill_hub()
    office.pen.start()
    wait_until(lambda: {"auto", "other"} <= set(office.pen.agents()))
    office.wait_ready("auto")
    assert office.cli(*words, "auto").code == 0
    assert office.cli("agent", "stop", "--help").out.count("autostart") == 1
    assert office.cli("hub", "restart").code == 0
    office.wait_ready("other")  # by the same look, and after it by name
    assert not office.pen.agents()["auto"]["running"]
    assert "not running · until bullpen agent start auto" in office.cli("agent", "list").out
    assert office.cli("agent", "start", "auto").code == 0
    office.pen.kill_hub()
    office.pen.start()
    wait_until(lambda: bool(office.pen.agents()["auto"]["running"]))


# ── changing the file ──


def put(office: Desk, name: str, fields: Any) -> tuple[int, dict[str, Any]]:
    return office.ask("PUT", f"/agents/{name}/config", fields)


def file_of(office: Desk, name: str) -> Path:
    return office.pen.root / "agents" / f"{name}.yaml"


@pytest.mark.storm
def test_c5_what_holds_at_once_and_what_needs_a_start(shared: Desk) -> None:
    rosa = task_agent(shared, "rosa")
    port = shared.pen.free_port()
    wanted = {"role": "rosa", "port": port, "labels": {"a": "b"}, "keep_open": True}
    status, done = put(shared, "rosa", wanted)
    assert (status, done["live"], done["restart"]) == (200, ["keep_open"], ["port", "labels"])
    shared.wait(shared.give("rosa", "[[say hi]]"), "idle")
    assert rosa.at_port.state() == "working"  # still where it was, and said so
    assert shared.status("rosa")["config"]["port"] == rosa.at_port.port
    shared.pen.client().post("agents", "rosa", "restart", grace=0)
    shared.wait_ready("rosa")
    assert seated(shared, "rosa", port).at_port.state() == "idle"
    with pytest.raises(ConnectionRefusedError):
        rosa.at_port.state()
    assert shared.pen.agents()["rosa"]["labels"] == {"a": "b"}


def test_c5_a_directory_for_sessions_holds_from_the_next_task_on(
    shared: Desk, tmp_path: Path
) -> None:
    shared.agent("rick", walls=False)
    done = put(shared, "rick", {"role": "rick", "session_dir": str(tmp_path / "new")})[1]
    assert done["live"] == ["session_dir"]
    found = shared.done(shared.give("rick", "[[say hi]]"))
    assert Path(found["directory"]).parent == tmp_path / "new"


def test_c5_what_is_wrong_is_listed_and_nothing_is_written(shared: Desk) -> None:
    shared.agent("sara", walls=False, env={"A": "s3cret-value"})
    before = file_of(shared, "sara").read_bytes()
    wrong = {"role": "sara", "claude": {"max_turns": 0}, "labels": 3, "x": 1}
    status, error = put(shared, "sara", wrong)
    assert (status, error["error"]) == (400, "validation_error")
    assert [word for word in ("max_turns", "labels", "x") if word not in str(error)] == []
    status, error = put(shared, "sara", {"role": "nobody"})
    assert (status, "no role called nobody" in str(error)) == (400, True)
    assert "s3cret" not in json.dumps(error)
    for odd in ({}, {"role": None}, {"role": "sara", "env": {"A B": "x"}}, {"role": "../sara"}):
        assert put(shared, "sara", odd)[0] == 400
    for odd in ({"role": "sara", "env": "x"}, {"role": "sara", "env": [1]}, {"role": "\ud800"}):
        assert put(shared, "sara", odd)[0] == 400
    for odd in ([], None, "x", 3):
        assert put(shared, "sara", odd)[0] == 400
    assert file_of(shared, "sara").read_bytes() == before
    assert list(file_of(shared, "sara").parent.glob("*sara*")) == [file_of(shared, "sara")]


def test_c5_variables_are_never_shown_and_never_lost(shared: Desk) -> None:
    shared.agent("tina", walls=False, env={"A": "v4lue-a", "B": "v4lue-b"})

    def kept() -> dict[str, str]:
        found: dict[str, str] = read(file_of(shared, "tina")).data["env"]
        return found

    answers = [shared.ask("GET", f"/agents/tina/{noun}")[1] for noun in ("config", "status")]
    assert [answer["config"]["env"] for answer in answers] == [["A", "B"], ["A", "B"]]
    config = answers[0]["config"]
    for fields, left in (
        ({"role": "tina"}, {"A": "v4lue-a", "B": "v4lue-b"}),
        ({**config, "keep_open": True}, {"A": "v4lue-a", "B": "v4lue-b"}),
        ({"role": "tina", "env": {"A": None, "C": "v4lue-c"}}, {"A": "v4lue-a", "C": "v4lue-c"}),
        ({"role": "tina", "env": ["C"]}, {"C": "v4lue-c"}),
        ({"role": "tina", "env": {"D": "v4lue-d"}}, {"D": "v4lue-d"}),
        ({"role": "tina", "env": None}, {"D": "v4lue-d"}),
        ({"role": "tina", "env": {}}, {}),
    ):
        status, answer = put(shared, "tina", fields)
        assert (status, kept()) == (200, left)
        assert "v4lue" not in json.dumps(answer)
        assert stat.S_IMODE(file_of(shared, "tina").stat().st_mode) == 0o600
    assert put(shared, "tina", {"role": "tina", "env": ["GONE"]})[0] == 400
    text = json.dumps(shared.status("tina")) + (shared.pen.root / "logs" / "hub.log").read_text()
    assert "v4lue" not in text


def test_c5_a_broken_file_can_be_mended(shared: Desk) -> None:
    shared.agent("ugo", walls=False, env={"A": "x"})
    file_of(shared, "ugo").write_text("role: [ugo\n# a note\n")
    assert shared.status("ugo")["state"] == "idle"
    assert shared.ask("GET", "/agents/ugo/config")[0] == 400
    status, error = put(shared, "ugo", {"role": "ugo"})
    assert (status, error["error"]) == (409, "conflict")
    assert "env" in error["details"]["hint"]
    status, done = put(shared, "ugo", {"role": "ugo", "env": {"A": "y"}})
    assert status == 200
    assert done["comments_dropped"] is True
    assert put(shared, "ugo", {"role": "ugo"})[1]["comments_dropped"] is False
    assert shared.done(shared.give("ugo", "[[say hi]]"))["output"] == "hi"


def test_c5_an_agent_without_a_file_can_get_one(shared: Desk) -> None:
    shared.role("plain", sandbox={"enabled": False})
    assert shared.launch("vito", role="plain")[0] == 201
    shared.wait_ready("vito")
    shown = shared.ask("GET", "/agents/vito/config")[1]
    assert (shown["has_file"], shown["config"]["role"]) == (False, "plain")
    assert put(shared, "vito", {**shown["config"], "keep_open": True})[0] == 200
    assert shared.ask("GET", "/agents/vito/config")[1]["has_file"] is True


def test_c5_two_changes_at_once_are_both_whole(shared: Desk) -> None:
    shared.agent("wim", walls=False, env={"KEPT": "x"})
    work = [lambda n=n: put(shared, "wim", {"role": "wim", "max_retries": n}) for n in range(12)]
    assert {status for status, _ in together(*work)} == {200}
    found = read(file_of(shared, "wim")).data
    assert found["env"] == {"KEPT": "x"}
    assert found["max_retries"] in range(12)


@pytest.mark.parametrize(
    ("asked", "known", "after"),
    [
        (None, {"A": "1"}, {"A": "1"}),
        ({}, {"A": "1"}, {}),
        ([], {"A": "1"}, {}),
        (["A"], {"A": "1", "B": "2"}, {"A": "1"}),
        ({"A": None, "B": "3"}, {"A": "1", "B": "2"}, {"A": "1", "B": "3"}),
        ({"A": "1"}, None, {"A": "1"}),
        ({}, None, {}),
        ("odd", {}, "odd"),
        ([1], {}, [1]),
        ({"A": 1}, {"A": "x"}, {"A": 1}),
    ],
)
def test_c5_variables_that_are_not_said_stay(asked: Any, known: Any, after: Any) -> None:
    assert merge_variables(asked, known) == after


@pytest.mark.parametrize(
    ("asked", "known"), [(None, None), (["A"], None), ({"A": None}, None), (["B"], {"A": "1"})]
)
def test_c5_variables_that_nobody_knows_are_not_made_up(asked: Any, known: Any) -> None:
    with pytest.raises(BullpenError):
        merge_variables(asked, known)


# ── leaving ──


def drain(office: Desk, name: str, **fields: Any) -> None:
    status, answer = office.ask("POST", f"/agents/{name}/shutdown", fields)
    assert status == 202, answer


def gone(office: Desk, name: str) -> None:
    wait_until(lambda: not running(office, name))


def busy(office: Desk, name: str, gate: str, **fields: Any) -> str:
    """A task that waits for `release(gate)`, and has said something."""
    prompt = f'[[say part ; tool Bash {{"command": "echo x"}} ; hold {gate} ; say whole]]'
    task = office.give(name, prompt, **fields)
    office.claude.wait_held(gate)
    return task


@pytest.mark.storm
def test_c2_a_task_is_waited_for_and_no_other_is_taken(shared: Desk) -> None:
    anna = task_agent(shared, "anna")
    task = busy(shared, "anna", "anna")
    drain(shared, "anna", timeout_seconds=60)
    assert anna.at_port.state() == "draining"
    assert anna.at_port.ask("GET", "/status").json["current_task"]["id"] == task
    answer = anna.at_port.ask("POST", "/task", {"prompt": "x"})
    assert (answer.status, answer.json["error"]) == (503, "unavailable")
    assert answer.json["details"]["retryable"] is True
    queued = shared.pen.client().post("tasks", body={"prompt": "x", "role": "anna"})["task_id"]
    assert shared.task(queued)["state"] == "queued"
    shared.claude.release("anna")
    gone(shared, "anna")
    assert shared.task(task)["state"] == "completed"
    assert shared.task(queued)["state"] == "queued"  # for the next of that role
    with pytest.raises(ConnectionRefusedError):
        anna.at_port.state()
    shared.start("anna")
    shared.done(queued)
    said = [entry["message"] for entry in shared.status("anna")["log"]]
    assert said.index("told to leave") < said.index("started", 1)  # it has the life before, too


def test_c2_force_cancels_at_the_end(shared: Desk) -> None:
    task_agent(shared, "bert")
    task = busy(shared, "bert", "bert")
    drain(shared, "bert", timeout_seconds=0.3, force=True)
    gone(shared, "bert")
    assert shared.task(task)["state"] == "cancelled"
    assert "part" in shared.task(task)["output"]


@pytest.mark.storm
def test_c2_without_force_the_task_goes_on(shared: Desk) -> None:
    cora = task_agent(shared, "cora")
    task = busy(shared, "cora", "cora")
    drain(shared, "cora", timeout_seconds=0.2)

    def is_shut() -> bool:
        try:
            cora.at_port.state()
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:  # it was waiting at the socket that closed
            return False
        return False

    wait_until(is_shut)
    assert shared.task(task)["state"] == "working"
    assert cora.below_hub.state() == "draining"
    assert cora.below_hub.ask("POST", "/task", {"prompt": "x"}).status == 503
    status, error = shared.launch("cora")
    assert (status, "has not left yet" in error["message"]) == (409, True)
    shared.claude.release("cora")
    assert shared.done(task)["output"].endswith("whole")
    gone(shared, "cora")


@pytest.mark.parametrize("force", [True, False])
def test_c2_a_task_that_rests_is_completed(shared: Desk, force: bool) -> None:
    name = f"dora-{force}".lower()
    shared.agent(name, walls=False)
    task = shared.give(name, "[[say first]]", keep_open=True)
    shared.wait(task, "idle")
    drain(shared, name, timeout_seconds=0, force=force)
    gone(shared, name)
    found = shared.task(task)
    assert (found["state"], found["output"]) == ("completed", "first")


def test_c2_asked_again_the_later_word_counts(shared: Desk) -> None:
    task_agent(shared, "egon")
    task = busy(shared, "egon", "egon")
    drain(shared, "egon", timeout_seconds=3600)
    drain(shared, "egon", timeout_seconds=0, force=True)
    gone(shared, "egon")
    assert shared.task(task)["state"] == "cancelled"


@pytest.mark.storm
def test_c2_a_stop_ends_a_drain(shared: Desk) -> None:
    task_agent(shared, "fido")
    task = busy(shared, "fido", "fido")
    drain(shared, "fido", timeout_seconds=3600)
    shared.pen.stop("fido")
    assert not running(shared, "fido")
    assert shared.task(task)["state"] == "cancelled"
    shared.start("fido")
    assert shared.done(shared.give("fido", "[[say hi]]"))["output"] == "hi"


@pytest.mark.storm
@pytest.mark.parametrize("way", ["shutdown", "stop"])
def test_c2_of_tasks_given_while_it_leaves_none_is_lost(shared: Desk, way: str) -> None:
    """Acknowledged is done, or cancelled with the agent that is stopped: whoever came too late was
    told."""
    ends = {"shutdown": {"completed"}, "stop": {"completed", "cancelled"}}[way]
    for number in range(3):
        name = f"gina-{way}-{number}"
        shared.agent(name, walls=False)
        work = [lambda: shared.ask("POST", f"/agents/{name}/task", {"prompt": "[[say hi]]"})] * 4  # noqa: B023
        asks = {
            "shutdown": ("POST", f"/agents/{name}/shutdown", {"timeout_seconds": 60}),
            "stop": ("DELETE", f"/agents/{name}"),
        }
        leave = lambda: shared.ask(*asks[way])  # noqa: B023, E731
        answers = together(*work[:2], leave, *work[2:])
        assert {status for status, _ in answers} <= {200, 201, 202, 409, 503}
        for status, answer in answers:
            if status == 201:
                assert shared.over(answer["task_id"])["state"] in ends
        gone(shared, name)


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.storm
def test_c2_draining_outlives_the_hub(office: Desk, is_killed: bool) -> None:
    amy = task_agent(office, "amy")
    task = busy(office, "amy", "gate")
    drain(office, "amy", timeout_seconds=3600)
    if is_killed:
        office.pen.kill_hub()
    else:
        kill(office.pen.pid, signal.SIGTERM)
    office.pen.start()
    assert office.status("amy")["state"] == "draining"
    status, error = office.ask("POST", "/agents/amy/task", {"prompt": "x"})
    assert (status, error["error"]) == (503, "unavailable")
    assert office.task(task)["state"] == "working"
    office.claude.release("gate")
    gone(office, "amy")
    found = office.task(task)
    assert found["state"] == "completed", found
    assert found["output"].endswith("whole")
    assert len(found["runs"]) == 1
    with pytest.raises(ConnectionRefusedError):
        amy.at_port.state()


@pytest.mark.storm
@pytest.mark.parametrize("force", [True, False])
def test_c2_a_drain_that_ended_while_the_hub_was_away(office: Desk, force: bool) -> None:
    task_agent(office, "amy")
    task = busy(office, "amy", "gate")
    drain(office, "amy", timeout_seconds=0.5, force=force)
    office.pen.kill_hub()
    until = office.pen.events("amy", "agent.stopping")[-1]["until"]
    with contextlib.suppress(AssertionError):
        wait_until(lambda: False, max(0.0, until - office.pen.events("amy")[-1]["time"]))
    office.pen.start()
    if not force:
        assert office.status("amy")["state"] == "draining"
        office.claude.release("gate")
    gone(office, "amy")
    assert office.task(task)["state"] == ("cancelled" if force else "completed")


@pytest.mark.storm
def test_c2_a_stop_that_a_kill_cut_off_is_finished(desk: Desk) -> None:
    """The program ignores SIGTERM: so the hub dies while it waits."""
    config = desk.pen.root / "config.yaml"
    config.write_text(config.read_text().replace("stop_grace: 5s", "stop_grace: 60s"))
    desk.program("""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
say("part")
while not os.path.exists("go"):
    time.sleep(0.05)
""")
    desk.agent("amy", walls=False)
    task = desk.give("amy", "x")
    desk.wait_said(task, "part")
    drain(desk, "amy", timeout_seconds=0, force=True)
    wait_until(lambda: desk.task(task)["state"] != "working")
    found = desk.task(task)
    desk.pen.kill_hub()
    assert found["state"] == "cancelling"  # the kill has hit the window
    (Path(found["directory"]) / "go").touch()
    desk.pen.start()
    gone(desk, "amy")
    assert desk.task(task)["state"] == "cancelled"


def test_a1_peek_and_keys_of_a_task_agent_say_that_it_has_no_terminal(desk: Desk) -> None:
    desk.agent()
    for words in (("peek", "amy"), ("send-keys", "amy", "x")):
        ran = desk.cli(*words)
        assert "amy has no terminal: it takes tasks" in ran.err
        assert "bullpen transcript amy" in ran.err
