"""`bullpen task`, `tasks`, `history` and `agent`, with a real hub and the stand-in."""

import contextlib
import json
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from bullpen.cli.commands import agent as agent_command
from bullpen.cli.commands import task as task_command
from bullpen.cli.tasks.progress import TurnProgress
from bullpen.cli.tasks.wait import TaskWait, wait_and_show
from bullpen.client.call import Call
from bullpen.client.hub import Hub
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.model.names import TASK_WORDS
from tests import forked
from tests.cli.shown_agent import shown_agent
from tests.commands import BULLPEN, Ran
from tests.hub.tasks.desk import Desk, made_desk
from tests.processes import kill
from tests.terminal.person import Person
from tests.waiting import wait_until
from tests.worktrees.repos import make_repo

ID = re.compile(r"t-[0-9a-f]{12}")
BAD = "a\x1b]0;pwned\x07b"
SECONDS = 180.0

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One home for all: amy works without walls, so that tests can hold her."""
    with made_desk(tmp_path_factory.mktemp("desk")) as made:
        made.agent("amy", walls=False)
        yield made


@pytest.fixture(autouse=True)
def _amy_is_free(desk: Desk) -> Iterator[None]:
    """No test leaves her a task."""
    yield
    for task in desk.pen.client().get("tasks")["tasks"]:
        desk.ask("POST", f"/task/{task['task_id']}/cancel")
        desk.over(task["task_id"])


@pytest.fixture
def hold(desk: Desk, request: pytest.FixtureRequest) -> str:
    """A name that no other test waits for."""
    return re.sub(r"\W", "-", request.node.name)


def env(desk: Desk) -> dict[str, str]:
    return {**desk.pen.env, "BULLPEN_DIR": str(desk.pen.root)}


def run(desk: Desk, *words: str, stdin: bytes = b"", cwd: Path | None = None, **more: str) -> Ran:
    given = {**env(desk), **more}
    done = forked.run([str(BULLPEN), *words], cwd or desk.pen.root, given, stdin, SECONDS)
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


@contextlib.contextmanager
def running(desk: Desk, *words: str) -> "Iterator[subprocess.Popen[bytes]]":
    """The same, and not waited for."""
    process = subprocess.Popen(
        [BULLPEN, *words],
        cwd=desk.pen.root,
        env=env(desk),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def person(desk: Desk, *words: str, cols: int = 80) -> Iterator[Person]:
    """Somebody at a terminal."""
    made = Person([str(BULLPEN), *words], env(desk), (24, cols), None)
    try:
        yield made
    finally:
        made.close()


def id_in(text: str) -> str:
    found = ID.search(text)
    assert found, text
    return found[0]


def held_task(desk: Desk) -> str:
    """The id of what amy works on."""
    (task,) = desk.pen.client().get("agents", "amy", "tasks")["tasks"]
    return str(task["task_id"])


# ── giving and waiting ──


def test_t13_the_output_is_all_of_standard_output(desk: Desk) -> None:
    ran = run(desk, "task", "amy", "[[say all good]]")
    assert (ran.code, ran.out) == (0, "all good\n")
    id = id_in(ran.err)
    where, end = ran.err.splitlines()
    assert where.startswith("amy works in ")
    assert re.fullmatch(rf"task {id} completed in [0-9.]+s · bullpen task show {id}", end)


def test_t13_a_dash_is_standard_input(desk: Desk) -> None:
    ran = run(desk, "task", "amy", "-", stdin=b"[[say from a pipe]]")
    assert (ran.code, ran.out) == (0, "from a pipe\n")
    for stdin, message in ((b"", "empty"), (b"\xff", "no UTF-8"), (b"a\0b", "NUL")):
        refused = run(desk, "task", "amy", "-", stdin=stdin)
        assert refused.code == 2
        assert message in refused.err


def test_an_agent_with_a_file_is_started_first(desk: Desk) -> None:
    desk.role("zoe", sandbox={"enabled": False})
    (desk.pen.root / "agents" / "zoe.yaml").write_text('{"role": "zoe"}')
    ran = run(desk, "task", "zoe", "[[say here]]")
    assert (ran.code, ran.out) == (0, "here\n")
    assert ran.err.startswith("zoe is not running: starting it (agents/zoe.yaml)\n")
    again = run(desk, "task", "zoe", "[[say still here]]")
    assert "starting" not in again.err
    assert run(desk, "agent", "stop", "zoe").out.startswith("zoe has left")


def test_unknown_and_interactive_agents_are_refused(desk: Desk) -> None:
    ran = run(desk, "task", "nobody", "hi")
    assert ran.code == 4
    said, hint = ran.err.splitlines()
    assert said.startswith("error: no agent called nobody · there are amy")
    assert hint == "hint:  bullpen agent list · bullpen agent start nobody --role ROLE"
    for wrong, meant in (("ammy", "amy"), ("cancle", "bullpen task cancel ID")):
        missed = run(desk, "task", wrong, "hi")
        assert (missed.code, f"no agent called {wrong} · did you mean {meant}?" in missed.err) == (
            4,
            True,
        )
    for words in (
        ("task", "", "hi"),
        ("task", "a b", "hi"),
        ("task", "a/", "hi"),
        ("history", ""),
        ("agent", "stop", ""),
    ):
        refused = run(desk, *words)
        assert (refused.code, "agent name" in refused.err) == (2, True), refused
    elsewhere = run(desk, "task", "a/b", "hi")
    assert (elsewhere.code, "this machine is in no fleet" in elsewhere.err) == (4, True)
    desk.pen.run(name="shell")
    refused = run(desk, "task", "shell", "hi")
    assert refused.code == 5
    assert "shell works in a terminal, and takes no tasks\nhint:  bullpen send shell" in refused.err
    desk.pen.stop("shell")


def test_b10_a_task_agent_that_comes_back_has_lost_no_conversation(desk: Desk) -> None:
    """Each task has its own."""
    desk.agent("back", walls=False)
    assert run(desk, "task", "back", "hi").code == 0
    assert run(desk, "stop", "back").code == 0
    resumed = run(desk, "resume", "back")
    assert (resumed.code, "conversation" in resumed.out) == (0, False), resumed
    assert not desk.pen.events("back", "agent.conversation_lost")
    assert run(desk, "stop", "back").code == 0


def test_t13_failed_is_1_and_says_why(desk: Desk) -> None:
    ran = run(desk, "task", "amy", "[[status 401]]")
    assert ran.code == 1
    assert ran.err.splitlines()[1].startswith("error: engine_error: ")
    assert f"hint:  bullpen task debug {id_in(ran.err)}\n" in ran.err
    as_json = run(desk, "task", "amy", "[[status 401]]", "--json")
    assert as_json.code == 1
    assert as_json.json["error"]["type"] == "engine_error"
    assert as_json.err == ""


def test_t13_a_time_out_is_124_and_keeps_what_was_said(desk: Desk) -> None:
    script = '[[say so far ; tool Bash {"command":"echo"} ; hold never]]'
    for seconds in (2, 8, 30, 100):  # until it comes to say something, on a busy machine
        ran = run(desk, "task", "amy", script, "--timeout", f"{seconds}s")
        if ran.out:
            break
    assert (ran.code, ran.out) == (124, "so far\n")
    assert ran.err.splitlines()[1].startswith("error: timeout: ")
    wrong = run(desk, "task", "amy", "hi", "--timeout", "tomorrow")
    assert wrong.code == 2
    assert "--timeout" in wrong.err


def test_t13_cancelled_from_elsewhere_is_130(desk: Desk, hold: str) -> None:
    with running(desk, "task", "amy", f"[[hold {hold}]]") as waiting:
        desk.claude.wait_held(hold)
        ran = run(desk, "task", "cancel", held_task(desk)[:8])
        assert ran.code == 0
        assert "is being cancelled" in ran.out
        _out, err = waiting.communicate(timeout=SECONDS)
    assert waiting.returncode == 130
    assert b"was cancelled after" in err


def test_a_busy_agent_says_with_what(desk: Desk, hold: str) -> None:
    task = desk.give("amy", f"[[hold {hold}]]")
    desk.claude.wait_held(hold)
    ran = run(desk, "task", "amy", "hi")
    assert ran.code == 5
    assert task in ran.err


def test_no_wait_prints_the_id(desk: Desk) -> None:
    ran = run(desk, "task", "amy", "[[say later]]", "--no-wait")
    assert ran.code == 0
    id = ran.out.strip()
    assert ID.fullmatch(id)
    assert desk.done(id)["output"] == "later"
    as_json = run(desk, "task", "amy", "[[say later]]", "--no-wait", "--json").json
    assert as_json["status"] == "queued"
    desk.done(as_json["task_id"])


@pytest.mark.storm
def test_options_reach_the_task(desk: Desk, tmp_path: Path) -> None:
    place = Path(desk.pen.env["HOME"]) / "shop"
    place.mkdir()
    ran = run(
        desk,
        *("task", "amy", "[[say done]]", "--workdir", "shop", "--model", "haiku"),
        *("--env", "GREETING=hello", "--env", "FROM_SHELL", "--budget", "usd=5,tokens=900000"),
        "--json",
        cwd=place.parent,
        FROM_SHELL="s3cret",
    )
    assert ran.code == 0, ran.err
    found = ran.json
    assert found["directory"] == str(place)
    assert found["env_names"] == ["FROM_SHELL", "GREETING"]
    assert "s3cret" not in run(desk, "history", "show", found["task_id"], "--json").out
    session = run(desk, "task", "amy", "[[say on]]", "--session", found["session_id"], "--json")
    assert session.json["session_id"] == found["session_id"]
    for words in (
        ("--role", "amy"),
        ("--env", "NOT_THERE"),
        ("--budget", "eur=1"),
        ("--workdir", "shop", "--session", found["session_id"]),
        ("--worktree", "b"),
        ("--timeout", "0s"),
        ("--session", "the-last"),
    ):
        assert run(desk, "task", "amy", "hi", *words, cwd=place.parent).code == 2, words


def test_a_variable_is_there_in_the_run(desk: Desk) -> None:
    desk.agent("eva")
    script = '[[tool Bash {"command":"printenv GREETING > got.txt"} ; say done]]'
    ran = run(desk, "task", "eva", script, "--env", "GREETING", "--json", GREETING="hello")
    assert ran.code == 0, ran.out
    assert (Path(ran.json["directory"]) / "got.txt").read_text() == "hello\n"
    run(desk, "agent", "stop", "eva")


def test_any_goes_to_whoever_fits(desk: Desk) -> None:
    desk.agent("kim", walls=False, labels={"team": "web"})
    ran = run(desk, "task", "--any", "[[say mine]]", "--label", "team=web", "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["agent"], ran.json["output"]) == ("kim", "mine")
    assert run(desk, "task", "--any", "kim", "hi").code == 2
    run(desk, "agent", "stop", "kim")
    for words, waits in ((("--label", "team=web"), True), (("--role", "amy"), False)):
        ran = run(desk, "task", "--any", "[[say mine]]", *words, "--no-wait")
        assert (ran.code, "nobody who may take it is running" in ran.err) == (0, waits)


@pytest.mark.storm
def test_stream_prints_texts_as_they_come(desk: Desk, hold: str) -> None:
    script = f'[[say first ; tool Bash {{"command":"echo"}} ; hold {hold} ; say last]]'
    with running(desk, "task", "amy", script, "--stream") as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == b"first\n"
        assert not (desk.claude.holds / hold).exists()  # type: ignore[attr-defined]
        desk.claude.release(hold)
        out, _err = waiting.communicate(timeout=SECONDS)
    assert (waiting.returncode, out) == (0, b"last\n")


def test_a_reader_who_leaves_is_told_the_task(desk: Desk, hold: str) -> None:
    script = f'[[say first ; tool Bash {{"command":"echo"}} ; hold {hold} ; say last]]'
    with running(desk, "task", "amy", script, "--stream") as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == b"first\n"
        waiting.stdout.close()
        waiting.stdout = None
        id = held_task(desk)
        desk.claude.release(hold)
        _out, err = waiting.communicate(timeout=SECONDS)
    said = f"the rest is kept with the task · bullpen task show {id}"
    assert (waiting.returncode, err.decode().splitlines()[1:]) == (141, [said])
    assert desk.done(id)["output"] == "last"


def test_stream_as_json_is_a_line_per_event(desk: Desk) -> None:
    ran = run(desk, "task", "amy", "[[say hi]]", "--stream", "--json")
    events = [json.loads(line) for line in ran.out.splitlines()]
    names = [event["event"] for event in events]
    assert names.count("text") == 1
    assert names[-1] == "end"
    assert events[-1]["output"] == "hi"


# ── steering ──


@pytest.mark.storm
def test_t5_kept_open_continued_and_ended(desk: Desk) -> None:
    ran = run(desk, "task", "amy", "[[say one]]", "--keep-open")
    assert (ran.code, ran.out) == (0, "one\n")
    id = id_in(ran.err)
    assert f'bullpen task continue {id} "…"' in ran.err
    assert id in run(desk, "tasks", "amy").out
    for words in ((), ("--stream",)):
        more = run(desk, "task", "continue", id[:8], "[[say two]]", *words)
        assert (more.code, more.out) == (0, "two\n"), more.err
    ended = run(desk, "task", "end", id)
    assert (ended.code, ended.out) == (0, f"task {id} is completed\n")
    assert run(desk, "task", "end", id).code == 5
    assert run(desk, "task", "continue", id, "hi").code == 5
    assert "turns" in run(desk, "task", "show", id).out


@pytest.mark.storm
def test_continue_waits_for_its_own_answer(desk: Desk, hold: str) -> None:
    id = id_in(run(desk, "task", "amy", "[[say one]]", "--keep-open").err)
    with running(desk, "task", "continue", id, f"[[hold {hold} ; say two]]") as waiting:
        desk.claude.wait_held(hold)
        assert waiting.poll() is None
        desk.claude.release(hold)
        out, _err = waiting.communicate(timeout=SECONDS)
    assert out == b"two\n"
    run(desk, "task", "end", id)


def test_the_beginning_of_an_id_is_enough_if_it_is_one_tasks(desk: Desk) -> None:
    ids = [id_in(run(desk, "task", "amy", "[[say x]]", "--no-wait").out) for _ in range(1)]
    desk.done(ids[0])
    assert run(desk, "task", "show", ids[0][:9]).out.splitlines()[0].split() == ["task", ids[0]]
    assert run(desk, "task", "show", ids[0][2:9]).code == 0
    known = {
        item["task_id"] for item in run(desk, "history", "--limit", "100", "--json").json["tasks"]
    }
    free = next(
        digit for digit in map("{:07x}".format, range(99)) if not any(digit in id for id in known)
    )
    missing = run(desk, "task", "show", free)
    assert missing.code == 4
    for bad in ("../x", "t-", "T-12", "amy"):
        assert run(desk, "task", "show", bad).code == 2


def test_an_ambiguous_beginning_names_the_candidates(desk: Desk) -> None:
    def firsts() -> list[str]:
        items = run(desk, "history", "--limit", "100", "--json").json["tasks"]
        return [item["task_id"] for item in items]

    # Among seventeen ids two begin with the same digit.
    while len(firsts()) < 17:
        desk.done(desk.give("amy", "[[say x]]"))
    found = firsts()
    twice = next(id[:3] for id in found if sum(other[:3] == id[:3] for other in found) > 1)
    ran = run(desk, "task", "cancel", twice)
    assert ran.code == 2
    assert f"{twice} is the beginning of" in ran.err


# ── looking ──


def test_t8_debug_prints_the_raw_lines(desk: Desk) -> None:
    id = id_in(run(desk, "task", "amy", "[[say hi]]").err)
    lines = run(desk, "task", "debug", id).out.splitlines()
    assert lines[0] == "run 1 · stdout"
    assert json.loads(lines[-1])["type"] == "result"
    assert run(desk, "task", "debug", id, "--json").json["task_id"] == id


def test_tasks_lists_what_is_open(desk: Desk, hold: str) -> None:
    assert run(desk, "tasks").out.startswith("no open tasks")
    id = desk.give("amy", f"look [[hold {hold}]]")
    desk.claude.wait_held(hold)
    header, row = run(desk, "tasks").out.splitlines()
    assert header.split() == ["TASK", "AGENT", "STATE", "SINCE", "TOKENS", "PROMPT"]
    assert row.split()[:3] == [id, "amy", "working"]
    assert run(desk, "tasks", "--json").json["tasks"][0]["task_id"] == id
    assert run(desk, "tasks", "amy", "--json").json["tasks"][0]["agent"] == "amy"


@pytest.mark.storm
def test_t10_history_pages_and_filters(desk: Desk) -> None:
    good = id_in(run(desk, "task", "amy", "needle [[say x]]").err)
    bad = id_in(run(desk, "task", "amy", "[[status 401]]").err)
    lines = run(desk, "history", "amy", "--limit", "1").out.splitlines()
    assert run(desk, "history", "amy", "-n", "1").out.splitlines() == lines
    assert lines[1].split()[0] == bad
    assert lines[2].startswith("page 1 of ")
    again = lines[2].split(" · ")[1].split()
    assert run(desk, *again[1:]).out.splitlines()[1].split()[0] == good
    assert good in run(desk, "history", "--text", "needle").out
    assert bad not in run(desk, "history", "--text", "needle").out
    assert good not in run(desk, "history", "--state", "failed").out
    session = desk.task(good)["session_id"]
    found = run(desk, "history", "--session", session, "--json").json
    assert [item["task_id"] for item in found["tasks"]] == [good]
    assert run(desk, "history", "--text", "nobody said this").out == "no such tasks\n"
    assert run(desk, "history", "--page", "999").out == "no tasks on that page · --page 1\n"
    assert run(desk, "history", "--state", "nonsense").code == 2
    assert run(desk, "history", "--limit", "101").code == 2


def test_t10_history_show_has_commits_diff_and_logs(desk: Desk) -> None:
    repo = Path(desk.pen.env["HOME"]) / "repo"
    subprocess.run(["git", "init", "-q", "-b", "main", str(repo)], check=True)
    subprocess.run(
        ["git", "-C", str(repo), "commit", "-q", "--allow-empty", "-m", "one"], check=True
    )
    desk.agent("git")
    command = (
        "echo new > file.txt && git add . && git -c user.name=a -c user.email=a@b commit -qm two"
        " && echo harmless > file.txt"
    )
    script = f"[[tool Bash {json.dumps({'command': command})} ; say done]]"
    ran = run(desk, "task", "git", script, "--repo", "repo", "--worktree", "work", cwd=repo.parent)
    assert ran.code == 0, ran.err
    assert " · 1 commit · " in ran.err
    id = id_in(ran.err)
    short = run(desk, "history", "show", id)
    assert "\ncommit " in short.out
    assert "+new" not in short.out
    assert f"bullpen history show {id} --diff" in short.out
    full = run(desk, "history", "show", id, "--diff", "--logs").out
    committed, _, uncommitted = full.partition("── not committed ──")
    assert "── 1 commit, the oldest first ──" in committed
    assert "\n+new\n" in committed.partition("── committed, all commits together ──")[2]
    assert "\n-new\n+harmless\n" in uncommitted
    assert '"type": "result"' in full
    again = id_in(run(desk, "task", "git", "x", "--session", desk.task(id)["session_id"]).err)
    plain = id_in(run(desk, "task", "git", "x").err)
    for task, said in ((again, "it has changed nothing"), (plain, "no diff: ")):
        assert f"\n{said}" in run(desk, "history", "show", task, "--diff").out
    run(desk, "agent", "stop", "git")


@pytest.mark.storm
def test_hostile_text_is_raw_nowhere(desk: Desk) -> None:
    ran = run(desk, "task", "amy", f"{BAD} [[say {BAD}]]")
    assert ran.out == "a\\x1b]0;pwned\\x07b\n"
    id = id_in(ran.err)
    for words in (("history",), ("history", "--text", BAD), ("history", "--json")):
        shown = run(desk, *words).out
        assert "pwned" in shown
        assert "\x1b" not in shown
        assert "\x07" not in shown
    with person(desk, "task", "show", id) as at:
        assert at.wait() == 0
        assert b"a\\x1b]0;pwned\\x07b" in at.seen
        assert b"\x1b]0;" not in at.seen
    with person(desk, "task", "amy", f"[[say {BAD}]]", "--stream") as at:
        assert at.wait(SECONDS) == 0
        assert b"a\\x1b]0;pwned\\x07b" in at.seen
        assert b"\x1b]0;" not in at.seen


# ── Ctrl-C ──


def test_t13_progress_is_one_line_that_fits(desk: Desk, hold: str) -> None:
    script = f'[[tool Bash {{"command":"echo {"x" * 100}"}} ; hold {hold} ; say done]]'
    with person(desk, "task", "amy", script, "--scratch", cols=40) as at:
        at.wait_for("amy · Bash (echo xxx".encode())
        desk.claude.release(hold)
        assert at.wait(SECONDS) == 0
        drawn, _, rest = at.seen.partition(b"\r\n")[2].rpartition(b"\r\x1b[K")
        for line in drawn.decode().split("\r\x1b[K"):
            assert len(line) < 40
            assert "\n" not in line
        assert rest.startswith(b"done\r\ntask t-")


def test_no_progress_without_a_terminal(desk: Desk) -> None:
    assert "\r" not in run(desk, "task", "amy", "[[slow 1 ; say done]]").err


@pytest.mark.storm
def test_t13_ctrl_c_asks_and_cancels(desk: Desk, hold: str) -> None:
    with person(desk, "task", "amy", f"[[hold {hold}]]") as at:
        desk.claude.wait_held(hold)
        at.wait_for("amy · ".encode())  # it waits, and shows how far it is
        id = held_task(desk)
        at.type(b"\x03")
        at.wait_for(b"cancel the task, or leave it running? [c/L]")
        assert desk.task(id)["state"] == "working"
        at.type(b"c\n")
        assert at.wait(SECONDS) == 130
        at.wait_for(b"was cancelled after")
    assert desk.task(id)["state"] == "cancelled"


@pytest.mark.few(2)
@pytest.mark.parametrize("answer", [b"\n", b"l\n", b"\x03", b"\x04"])
def test_t13_ctrl_c_asks_and_leaves(desk: Desk, hold: str, answer: bytes) -> None:
    with person(desk, "task", "amy", f"[[hold {hold}]]") as at:
        desk.claude.wait_held(hold)
        at.wait_for("amy · ".encode())  # it waits, and shows how far it is
        id = held_task(desk)
        at.type(b"\x03")
        at.wait_for(b"[c/L]")
        at.type(answer)
        assert at.wait() == 130
        at.wait_for(f"task {id} goes on".encode(), f"bullpen task cancel {id}".encode())
    assert desk.task(id)["state"] == "working"


def test_t13_an_answer_that_is_neither_is_asked_for_again(desk: Desk, hold: str) -> None:
    with person(desk, "task", "amy", f"[[hold {hold}]]") as at:
        desk.claude.wait_held(hold)
        at.wait_for("amy · ".encode())  # it waits, and shows how far it is
        id = held_task(desk)
        at.type(b"\x03")
        at.wait_for(b"[c/L] ")
        asked = len(at.seen)
        at.type(b"y\n")
        at.wait_for(b"[c/L] ", since=asked)
        assert desk.task(id)["state"] == "working"
        at.type(b"c\n")
        assert at.wait(SECONDS) == 130
    assert desk.task(id)["state"] == "cancelled"


def test_what_is_over_before_the_answer_is_shown(desk: Desk, hold: str) -> None:
    with person(desk, "task", "amy", f"[[hold {hold} ; say made it]]") as at:
        desk.claude.wait_held(hold)
        at.wait_for("amy · ".encode())  # it waits, and shows how far it is
        id = held_task(desk)
        at.type(b"\x03")
        at.wait_for(b"[c/L]")
        desk.claude.release(hold)
        desk.done(id)
        at.type(b"c\n")
        assert at.wait() == 0
        at.wait_for(b"made it")


def test_t13_sigint_without_a_terminal_leaves_it_running(desk: Desk, hold: str) -> None:
    with running(desk, "task", "amy", f"[[hold {hold}]]") as waiting:
        desk.claude.wait_held(hold)
        id = held_task(desk)
        waiting.send_signal(signal.SIGINT)
        _out, err = waiting.communicate(timeout=SECONDS)
    assert waiting.returncode == 130
    assert f"task {id} goes on · bullpen task show {id}" in err.decode()
    assert desk.task(id)["state"] == "working"


def test_t13_ctrl_c_while_nothing_can_be_asked_names_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the waiting has begun, or after it."""

    def interrupted(_waiting: TaskWait, _after_run: int) -> TurnProgress:
        raise KeyboardInterrupt

    monkeypatch.setattr(TaskWait, "until_over", interrupted)
    hub = Hub(Home(tmp_path), start=False)
    with pytest.raises(click.exceptions.Exit) as left:
        wait_and_show(hub, "t-1", name="amy", streams=False, as_json=False)
    assert left.value.exit_code == 130
    assert capsys.readouterr().err.startswith("task t-1 goes on · bullpen task show t-1")


# ── the hub dies ──


@pytest.mark.storm
def test_t11_waiting_outlives_the_hub(desk: Desk, hold: str) -> None:
    script = (
        f'[[say one ; tool Bash {{"command":"echo"}} ; hold {hold} ; say two'
        f' ; tool Bash {{"command":"echo"}} ; hold {hold}-2 ; say three]]'
    )
    with running(desk, "task", "amy", script, "--stream") as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == b"one\n"
        for name in (hold, f"{hold}-2"):
            desk.claude.wait_held(name)
            before = desk.pen.kill_hub()
            assert waiting.poll() is None
            # Nobody else starts it again.
            wait_until(lambda before=before: desk.pen.pid != before and desk.pen.answers(), SECONDS)
            desk.claude.release(name)
        out, err = waiting.communicate(timeout=SECONDS)
    assert (waiting.returncode, out) == (0, b"two\nthree\n"), err
    desk.wait_ready("amy")


@pytest.mark.storm
def test_given_while_the_hub_is_down(desk: Desk) -> None:
    kill(desk.pen.pid)
    ran = run(desk, "task", "amy", "[[say back]]")
    assert (ran.code, ran.out) == (0, "back\n"), ran.err


# ── approvals ──


@pytest.mark.storm
def test_a_run_that_waits_for_a_person_says_so(desk: Desk, tmp_path: Path) -> None:
    script = f'[[tool Bash {{"command":"touch {tmp_path}/x"}} ; say done]]'
    with running(desk, "task", "amy", script) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith(b"amy works in ")
        line = waiting.stderr.readline().decode()
        assert line.startswith("amy waits for you (Bash) · bullpen approvals · bullpen approve ")
        assert not (tmp_path / "x").exists()
        assert run(desk, "approve", line.split()[-1]).code == 0
        out, _err = waiting.communicate(timeout=SECONDS)
    assert (waiting.returncode, out) == (0, b"done\n")
    assert (tmp_path / "x").exists()


# ── agents ──


def rows(desk: Desk) -> dict[str, list[str]]:
    lines = run(desk, "agent", "list").out.splitlines()
    assert lines[0].split() == ["NAME", "ROLE", "STATE", "TASK", "PORT"]
    return {line.split()[0]: re.split(r" {2,}", line)[1:] for line in lines[1:]}


def test_c4_agents_are_listed_from_files_and_from_what_runs(desk: Desk, hold: str) -> None:
    desk.role("lee", sandbox={"enabled": False})
    (desk.pen.root / "agents" / "lee.yaml").write_text('{"role": "lee", "port": 9999}')
    (desk.pen.root / "agents" / "odd.yaml").write_text('{"rolle": "lee"}')
    id = desk.give("amy", f"[[hold {hold}]]")
    desk.claude.wait_held(hold)
    found = rows(desk)
    assert found["amy"] == ["amy", "working", id, "–"]
    assert found["lee"] == ["lee", "not running", "–", "9999"]
    said = found["odd"][1].removeprefix("broken · bullpen ")
    assert "did you mean role?" in run(desk, *shlex.split(said), cwd=Path("/")).out
    as_json = {row["name"]: row for row in run(desk, "agent", "list", "--json").json["task_agents"]}
    assert as_json["lee"]["running"] is False
    assert as_json["amy"]["task"] == id
    for name in ("lee", "odd"):
        (desk.pen.root / "agents" / f"{name}.yaml").unlink()


def test_c4_an_agent_whose_error_has_several_lines_is_one_row_of_the_list(
    desk: Desk, tmp_path: Path
) -> None:
    broken = tmp_path / "broken-program"
    broken.write_text("#!/bin/sh\nprintf 'first line\\nsecond line\\n' >&2\nexit 3\n")
    broken.chmod(0o755)
    desk.role("nan", sandbox={"enabled": False})
    desk.write_file("nan")
    env = {**desk.pen.env, "BULLPEN_CLAUDE_BIN": str(broken)}
    assert desk.launch("nan", env=env)[0] == 201
    wait_until(lambda: desk.status("nan")["state"] == "error")
    listed = run(desk, "agent", "list").out
    (row,) = (line for line in listed.splitlines() if line.startswith("nan "))
    assert "error · " in row
    assert "first line" in row
    assert "\\n" not in listed
    desk.pen.stop("nan")
    (desk.pen.root / "agents" / "nan.yaml").unlink()


class HubThatAnAgentLeaves:
    """Its list still has the agent, and its next answer has not."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def do(self, call: Call[Any]) -> Any:
        if call.path == "/agents":
            agent = shown_agent("amy", kind="headless", role="r")
            return call.read(json.dumps({"agents": [agent], "broken": {}}).encode())
        raise BullpenError("amy is not running", kind=Kind.CONFLICT)


def test_c4_an_agent_that_leaves_while_it_is_listed_is_not_running(tmp_path: Path) -> None:
    hub: Any = HubThatAnAgentLeaves(Home(tmp_path))
    (row,) = agent_command._all(hub)
    assert (row["role"], row["state"], row["running"]) == ("r", "not running", False)


def test_c4_an_agent_of_a_role_needs_no_file(desk: Desk) -> None:
    desk.role("ann", sandbox={"enabled": False})
    ran = run(desk, "agent", "start", "temp", "--role", "ann")
    assert (ran.code, ran.out) == (0, 'temp takes tasks · bullpen task temp "…"\n'), ran.err
    again = run(desk, "agent", "start", "temp", "--role", "ann")
    assert (again.code, "bullpen task temp" in again.err) == (5, True), again.err
    assert run(desk, "task", "temp", "[[say hi]]").out == "hi\n"
    again = "bullpen agent start temp --role ann"
    assert run(desk, "agent", "stop", "temp").out == f"temp has left · {again}\n"
    refused = run(desk, "agent", "start", "nofile")
    assert refused.code == 4
    assert "agents/nofile.yaml" in refused.err


def test_c3_a_start_says_why_the_agent_cannot_work(desk: Desk, tmp_path: Path) -> None:
    old = tmp_path / "claude"
    old.write_text("#!/bin/sh\necho 0.0.1 '(Claude Code)'\n")
    old.chmod(0o755)
    desk.role("ann", sandbox={"enabled": False})
    ran = run(desk, "agent", "start", "old", "--role", "ann", BULLPEN_CLAUDE_BIN=str(old))
    assert ran.code == 3
    assert "old cannot work: " in ran.err
    assert "too old" in ran.err
    assert rows(desk)["old"][1].startswith("error · ")
    assert run(desk, "agent", "stop", "old").code == 0


def test_c2_stop_waits_for_the_task_and_then_the_agent_leaves(desk: Desk, hold: str) -> None:
    desk.agent("tim", walls=False)
    id = desk.give("tim", f"[[hold {hold} ; say done]]")
    desk.claude.wait_held(hold)
    ran = run(desk, "agent", "stop", "tim", "--timeout", "1s")
    assert ran.code == 0
    assert ran.out == (
        f"tim takes no more tasks, and leaves when task {id} is over · bullpen task cancel {id}\n"
    )
    assert run(desk, "task", "--any", "hi", "--role", "tim", "--no-wait").code == 0
    assert desk.task(id)["state"] == "working"
    desk.claude.release(hold)
    assert desk.done(id)["output"] == "done"
    wait_until(lambda: not desk.pen.agents()["tim"]["running"], SECONDS)


def test_c2_stop_by_force_cancels_the_task(desk: Desk, hold: str) -> None:
    desk.agent("tom", walls=False)
    id = desk.give("tom", f"[[hold {hold}]]")
    desk.claude.wait_held(hold)
    ran = run(desk, "agent", "stop", "tom", "--timeout", "0s", "--force")
    assert ran.out.startswith("tom has left"), ran
    assert desk.over(id)["state"] == "cancelled"


# ── words ──


def test_help_names_the_reserved_words(desk: Desk) -> None:
    text = run(desk, "task", "--help").out
    for word in ("show", "cancel", "continue", "end", "debug"):
        assert f"bullpen task {word} ID" in text
        assert run(desk, "task", word, "--help").out.startswith(f"Usage: bullpen task {word} ")
    assert "no names of agents" in text
    assert "no name" in run(desk, "history", "--help").out
    assert run(desk, "task", "amy").code == 2


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("task am", ["amy"]),
        ("task sh", ["show"]),
        ("task amy a", []),
        ("tasks a", ["amy"]),
        ("history a", ["amy"]),
        ("agent stop am", ["amy"]),
        ("task amy x --keep", ["--keep-open"]),
    ],
)
def test_the_shell_completes(desk: Desk, words: str, offered: list[str]) -> None:
    typed = ["bullpen", *words.split()]
    ran = run(
        desk,
        _BULLPEN_COMPLETE="bash_complete",
        COMP_WORDS=" ".join(typed),
        COMP_CWORD=str(len(typed) - 1),
    )
    assert [line.split(",")[1] for line in ran.out.split()] == offered


def test_the_shell_completes_tasks_also_those_that_are_over(desk: Desk, hold: str) -> None:
    over = desk.done(desk.give("amy", "[[say hi]]"))["task_id"]
    still = desk.give("amy", f"[[hold {hold}]]")

    def offered(*words: str) -> list[str]:
        completing = {"_BULLPEN_COMPLETE": "bash_complete", "COMP_CWORD": str(len(words))}
        ran = run(desk, COMP_WORDS=" ".join(["bullpen", *words]), **completing)
        assert ran.err == ""
        return [line.split(",")[1] for line in ran.out.split()]

    assert offered("task", "show", over[:-1]) == [over]
    assert offered("history", "show", over[:-1]) == [over]
    assert {over, still} <= set(offered("task", "show", "t-"))
    assert over not in offered("task", "cancel", "t-")
    assert offered("task", "cancel", still[:-1]) == [still]


@pytest.mark.storm
def test_an_agent_sees_its_own_tasks_and_gives_none(desk: Desk) -> None:
    run(desk, "task", "amy", "[[say not for eva]]")
    desk.agent("eva")
    command = f"{BULLPEN} history --json > own.json; {BULLPEN} task amy hi 2> refused.txt"
    script = f"[[tool Bash {json.dumps({'command': command})} ; say done]]"
    ran = run(desk, "task", "eva", script, "--json")
    place = Path(ran.json["directory"])
    own = json.loads((place / "own.json").read_text())["tasks"]
    assert ran.json["task_id"] in {item["task_id"] for item in own}
    assert {item["agent"] for item in own} == {"eva"}
    assert (place / "refused.txt").read_text().startswith("error: ")
    assert desk.pen.client().get("agents", "amy", "tasks")["tasks"] == []
    run(desk, "agent", "stop", "eva")


def test_stop_of_one_that_does_not_run_says_so(desk: Desk) -> None:
    path = desk.pen.root / "agents" / "ida.yaml"
    path.write_text('{"role": "amy"}')
    assert run(desk, "agent", "stop", "ida").out == "ida was not running\n"
    path.unlink()
    assert run(desk, "agent", "stop", "ida").code == 4
    desk.pen.run(name="shell")
    refused = run(desk, "agent", "stop", "shell")
    assert (refused.code, "bullpen stop shell" in refused.err) == (5, True)
    assert desk.pen.agents()["shell"]["running"]
    desk.pen.stop("shell")


def test_t13_a_task_works_where_one_stands_and_the_first_line_says_where(desk: Desk) -> None:
    repo = make_repo(desk.pen.root.parent / "code")
    done = run(desk, "task", "amy", "[[say hi]]", cwd=repo)
    assert (done.code, done.out) == (0, "hi\n")
    assert done.err.splitlines()[0].startswith("amy works in ")
    task = desk.task(ID.search(done.err)[0])  # type: ignore[index]
    assert task["directory"] == str(repo)
    apart = run(desk, "task", "amy", "[[say hi]]", "--scratch", cwd=repo)
    assert apart.err.splitlines()[0] == "amy works in an empty directory of its own"
    task = desk.task(ID.search(apart.err)[0])  # type: ignore[index]
    assert task["directory"].startswith(str(desk.pen.root))
    both = run(desk, "task", "amy", "x", "--scratch", "--workdir", str(repo))
    assert both.code == 2 and "--scratch" in both.err


# ── waiting for one that is there, and for an agent ──


def test_t13_a_task_is_waited_for_and_followed_by_its_id(desk: Desk, hold: str) -> None:
    script = f'[[say first ; tool Bash {{"command":"echo"}} ; hold {hold} ; say last]]'
    id = desk.give("amy", script)
    desk.claude.wait_held(hold)
    with running(desk, "task", "follow", id) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == b"first\n"
        with running(desk, "task", "wait", id[:-2]) as waiting:
            desk.claude.release(hold)
            out, _err = waiting.communicate(timeout=SECONDS)
            assert (waiting.returncode, out) == (0, b"last\n")
        out, _err = following.communicate(timeout=SECONDS)
        assert (following.returncode, out) == (0, b"last\n")
    # One that is over is shown at once.
    assert run(desk, "task", "wait", id).out == "last\n"
    assert run(desk, "task", "follow", id).out == "first\nlast\n"
    failed = desk.over(desk.give("amy", "[[status 401]]"))["task_id"]
    assert run(desk, "task", "wait", failed).code == 1
    assert run(desk, "task", "wait", "t-000000000000").code == 4


def test_t1_a_task_waits_in_the_queue_of_one_agent(desk: Desk, hold: str) -> None:
    first = desk.give("amy", f"[[hold {hold} ; say one]]")
    desk.claude.wait_held(hold)
    busy = run(desk, "task", "amy", "two")
    assert busy.code == 5 and "bullpen task --queue amy" in busy.err
    low = run(desk, "task", "--queue", "amy", "[[say two]]", "--no-wait").out.strip()
    high = run(desk, "task", "--queue", "amy", "[[say 3]]", "--no-wait", "--priority", "1")
    assert [desk.task(id)["agent"] for id in (low, high.out.strip())] == ["amy", "amy"]
    desk.pen.kill_hub()  # the queue is on disk
    desk.pen.start()
    desk.claude.release(hold)
    assert desk.done(first)["output"] == "one"
    ended = [desk.done(id)["completed_at"] for id in (high.out.strip(), low)]
    assert ended == sorted(ended)
    wrong = desk.ask("POST", "/tasks", {"prompt": "x", "agent": "amy", "role": "coder"})
    assert wrong[0] == 400
    assert desk.ask("POST", "/tasks", {"prompt": "x", "agent": "nobody"})[0] == 404


def test_h9_the_words_of_task_are_no_names_of_agents(desk: Desk) -> None:
    assert set(task_command.command.commands) == TASK_WORDS
    refused = run(desk, "agent", "start", "wait", "--role", "amy")
    assert refused.code == 2 and "reserved" in refused.err
