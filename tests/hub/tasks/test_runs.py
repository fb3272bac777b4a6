"""What a run has said, read from its log; how it ended; what a task leaves on disk."""

import asyncio
import fcntl
import json
import os
import subprocess
from pathlib import Path

import pytest

from bullpen import proc
from bullpen.engines import get_engine
from bullpen.engines.base import Reader
from bullpen.engines.lines import ModelText, RunOutcome, TokensSpent, ToolUsed, TurnBegun
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import KILLED, Home, make_directories
from bullpen.hub.holders import files as holder_files
from bullpen.hub.tasks import run as task_run
from bullpen.hub.tasks import run_plan
from bullpen.hub.tasks.run import LogReader, RunOutput, RunRef
from bullpen.hub.tasks.workspaces import Workspaces
from bullpen.model.task import Task, Wish
from tests.hub.parts import run
from tests.hub.stand_ins import locked

COMMAND = get_engine("command")


def reader_of(path: Path) -> LogReader:
    return LogReader(path, Reader(COMMAND))


def texts(reader: LogReader) -> list[str]:
    return [fact.line.text for fact in reader.facts() if isinstance(fact.line, ModelText)]


# ── the log ──


def test_t8_a_line_is_told_when_it_is_whole_and_the_last_one_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    reader = reader_of(path)
    assert reader.facts() == []  # nothing is there yet
    path.write_bytes(b"one\ntw")
    assert [fact.offset for fact in reader.facts()] == [4]
    with path.open("ab") as file:
        file.write(b"o\nthree")
    assert texts(reader) == ["two"]
    assert reader.facts() == []
    [last] = reader.last()
    assert (last.offset, last.line) == (14, ModelText("three", is_line=True))
    assert reader.last() == []


def test_t8_a_log_that_is_put_aside_meanwhile_is_read_without_gap_or_repetition(
    tmp_path: Path,
) -> None:
    path, aside = tmp_path / "output.log", tmp_path / "output.log.1"
    reader = reader_of(path)
    path.write_bytes(b"one\n")
    assert texts(reader) == ["one"]
    with path.open("ab") as file:
        file.write(b"two\nthr")
    path.rename(aside)
    path.write_bytes(b"ee\nfour\n")
    assert texts(reader) + texts(reader) == ["two", "three", "four"]
    # Who begins later reads both, and finds every line at the same place.
    late = reader_of(path)
    assert [fact.offset for fact in late.facts() + late.facts()] == [4, 8, 14, 19]


def test_t8_a_line_without_end_says_nothing_and_does_not_hide_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_run, "MOST_LINE_BYTES", 100)
    monkeypatch.setattr(task_run, "PIECE_BYTES", 64)
    path = tmp_path / "output.log"
    path.write_bytes(b"x" * 100 + b"\n" + b"y" * 500 + b"\nshort\n")
    reader, found = reader_of(path), []
    while facts := reader.facts():
        found += facts
    assert [fact.line.text for fact in found if isinstance(fact.line, ModelText)] == [
        "x" * 100,
        "short",
    ]
    assert found[-1].offset == path.stat().st_size


def test_t8_of_too_much_text_the_newest_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_run, "MOST_TEXT_CHARACTERS", 10)
    output = RunOutput()
    for text in ("aaa", "bbb", "ccc"):
        output.take(ModelText(text, is_line=True))
    assert output.text_so_far == "bbb\nccc"
    output.take(ModelText("x" * 20, is_line=True))
    assert output.text_so_far == "x" * 10


def test_t2_what_is_said_is_counted_and_the_result_stands_for_all_of_it() -> None:
    output = RunOutput()
    output.take(TurnBegun("conversation", ("odd",)))
    output.take(ModelText("first"))
    output.take(ToolUsed("Bash", "true"))
    assert output.progress.tool == "Bash (true)"
    output.take(TokensSpent(2, 3))
    output.take(TokensSpent(2, 3))
    output.take(ModelText("second"))
    assert (output.progress.tool, output.text) == ("", "first\n\nsecond")
    assert (output.input_tokens, output.output_tokens, output.warnings) == (4, 6, ["odd"])
    output.take(RunOutcome("", "whole", "", ""))
    assert (output.text, output.conversation) == ("whole", "conversation")
    output.take(RunOutcome("", "", "another", ""))
    assert (output.text, output.conversation) == ("first\n\nsecond", "another")


# ── the end ──


def ended(directory: Path, output: RunOutput | None = None, **record: object) -> task_run.Ended:
    run_ref = RunRef(directory, "tag", directory / "socket")
    return task_run._ended(run_ref, COMMAND, output or RunOutput(), record or None)


def test_t9_a_run_without_a_record_is_lost_unless_it_had_said_its_result(tmp_path: Path) -> None:
    found = ended(tmp_path)
    assert (found.is_lost, found.outcome.why) == (True, "its holder was killed")
    output = RunOutput(outcome=RunOutcome("", "done", ""))
    found = ended(tmp_path, output)
    assert (found.is_lost, found.outcome.text) == (False, "done")


def test_f3_a_run_that_a_person_killed_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / KILLED).touch()
    found = ended(tmp_path)
    assert (found.is_lost, found.outcome.fault) == (False, "cancelled")
    output = RunOutput(outcome=RunOutcome("", "done", ""))
    assert ended(tmp_path, output).outcome.text == "done"


def test_t9_of_a_run_that_said_nothing_its_exit_and_its_errors_tell(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("an older line\n" * 400 + "no such thing")
    found = ended(tmp_path, code=3, signal=None, ended=7.0)
    assert (found.code, found.at, found.is_lost) == (3, 7.0, False)
    assert "no such thing" in found.outcome.why
    assert task_run.tail(tmp_path / "stderr.log", 5) == "thing"
    assert task_run.tail(tmp_path / "none", 5) == ""


@pytest.mark.slow
def test_t11_what_a_killed_holder_left_running_is_ended(tmp_path: Path) -> None:
    child = subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True)
    try:
        began = proc.start_time(child.pid)
        record = {"tag": "tag", "pid": 1, "start_time": "x", "child_start_time": began}
        (tmp_path / "holder.json").write_text(json.dumps({**record, "child": child.pid}))
        ended(tmp_path)
        assert child.wait(60) == -9
    finally:
        child.kill()
        child.wait()


class RefusingFactory:
    """There is such a holder already, it says; or something else."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    async def hold(self, _fields: object) -> None:
        raise BullpenError("refused", kind=self.kind)


@pytest.mark.parametrize(
    ("kind", "is_held", "is_fine"),
    [(Kind.CONFLICT, True, True), (Kind.CONFLICT, False, False), (Kind.DENIED, True, False)],
)
def test_t11_a_run_that_a_killed_hub_started_is_not_started_twice(
    tmp_path: Path, kind: Kind, is_held: bool, is_fine: bool
) -> None:
    run_ref = RunRef(tmp_path, "tag", tmp_path / "socket")
    if is_held:
        with locked(tmp_path):
            assert run_ref.began()
    pids = {"pid": 1, "child": 1, "start_time": "x", "child_start_time": "x"}
    if is_held:
        (tmp_path / "holder.json").write_text(json.dumps({"tag": "tag", **pids}))
    assert run_ref.began() == is_held
    start = task_run.start(RefusingFactory(kind), {}, run_ref)  # type: ignore[arg-type]
    if is_fine:
        run(start)
    else:
        with pytest.raises(BullpenError, match="refused"):
            run(start)


def test_k4_a_directory_is_held_while_the_lock_is_and_looking_takes_none(tmp_path: Path) -> None:
    assert not holder_files.is_held(tmp_path)
    assert not holder_files.is_held(tmp_path / "none")
    with locked(tmp_path):
        assert holder_files.is_held(tmp_path)
    # Many may look at once: none of them is taken for a holder.
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        assert not holder_files.is_held(tmp_path)
    finally:
        os.close(descriptor)


# ── what a task leaves ──


@pytest.fixture
def home(tmp_path: Path) -> Home:
    make_directories(tmp_path)
    return Home(tmp_path)


def a_task(id: str, *env_names: str) -> Task:
    wish = Wish(prompt="x")
    return Task(id=id, session_id="s", wish=wish, created=1.0, env_names=env_names)


def test_t1_variables_are_private_and_go_with_their_task(home: Home) -> None:
    for id in ("t-1", "t-2", "t-3"):
        run_plan.keep_variables(home, id, {"A": id})
    directory = home.root / run_plan.VARIABLES
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    assert run_plan.load_variables(home, a_task("t-1", "A")) == {"A": "t-1"}
    assert run_plan.load_variables(home, a_task("t-9")) == {}  # it has none: no file is missed
    run_plan.forget_variables(home, "t-1")
    run_plan.remove_stale_variables(home, {"t-3"})
    assert [path.name for path in directory.iterdir()] == ["t-3"]
    with pytest.raises(BullpenError, match="cannot read the task's environment"):
        run_plan.load_variables(home, a_task("t-1", "A"))


def test_t10_files_of_tasks_that_are_in_no_history_go_and_others_stay(home: Home) -> None:
    for agent in ("amy", "bob"):
        for id in ("t-1", "t-2"):
            run_plan.task_directory(home, agent, id).joinpath("1").mkdir(parents=True)
    run_plan.remove_stale_tasks(home, "amy", {"t-2"})
    run_plan.remove_stale_tasks(home, "eve", set())
    left = sorted(str(path.relative_to(home.sessions)) for path in home.sessions.glob("*/tasks/*"))
    assert left == ["amy/tasks/t-2", "bob/tasks/t-1", "bob/tasks/t-2"]


def test_t12_who_waits_for_a_directory_gets_it_when_it_is_free(tmp_path: Path) -> None:
    async def story() -> None:
        workspaces = Workspaces(tmp_path / "home")
        entered: list[str] = []

        async def work(task: str, directory: Path, go: asyncio.Event) -> None:
            async with workspaces.hold(task, directory):
                entered.append(task)
                await go.wait()

        first, rest = asyncio.Event(), asyncio.Event()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(work("one", tmp_path, first))
            await asyncio.sleep(0)
            group.create_task(work("two", tmp_path / "below", rest))
            group.create_task(work("three", tmp_path / "home" / "apart", rest))
            while len(entered) < 2:
                await asyncio.sleep(0)
            for _ in range(10):
                await asyncio.sleep(0)
            assert entered == ["one", "three"]
            assert workspaces.others("two", tmp_path / "below") == ["one"]
            first.set()
            while len(entered) < 3:
                await asyncio.sleep(0)
            rest.set()
        assert workspaces.others("four", tmp_path) == []

    run(story())
