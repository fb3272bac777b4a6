"""A task from its beginning to its end: what can be asked, what is shown, who gets it."""

import contextlib
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from bullpen.client.holder import connect
from bullpen.errors import BullpenError
from tests.hub.tasks.desk import Desk, made_desk
from tests.listing import read_files
from tests.processes import alive
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

FIELDS = {
    *("task_id", "state", "exit_code", "started_at", "completed_at", "duration_seconds", "output"),
    *("error", "session_id", "token_usage", "cost_usd", "agent"),
}
SECRET = "s3cret-of-the-task"


def refused(desk: Desk, name: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    return desk.ask("POST", f"/agents/{name}/task", {"prompt": "x", **fields})


def holders_of(root: Path, text: str) -> list[Path]:
    """Every file of the home that holds the text."""
    return [path for path, data in read_files(root).items() if text.encode() in data]


@pytest.mark.storm
def test_t1_a_task_is_taken_done_and_shown(any_desk: Desk) -> None:
    any_desk.agent("amy")
    task = any_desk.give("amy", "[[say all good]]")
    found = any_desk.done(task)
    assert found["output"] == "all good"
    assert found["agent"] == "amy"
    assert any_desk.moves(task) == ["queued", "working", "completed"]
    # Right away: what it held is let go of before the next is refused.
    again = any_desk.done(any_desk.give("amy", "[[say and again]]"))
    assert again["output"] == "and again"
    wait_until(lambda: any_desk.pen.state("amy") == "idle")


@pytest.mark.storm
def test_t1_tools_work_behind_walls_in_a_directory_of_its_own(any_desk: Desk) -> None:
    any_desk.agent("amy")
    script = '[[tool Bash {"command": "pwd > here; id -u >> here"} ; say done]]'
    found = any_desk.done(any_desk.give("amy", script))
    place = Path(found["directory"])
    assert place == any_desk.pen.session("amy") / "work" / found["session_id"]
    assert (place / "here").read_text().splitlines()[0] == str(place)
    assert found["token_usage"]["input"] > 0
    assert found["cost_usd"] > 0
    assert found["exit_code"] == 0


@pytest.mark.storm
def test_t2_every_field_is_there_in_every_state(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    task = desk.give("amy", "[[hold one ; say first]]", keep_open=True)
    seen = {"queued": desk.task(task)}
    desk.claude.wait_held("one")
    seen["working"] = desk.wait(task, "working")
    wait_until(lambda: desk.task(task)["duration_seconds"] > 0.01)
    waiting = desk.offer("later", role="nobody")
    seen["queued"] = desk.task(waiting)
    desk.claude.release("one")
    seen["idle"] = desk.wait(task, "idle")
    desk.end(task)
    seen["completed"] = desk.over(task)
    desk.cancel(waiting)
    seen["cancelled"] = desk.over(waiting)
    seen["failed"] = desk.over(desk.give("amy", "[[status 401]]"))
    for state, found in seen.items():
        assert set(found) >= FIELDS, state
        assert found["state"] == state
    queued, working, done = seen["queued"], seen["working"], seen["completed"]
    nulls = FIELDS - {"task_id", "state", "session_id"}
    assert {name for name in nulls if queued[name] is not None} == set()
    assert working["completed_at"] is working["exit_code"] is working["error"] is None
    assert working["agent"] == "amy"
    assert working["started_at"] > 0
    assert done["completed_at"] >= done["started_at"]
    assert done["output"] == "first"
    assert done["token_usage"] == {"input": 100, "output": 10}
    assert seen["failed"]["error"]["type"] == "engine_error"
    assert seen["failed"]["exit_code"] == 1


def test_t1_fields_reach_the_program(desk: Desk) -> None:
    desk.program("result(json.dumps([sys.argv, dict(os.environ), os.getcwd()]))")
    desk.agent("amy", claude={"max_turns": 7}, env={"FROM_FILE": "one", "BOTH": "file"})
    work = desk.pen.root.parent / "project"
    work.mkdir()
    task = desk.give(
        "amy",
        "x",
        model="haiku",
        workdir=str(work),
        env={"BOTH": SECRET, "OWN": "ö"},
        budget={"usd": 0.5},
    )
    found = desk.done(task)
    argv, env, cwd = json.loads(found["output"])
    assert argv[argv.index("--model") + 1] == "haiku"
    assert argv[argv.index("--max-turns") + 1] == "7"
    assert argv[argv.index("--max-budget-usd") + 1] == "0.500000"
    assert (env["BOTH"], env["OWN"], env["FROM_FILE"]) == (SECRET, "ö", "one")
    assert cwd == str(work) == found["directory"]
    assert found["env_names"] == ["BOTH", "OWN"]


@pytest.mark.parametrize("walls", [True, False])
def test_t1_values_of_the_environment_are_nowhere_but_in_one_private_file(
    desk: Desk, walls: bool
) -> None:
    desk.program("""
while not os.path.exists("go"):
    time.sleep(0.01)
result(str(len(os.environ["OWN"])))
""")
    desk.agent("amy", walls=walls)
    task = desk.give("amy", "x", env={"OWN": SECRET})
    desk.wait(task, "working")
    work = desk.pen.session("amy") / "work"
    desk.wait_begun(task)
    (private,) = holders_of(desk.pen.root, SECRET)
    assert private.stat().st_mode & 0o777 == 0o600
    assert private.parent.stat().st_mode & 0o777 == 0o700
    for pid in desk.pen.processes():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    (next(work.iterdir()) / "go").touch()
    assert desk.done(task)["output"] == str(len(SECRET))
    wait_until(lambda: not private.exists())
    assert holders_of(desk.pen.root, SECRET) == []
    found = desk.pen.client().get("history", task)
    assert found["env_names"] == ["OWN"]
    assert SECRET not in json.dumps([found, desk.pen.events()])


@pytest.mark.storm
def test_t1_the_same_request_is_one_task_also_after_a_kill(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    request = uuid.uuid4().hex
    first = desk.give("amy", "[[hold one ; say x]]", request=request)
    assert desk.give("amy", "[[say another]]", request=request) == first
    desk.claude.wait_held("one")
    desk.pen.kill_hub()
    assert desk.give("amy", "[[say another]]", request=request) == first
    desk.claude.release("one")
    assert desk.done(first)["output"] == "x"
    assert desk.give("amy", "[[say another]]", request=request) == first
    queued = uuid.uuid4().hex
    assert desk.offer("y", request=queued) == desk.offer("y", request=queued)


def test_t1_an_agent_has_one_task_at_a_time(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    task = desk.give("amy", f"[[hold one ; say x]] {'long ' * 40}")
    desk.claude.wait_held("one")
    status, body = refused(desk, "amy")
    assert (status, body["error"]) == (409, "agent_busy")
    assert body["current_task"] == body["details"]["current_task"]["id"] == task
    assert len(body["details"]["current_task"]["prompt_preview"]) == 80
    assert body["details"]["retryable"] is True
    desk.claude.release("one")
    desk.done(task)


def test_t1_what_cannot_be_is_refused_before_it_is_acknowledged(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    work = desk.pen.root.parent / "work"
    work.mkdir()
    (work / "file").touch()
    (work / "out").symlink_to("/etc")
    (work / "in").symlink_to(desk.pen.root)
    moved = {"name": "moved", "prompt": "p", "workdir": str(work / "none")}
    (desk.pen.root / "projects" / "moved.yaml").write_text(json.dumps(moved))
    bad: list[dict[str, Any]] = [
        {"workdir": str(work), "repo": str(work), "worktree": "b"},
        {"workdir": str(work), "session_id": str(uuid.uuid4())},
        {"repo": str(work)},
        {"worktree": "b"},
        {"workdir": "relative"},
        {"workdir": str(work / "file")},
        {"workdir": str(work / "none")},
        {"repo": "ext::sh -c id", "worktree": "b"},
        {"repo": "-u./x", "worktree": "b"},
        {"repo": str(work), "worktree": "../../x"},
        {"repo": str(work / "none"), "worktree": "b"},
        {"project": "moved"},
        {"session_id": "../../../etc"},
        {"session_id": str(uuid.uuid1())},
        {"timeout_seconds": 0},
        {"timeout_seconds": float(8 * 86400)},
        {"model": "two words"},
        {"model": "--dangerous"},
        {"env": {"A=B": "x"}},
        {"env": {"A": "\0"}},
        {"prompt": " \n"},
        {"prompt": "a\0b"},
        {"prompt": "half \ud800"},
        {"project": {"name": ""}},
        {"unknown": 1},
        {"request": "short"},
        {"budget": {"usd": -1}},
    ]
    for fields in bad:
        status, body = refused(desk, "amy", **fields)
        assert (status, body["error"]) == (400, "validation_error"), (fields, status, body)
    for place in ("/etc", work / "out", work / "in", desk.pen.root, desk.pen.root / "sessions"):
        for where in ({"workdir": str(place)}, {"repo": str(place), "worktree": "b"}):
            status, body = refused(desk, "amy", **where)
            assert (status, body["error"]) == (403, "forbidden"), (where, body)
    for fields in ({"session_id": str(uuid.uuid4())}, {"project": "none-such"}):
        assert refused(desk, "amy", **fields)[0] == 404, fields
    assert desk.pen.client().get("history")["total"] == 0
    assert not (desk.pen.root / "task-env").exists()


@pytest.mark.storm
def test_t1_the_queue_by_role_labels_priority_and_order(desk: Desk) -> None:
    desk.agent("amy", walls=False, labels={"os": "linux"})
    desk.agent("bob", walls=False, labels={"os": "mac"})
    held = [desk.give("amy", "[[hold amy ; say x]]"), desk.give("bob", "[[hold bob ; say x]]")]
    desk.claude.wait_held("amy")
    desk.claude.wait_held("bob")
    first = desk.offer("[[say 1]]", role="amy")
    second = desk.offer("[[say 2]]", labels={"os": "linux"})
    urgent = desk.offer("[[say 3]]", role="amy", priority=5)
    nobody = desk.offer("[[say 4]]", role="amy", labels={"os": "mac"})
    other = desk.offer("[[say 5]]", labels={"os": "mac"})
    # What waits is on disk.
    desk.pen.kill_hub()
    queued = desk.pen.client().get("tasks")["tasks"]
    assert {task["task_id"] for task in queued} == {*held, first, second, urgent, nobody, other}
    desk.claude.release("bob")
    assert desk.done(other)["agent"] == "bob"
    assert {desk.task(task)["state"] for task in (first, second, urgent)} == {"queued"}
    desk.claude.release("amy")
    done = [desk.done(task) for task in (urgent, first, second)]
    assert {task["agent"] for task in done} == {"amy"}
    began = [task["started_at"] for task in done]
    assert began == sorted(began)
    assert desk.task(nobody)["state"] == "queued"
    assert desk.cancel(nobody)["state"] == "cancelled"
    wait_until(lambda: desk.pen.client().get("tasks")["tasks"] == [])


@pytest.mark.storm
def test_t1_a_queued_task_of_a_known_session_waits_for_its_agent(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    desk.agent("bob", walls=False)
    known = desk.give("amy", "[[hold one ; say x]]")
    desk.claude.wait_held("one")
    session = desk.task(known)["session_id"]
    waits = desk.offer("[[say again]]", session_id=session)
    assert desk.done(desk.offer("[[say for bob]]"))["agent"] == "bob"
    assert desk.task(waits)["state"] == "queued"
    desk.claude.release("one")
    found = desk.done(waits)
    assert found["agent"] == "amy"
    assert found["session_id"] == session
    assert found["directory"] == desk.task(known)["directory"]
    # The conversation is the one that went on while it waited.
    assert _conversations(desk, known, waits) == 1


def _conversations(desk: Desk, *tasks: str) -> int:
    found = set()
    for task in tasks:
        lines = (desk.run_directory(task) / "output.log").read_text().splitlines()
        found |= {json.loads(line)["session_id"] for line in lines}
    return len(found)


@pytest.mark.storm
def test_t1_two_queued_tasks_of_one_new_session_go_to_one_agent(desk: Desk) -> None:
    first = desk.offer("[[say one]]")
    session = desk.task(first)["session_id"]
    second = desk.offer("[[say two]]", session_id=session)
    desk.agent("amy", walls=False)
    desk.agent("bob", walls=False)
    one, two = desk.done(first), desk.done(second)
    assert one["agent"] == two["agent"]
    assert one["directory"] == two["directory"]
    assert _conversations(desk, first, second) == 1


def test_t1_a_cancelled_task_of_the_queue_leaves_nothing(desk: Desk) -> None:
    desk.pen.start()
    task = desk.offer("x", role="nobody", env={"OWN": SECRET})
    assert holders_of(desk.pen.root, SECRET)
    assert desk.cancel(task)["state"] == "cancelled"
    assert holders_of(desk.pen.root, SECRET) == []
    assert desk.pen.client().get("tasks")["tasks"] == []
    status, body = desk.ask("POST", f"/task/{task}/cancel")
    assert (status, body["error"], body["final_state"]) == (409, "already_completed", "cancelled")


@pytest.mark.storm
def test_t1_prompts_of_any_size_and_content(tmp_path: Path) -> None:
    with made_desk(tmp_path) as desk:
        desk.program("result(prompt.rpartition('MARK')[2])")
        desk.agent("amy")
        for text in ("ß€😀\u2028\x1b[31m\x07\r\n\ttail", "\\u0000 \"'`$(id)", "x" * (1 << 20)):
            prompt = f"MARK{text}"[: 1 << 20]
            assert desk.done(desk.give("amy", prompt))["output"] == prompt[4:]
        status, body = refused(desk, "amy", prompt="x" * ((1 << 20) + 1))
        assert (status, body["error"]) in ((400, "validation_error"), (413, "too_large"))


@pytest.mark.storm
def test_an_agent_that_is_stopped_ends_its_task_and_its_program(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    task = desk.give("amy", "[[say part ; hold one ; say x]]")
    desk.claude.wait_held("one")
    program = json.loads((desk.run_directory(task) / "holder.json").read_text())["child"]
    desk.pen.stop("amy", grace=5)
    assert not alive(program)
    found = desk.task(task)
    assert found["state"] == "cancelled"
    assert found["output"] == "part"
    assert desk.pen.state("amy").startswith("exited")
    with pytest.raises(BullpenError, match="not running"):
        desk.give("amy", "x")
    desk.start("amy")
    assert desk.done(desk.give("amy", "[[say back]]"))["output"] == "back"


@pytest.mark.storm
def test_p7_a_restart_of_the_hub_is_no_work_of_an_idle_agent(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    desk.done(desk.give("amy", "x"))
    wait_until(lambda: desk.pen.state("amy") == "idle")
    idle_since = desk.pen.agents()["amy"]["since"]
    for _ in range(2):
        desk.pen.kill_hub()
        desk.pen.start()
        wait_until(lambda: desk.pen.state("amy") == "idle")
    assert desk.pen.agents()["amy"]["since"] == idle_since


@pytest.mark.storm
def test_attach_says_that_there_is_no_terminal(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    with pytest.raises(BullpenError, match="takes tasks"):
        connect(desk.pen.home, "amy")
    task = desk.give("amy", "[[hold one ; say x]]")
    desk.claude.wait_held("one")
    with connect(desk.pen.home, "amy") as connection:
        assert connection.greeting["mode"] == "pipe"
    desk.claude.release("one")
    desk.done(task)


def test_tasks_that_nobody_took_are_not_kept_for_ever(desk: Desk) -> None:
    config = desk.pen.root / "config.yaml"
    config.write_text(config.read_text() + "history_limit: 2\n")
    desk.pen.start()
    tasks = [desk.offer("x", role="nobody") for _ in range(4)]
    for task in tasks:
        desk.cancel(task)
    found = desk.pen.client().get("history")
    assert [item["task_id"] for item in found["items"]] == tasks[:1:-1]
