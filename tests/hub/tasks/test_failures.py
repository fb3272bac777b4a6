"""What goes wrong: the model's API, the program, its holder, files, disks, too much output."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from bullpen.hub.tasks import run as task_run
from bullpen.model.task import Task, TaskRequest
from tests.engines.cli import StandIn
from tests.hub.parts import Parts, in_parts
from tests.hub.pen import made_pen
from tests.hub.small_disk import fill, small_disk
from tests.hub.tasks.desk import Desk, write_program
from tests.processes import alive, kill
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

FLAKY = """
with open("count", "a") as file:
    file.write("x")
number = os.path.getsize("count")
say(f"attempt {number}")
if number <= int(os.environ["FAILS"]):
    status = int(os.environ["STATUS"])
    words = os.environ.get("WORDS", "API Error")
    result(words, is_error=True, terminal_reason="api_error", api_error_status=status)
    sys.exit(1)
result(f"done by {number}")
"""


def holder_of(desk: Desk, task: str, number: int = 1) -> dict[str, Any]:
    return dict(json.loads((desk.run_directory(task, number) / "holder.json").read_text()))


# ── the model's API ──


@pytest.mark.storm
@pytest.mark.parametrize(
    ("status", "kind", "runs"),
    [
        (401, "engine_error", 1),
        (500, "engine_error", 2),
        (529, "engine_error", 2),
    ],
)
def test_t9_failures_of_the_api_of_the_real_program(
    real: Desk, status: int, kind: str, runs: int
) -> None:
    real.agent("amy", max_retries=1)
    found = real.over(real.give("amy", f"[[status {status}]]"), 120)
    assert (found["state"], found["error"]["type"]) == ("failed", kind)
    assert str(status) in found["error"]["message"]
    assert [run["number"] for run in found["runs"]] == list(range(1, runs + 1))
    assert [run["is_retryable"] for run in found["runs"]] == [runs > 1] * runs
    if runs == 2:
        first, second = found["runs"]
        assert second["began"] - first["ended"] >= 0.5
        logs = [real.run_directory(found["task_id"], number) / "output.log" for number in (1, 2)]
        lines = [line for log in logs for line in log.read_text().splitlines()]
        assert len({json.loads(line)["session_id"] for line in lines}) == 1
        # The second is told no more than the prompt: the rest is in the conversation.
        assert real.prompt_of(found["task_id"], 2) == f"[[status {status}]]"
    assert real.done(real.give("amy", "[[say well again]]"))["output"] == "well again"


@pytest.mark.storm
def test_t9_retries_by_class_each_in_the_history(desk: Desk) -> None:
    desk.program(FLAKY)
    desk.agent("amy", walls=False)
    passing = desk.give("amy", "x", env={"FAILS": "2", "STATUS": "529"})
    found = desk.done(passing)
    assert found["output"] == "done by 3"
    assert [run["fault"] for run in found["runs"]] == ["engine_error", "engine_error", ""]
    gaps = [b["began"] - a["ended"] for a, b in zip(found["runs"], found["runs"][1:], strict=False)]
    assert gaps[0] >= 0.5
    assert gaps[1] >= 1.0  # at most how long: tests/model/test_task_model.py
    complete = desk.pen.client().get("history", passing)
    assert [log["number"] for log in complete["logs"]] == [1, 2, 3]
    assert all(f"attempt {n}" in complete["logs"][n - 1]["stdout"] for n in (1, 2, 3))
    assert len({gap / 2**n for n, gap in enumerate(gaps)}) == 2  # not all at the same moment
    for status in ("401", "400"):
        found = desk.over(desk.give("amy", "x", env={"FAILS": "9", "STATUS": status}))
        assert (found["error"]["type"], len(found["runs"])) == ("engine_error", 1)
        assert found["output"] == "attempt 1"


@pytest.mark.storm
def test_t9_retries_come_to_an_end_and_survive_the_hub(desk: Desk) -> None:
    desk.program(FLAKY)
    desk.agent("amy", walls=False, max_retries=2)
    task = desk.give("amy", "x", env={"FAILS": "9", "STATUS": "503"})
    wait_until(lambda: bool(desk.task(task)["runs"]))
    desk.pen.kill_hub()
    found = desk.over(task)
    assert (found["state"], len(found["runs"])) == ("failed", 3)
    assert (Path(found["directory"]) / "count").read_text() == "xxx"
    assert found["output"] == "attempt 3"


# ── the program and its holder ──


@pytest.mark.storm
def test_t9_a_program_that_says_nothing_or_nonsense(desk: Desk) -> None:
    desk.program("exec(prompt.rpartition('CODE')[2])")
    desk.agent("amy", walls=False, max_retries=0)
    for code, words in (
        ("sys.exit(0)", "exit code 0 without a result"),
        ("print('error: bad flag', file=sys.stderr); sys.exit(2)", "error: bad flag"),
        ("os.write(1, bytes(range(256)) * 100)", "exit code 0 without a result"),
        ("print('[' * 100000)", "exit code 0 without a result"),
        ("os.kill(os.getpid(), 11)", "SIGSEGV"),
    ):
        found = desk.over(desk.give("amy", f"CODE{code}"))
        assert (found["state"], found["error"]["type"]) == ("failed", "engine_error")
        assert words in found["error"]["message"], code
    # Its last line has no end, and counts.
    unended = "sys.stdout.write(json.dumps(dict(type='result', is_error=False, result='no end')))"
    assert desk.done(desk.give("amy", f"CODE{unended}"))["output"] == "no end"


def test_t9_a_holder_that_is_killed_is_lost_and_the_run_tried_again(desk: Desk) -> None:
    desk.program("""
with open("count", "a") as file:
    file.write(f"{os.getpid()} ")
if len(open("count").read().split()) == 1:
    say("first")
    while True:
        time.sleep(0.05)
def lives(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
others = [pid for pid in open("count").read().split()[:-1] if lives(pid)]
result(f"second, beside {others}")
""")
    desk.agent("amy", walls=False)
    task = desk.give("amy", "x")
    desk.wait_said(task, "first")
    held = holder_of(desk, task)
    kill(held["pid"])
    found = desk.done(task)
    assert found["output"] == "second, beside []"
    assert [run["fault"] for run in found["runs"]] == ["lost", ""]
    assert not alive(held["child"])


def test_t9_lost_again_and_again_is_a_failure(desk: Desk) -> None:
    desk.program("say('x')\nwhile True:\n    time.sleep(0.05)\n")
    desk.agent("amy", walls=True, max_retries=1)
    task = desk.give("amy", "x")
    for number in (1, 2):
        desk.wait_said(task, "x", number)
        kill(holder_of(desk, task, number)["pid"])
    found = desk.over(task)
    assert found["error"]["type"] == "lost"
    assert found["output"] == "x"
    wait_until(lambda: desk.pen.state("amy") == "idle")


# ── files ──


@pytest.mark.storm
def test_files_that_break_in_the_middle_of_a_task_do_not_hurt_it(desk: Desk) -> None:
    desk.agent("amy", walls=False, keep_open=True)
    task = desk.give("amy", "[[hold one ; say x]]")
    desk.claude.wait_held("one")
    file, role = desk.pen.root / "agents" / "amy.yaml", desk.pen.root / "roles" / "amy.yaml"
    file.write_text("role: [")
    kept = role.read_text()
    role.unlink()
    desk.claude.release("one")
    assert desk.wait(task, "idle", "completed", "failed")["state"] == "idle"
    desk.go_on(task, "[[say more]]")
    found = desk.over(task)
    assert found["error"]["type"] == "setup_failed"
    assert "amy" in found["error"]["message"]
    role.write_text(kept)
    file.write_text(json.dumps({"role": "amy"}))
    assert desk.done(desk.give("amy", "[[say mended]]"))["output"] == "mended"


def test_a_session_that_somebody_deletes_fails_the_task_and_not_the_hub(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    found = desk.over(desk.give("amy", "x", project={"name": "x"}))
    (desk.pen.root / "instructions").mkdir(exist_ok=True)
    (desk.pen.root / "instructions" / "agent.md").mkdir()
    found = desk.over(desk.give("amy", "x"))
    assert found["error"]["type"] == "setup_failed"
    assert "agent.md" in found["error"]["message"]


def test_x3_without_a_sandbox_the_task_fails_shut(desk: Desk) -> None:
    desk.pen.env["PATH"] = str(Path(desk.claude.program).parent)
    bare = desk.pen.root.parent / "bin"
    bare.mkdir()
    for name in ("git", "python3", "sh", "env"):
        (bare / name).symlink_to(f"/usr/bin/{name}")
    desk.program("result('it ran')")
    desk.pen.env["PATH"] = str(bare)
    desk.pen.start()
    desk.agent("amy")
    found = desk.over(desk.give("amy", "x"))
    assert (found["state"], found["error"]["type"]) == ("failed", "sandbox_error")
    assert found["runs"] == []


OF_ANOTHER_CONVERSATION = """
conversation = "00000000-0000-4000-8000-000000000000"  # as engines do that choose it themselves
say("part")
while not os.path.exists("{go}"):
    time.sleep(0.01)
result("x")
"""


def test_b3_the_end_of_a_task_on_a_full_disk_is_recorded_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=16m") as disk, made_pen(disk / "h") as pen:
        desk = Desk(pen, StandIn(tmp_path))
        go = tmp_path / "go"
        desk.program(OF_ANOTHER_CONVERSATION.format(go=go))
        desk.agent("amy", walls=False)
        task = desk.give("amy", "x")
        desk.wait_said(task, "part")
        fill(disk / "filler")
        status, body = desk.ask("POST", "/tasks", {"prompt": "no room", "env": {"OWN": "secret"}})
        assert status in (500, 503), body
        assert list((pen.root / "task-env").glob("*")) == []
        go.touch()
        program = holder_of(desk, task)["child"]
        wait_until(lambda: not alive(program))
        over = time.monotonic()
        wait_until(lambda: time.monotonic() > over + 1)
        assert desk.moves(task)[-1] == "working"
        (disk / "filler").unlink()
        found = desk.over(task)
        assert (found["state"], found["output"]) == ("completed", "x")
        assert desk.moves(task).count("completed") == 1
        assert desk.done(desk.give("amy", "x"))["output"] == "x"


def test_b3_a_task_is_cancelled_also_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=16m") as disk, made_pen(disk / "h") as pen:
        desk = Desk(pen, StandIn(tmp_path))
        desk.agent("amy", walls=False)
        task = desk.give("amy", "[[hold one ; say x]]")
        desk.claude.wait_held("one")
        program = holder_of(desk, task)["child"]
        fill(disk / "filler")
        desk.cancel(task)
        wait_until(lambda: not alive(program))
        (disk / "filler").unlink()
        assert desk.over(task)["state"] == "cancelled"


# ── too much ──


@pytest.mark.storm
def test_output_of_many_megabytes_and_lines_without_end(desk: Desk) -> None:
    desk.program("exec(prompt.rpartition('CODE')[2])")
    desk.agent("amy", walls=False)
    many = "[say('y' * 1000, id=str(n)) for n in range(50000)]; result('50 MB')"
    task = desk.give("amy", f"CODE{many}")
    found = desk.over(task, 300)
    assert found["output"] == "50 MB"
    assert (desk.run_directory(task) / "output.log").stat().st_size > 50_000_000
    # Without a result what was said last is kept, and not all of it.
    found = desk.over(desk.give("amy", f"CODE{many[: many.index(';')]}"), 300)
    assert 900_000 < len(found["output"]) < 1_200_000
    long = desk.over(desk.give("amy", "CODEresult('z' * 20_000_000)"), 300)
    assert len(long["output"]) == 20_000_000
    endless = "sys.stdout.write('w' * 100_000_000 + '\\n'); result('after it')"
    assert desk.over(desk.give("amy", f"CODE{endless}"), 300)["output"] == "after it"
    hub = Path(f"/proc/{desk.pen.pid}/status").read_text()
    peak = next(line for line in hub.splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) < 700_000, peak


def test_t9_a_program_that_does_not_end_after_its_result_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_run, "LINGER_SECONDS", 0.1)
    engine = tmp_path / "engine"
    code = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nresult('said')\ntime.sleep(600)\n"
    write_program(engine, code)

    async def story(parts: Parts) -> Task:
        await parts.claude_agent("amy", engine)
        task = await parts.tasks.submit("amy", TaskRequest(prompt="x"))
        return await parts.tasks.board.wait(task.id, lambda _task: False)

    ended = in_parts(story, factory=True)
    assert (ended.state, ended.output) == ("completed", "said")
    assert ended.runs[0].signal == signal.SIGKILL
