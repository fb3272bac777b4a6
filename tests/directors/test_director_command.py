"""`bullpen director` as a person uses it: goals by their ids, and what the list says."""

import json
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bullpen.cli.directors import DirectorProblem, find_running, list_rows
from bullpen.client.directors import revoke_director
from bullpen.client.hub import Hub
from bullpen.directors.config import load_director
from bullpen.directors.manager.config import ManagerConfig
from bullpen.directors.token import make_token
from bullpen.errors import BullpenError
from bullpen.files import write_atomically
from bullpen.home.create import STARTER
from tests.commands import Ran
from tests.directors.running import made_manager, made_scheduler
from tests.hub.pen import Pen, made_pen
from tests.waiting import wait_until
from tests.worktrees.repos import make_repo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        shutil.copytree(STARTER / "roles", made.root / "roles", dirs_exist_ok=True)
        made.start()
        yield made


@pytest.mark.storm
def test_d5_a_goal_is_shown_ended_and_waited_for_by_its_id(pen: Pen) -> None:
    with made_manager(pen) as director:

        def goal(*words: str) -> Ran:
            return director.cli("director", "goal", "lead", *words)

        commands = "bullpen diff lead-g-done · bullpen land lead-g-done"
        how = f"2 commits on branch lead-g-done · {commands}"
        assert goal("g-done").out.endswith(
            "2 commits on branch lead-g-done, whose worktree was removed\n"
        )
        (pen.home.worktrees / "lead-g-done").mkdir(parents=True)
        rows = director.cli("director", "goals", "lead").out.splitlines()
        assert [row.split()[:2] for row in rows[1:]] == [
            ["g-open", "queued"],
            ["g-failed", "failed"],
            ["g-done", "completed"],
        ]
        assert rows[1].endswith("Wait for me")
        listed = json.loads(director.cli("director", "goals", "lead", "--json").out)["goals"]
        assert [one["id"] for one in listed] == ["g-open", "g-failed", "g-done"]
        assert (goal("g-done").out, goal("g-open").out) == (
            f"g-done completed\nHello\nthere\n{how}\n",
            "g-open queued\n",
        )
        ran = goal("g-done", "--wait")
        assert (ran.out, ran.err) == ("Hello\nthere\n", f"{how}\n")
        ran = goal("g-failed", "--wait")
        assert (ran.code, ran.err) == (1, "error: g-failed failed: no wings\n")
        shown = json.loads(goal("g-open", "--cancel", "--json").out)
        assert shown["state"] in ("cancelling", "cancelled")
        # At once, though its agent does not run and it was tried in vain.
        wait_until(lambda: goal("g-open").out == "g-open cancelled\n")
        ran = goal("g-nosuch")
        assert (ran.code, "hint:  bullpen director goals lead" in ran.err) == (4, True), ran


def test_d5_who_waits_for_a_goal_waits_for_a_director_that_crashed(pen: Pen) -> None:
    with made_manager(pen) as director, ThreadPoolExecutor() as pool:
        waiting = pool.submit(director.cli, "director", "goal", "lead", "g-open", "--wait")
        killed = director.pid
        director.kill()
        wait_until(lambda: _pid_of(pen, "lead") not in (None, killed))
        assert director.cli("director", "goal", "lead", "g-open", "--cancel").code == 0
        ran = waiting.result()
    assert ran.err == "error: g-open cancelled\n"


def _pid_of(pen: Pen, name: str) -> int | None:
    running = find_running(pen.home, name)
    return running.pid if running else None


@pytest.mark.storm
def test_d5_who_gives_a_goal_is_told_how_to_wait_for_it_and_in_plain_words_what_is_none(
    pen: Pen,
) -> None:
    with made_manager(pen) as director:
        ran = director.cli("director", "task", "lead", "Write a greeting")
        id = ran.out.split()[0]
        assert ran.out == f"{id} · lead leads · bullpen director goal lead {id} --wait\n"
        assert director.cli("director", "goal", "lead", id).out == f"{id} queued\n"
        ran = director.cli("director", "task", "lead", "")
        assert (ran.code, ran.err) == (2, "error: the prompt is empty\n")
        with pytest.raises(BullpenError, match="that is no goal: the prompt is missing, empty"):
            director.ask("POST", "/task", {"prompt": " "})
        with pytest.raises(BullpenError, match="that is no goal: not allowed: branch, wordkir"):
            director.ask("POST", "/task", {"prompt": "x", "wordkir": "/", "branch": "b"})
        # It holds goals, and has no place for them.
        assert {row.name: row.state for row in list_rows(pen.home)}["lead"] == "working"
        ran = director.cli("director", "task", "lead", "Write another")
        [note] = ManagerConfig().notes(pen.home)
        assert "in an empty directory" in note
        assert ran.err == f"note: {note}\n"


def test_d5_a_manager_is_written_by_that_name_too(pen: Pen) -> None:
    file = pen.home.directors / "boss.yaml"
    file.unlink(missing_ok=True)
    ran = pen.cli("director", "init", "manager", "boss")
    assert ran.code == 0, ran
    assert "\ntype: claude\n" in file.read_text()


def test_d5_a_manager_is_written_with_the_repository_in_which_a_person_stands(pen: Pen) -> None:
    shop = make_repo(pen.root.parent / 'sh#op: "1"')
    (shop / "src").mkdir()
    assert pen.cli("director", "init", "claude", "placed", cwd=shop / "src").code == 0
    _, config = load_director(pen.home, "placed")
    assert isinstance(config, ManagerConfig)
    assert config.workdir == str(shop)
    assert list(config.notes(pen.home)) == []
    for wrong, why in (("/nosuch", "no directory '/nosuch'"), ("/", "add it to `workdirs`")):
        [note] = ManagerConfig(workdir=wrong).notes(pen.home)
        assert why in note
    [note] = ManagerConfig(project="nosuch").notes(pen.home)
    assert "no project called nosuch" in note
    new = pen.root.parent / "new"
    subprocess.run(["git", "init", "-q", str(new)], check=True)
    [note] = ManagerConfig(workdir=str(new)).notes(pen.home)
    assert note.startswith(f"{new} has no commit yet: ")


# ── the list ──


def test_d8_one_that_was_started_and_never_stopped_is_gone(pen: Pen) -> None:
    (pen.home.directors / "killed.yaml").write_text("type: scheduler\n")
    assert {row.name: row.state for row in list_rows(pen.home)}["killed"] == "stopped"
    make_token(pen.home, "killed")  # as a start does; `kill -9` takes nothing away
    row = {row.name: row for row in list_rows(pen.home)}["killed"]
    assert (row.state, [one.hint for one in row.problems]) == (
        "gone",
        ["bullpen director start killed"],
    )
    ran = pen.cli("director", "stop", "killed")
    assert (ran.code, ran.out) == (0, "killed was not running\n")
    assert {row.name: row.state for row in list_rows(pen.home)}["killed"] == "stopped"


def test_d8_a_problem_is_one_line_with_its_hint_and_its_time() -> None:
    problem = DirectorProblem(
        "git push failed: To http://x\n ! [rejected]", "issue 3", "git pull", again_at=160.0
    )
    assert problem.text(100.0) == (
        "issue 3: git push failed: To http://x · ! [rejected] · again in 60 s · git pull"
    )


@pytest.mark.storm
def test_d8_the_list_has_every_trouble_and_who_lost_its_file(pen: Pen) -> None:
    entry = {"name": "tidy", "cron": "0 0 1 1 *", "prompt": "x", "overlap": "allow"}
    name = f"troubled-{uuid.uuid4().hex[:8]}"  # with no memory of an earlier time
    with made_scheduler(pen, entry, name=name) as director:
        Hub(pen.home).do(revoke_director(name))
        for _ in range(2):
            director.ask("POST", "/schedule/task/tidy/run")
        wait_until(lambda: len(director.ask("GET", "/tasks")["problems"]) == 2)
        write_atomically(director.file, "type: scheduler\nport: x\nautostart: maybe\n")
        lines = director.cli("director", "list").out.splitlines()
        told = [line for line in lines if line.startswith(f"{name}: ")]
        assert [line.count("no such token · again in") for line in told] == [1, 1, 0, 0], lines
        assert [f"{director.file}:{line} " in told[line] for line in (2, 3)] == [True, True], told
        director.file.unlink()
        rows = json.loads(director.cli("director", "list", "--json").out)["directors"]
        row = next(row for row in rows if row["name"] == name)
        assert row["type"] == "scheduler"
        assert len(row["problems"]) == 3
        assert row["problems"][2]["reason"] == f"{director.file} is not there"


# ── a schedule whose file has errors ──


@pytest.mark.storm
def test_d1_a_schedule_whose_file_has_errors_is_shown_and_run_as_it_goes_on(pen: Pen) -> None:
    entry = {"name": "tidy", "cron": "0 0 1 1 *", "prompt": "x", "role": "nobody", "timeout": "2h"}
    with made_scheduler(pen, entry, name=f"broken-{uuid.uuid4().hex[:8]}") as director:
        write_atomically(director.file, "type: scheduler\nschedule: [\n")
        wait_until(lambda: director.ask("GET", "/schedule")["problem"] is not None)
        others = [path for path in pen.home.directors.glob("*.yaml") if path != director.file]
        for other in others:
            other.unlink()
        for words in (["list"], ["next"], ["run", "tidy"]):
            ran = director.cli("schedule", *words)
            assert (ran.code, "tidy" in ran.out) == (0, True), ran
            assert "note: the file has errors, and the schedule of before counts" in ran.err
        assert "note: no role called nobody" in ran.err
        shown = json.loads(director.cli("schedule", "list", "--json").out)
        assert (shown["problem"][:5], shown["schedule"][0]["timeout"]) == ("line ", "2h")
        ran = director.cli("schedule", "remove", "tidy")
        assert ran.code == 2
        assert f"{director.file}:" in ran.err


def test_d1_what_an_entry_needs_and_the_home_lacks_is_said(pen: Pen) -> None:
    (pen.home.directors / "lacking.yaml").write_text("type: scheduler\nschedule: []\n")
    for option, value in (("--agent", "nosuch"), ("--role", "nosuch"), ("--workdir", "/nosuch")):
        words = ("schedule", "add", option[2:], "@daily", "x", option, value)
        ran = pen.cli(*words, "--director", "lacking")
        assert ran.code == 0, ran
        assert (ran.err.startswith("note: no "), "nosuch" in ran.err) == (True, True), ran
    ran = pen.cli(
        "schedule", "add", "fine", "@daily", "x", "--role", "coder", "--director", "lacking"
    )
    assert (ran.code, ran.err) == (0, "")
