"""Conversations over several tasks: the same directory, the same agent, resumed."""

import json
import uuid
from pathlib import Path

import pytest

from bullpen.errors import BullpenError
from tests.hub.tasks.desk import Desk

pytestmark = pytest.mark.slow


@pytest.mark.storm
def test_t4_a_session_goes_on_in_another_task(any_desk: Desk) -> None:
    any_desk.agent("amy")
    script = '[[tool Bash {"command": "echo kept > file"} ; say one]]'
    first = any_desk.done(any_desk.give("amy", script))
    assert uuid.UUID(first["session_id"]).version == 4
    script = '[[tool Bash {"command": "cat file > copy"} ; say two]]'
    second = any_desk.done(any_desk.give("amy", script, session_id=first["session_id"]))
    assert second["session_id"] == first["session_id"]
    assert second["directory"] == first["directory"]
    assert second["task_id"] != first["task_id"]
    assert (Path(second["directory"]) / "copy").read_text() == "kept\n"
    if any_desk.claude.model:
        last = json.dumps(any_desk.claude.model.requests[-1].body)
        assert "echo kept > file" in last
    # Each is told what it cost, not what the conversation has cost.
    assert second["cost_usd"] == pytest.approx(first["cost_usd"], rel=0.9)
    other = any_desk.done(any_desk.give("amy", "[[say fresh]]"))
    assert other["session_id"] != first["session_id"]
    assert list(Path(other["directory"]).iterdir()) == []


def test_t4_a_session_whose_transcript_is_gone_begins_anew_with_a_warning(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    first = desk.over(desk.give("amy", "[[say noted]]"))
    transcripts = list(desk.claude.config.glob("projects/*/*.jsonl"))
    assert transcripts
    for path in transcripts:
        path.unlink()
    task = desk.done(desk.give("amy", "[[say more]]", session_id=first["session_id"]))
    (warning,) = task["warnings"]
    assert "its transcript is gone" in warning
    assert desk.pen.events("amy", "task.state")[-1]["warnings"] == [warning]


@pytest.mark.storm
def test_t4_sessions_of_nobody_of_others_and_of_no_form(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    desk.agent("bob", walls=False)
    session = desk.done(desk.give("amy", "x"))["session_id"]
    for name, id, wanted in (
        ("amy", str(uuid.uuid4()), 404),
        ("bob", session, 404),
        ("amy", session.upper(), 400),
        ("amy", "../" + session, 400),
        ("amy", session + "/..", 400),
        ("amy", "", 400),
    ):
        status, body = desk.ask("POST", f"/agents/{name}/task", {"prompt": "x", "session_id": id})
        assert status == wanted, (name, id, body)
    desk.pen.kill_hub()
    desk.pen.start()
    assert desk.task(desk.offer("x", session_id=session))["session_id"] == session


def test_t4_a_session_whose_directory_is_gone_or_a_link_is_not_followed(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    first = desk.done(desk.give("amy", "x"))
    place = Path(first["directory"])
    place.rename(place.with_name("elsewhere"))
    gone = desk.over(desk.give("amy", "x", session_id=first["session_id"]))
    assert gone["error"]["type"] == "setup_failed"
    place.symlink_to("/etc")
    led = desk.over(desk.give("amy", "x", session_id=first["session_id"]))
    assert (led["error"]["type"], led["runs"]) == ("setup_failed", [])


def test_t4_a_session_dir_of_its_own(desk: Desk) -> None:
    place = desk.pen.root.parent / "sessions of amy"
    desk.agent("amy", session_dir=str(place))
    found = desk.done(desk.give("amy", '[[tool Bash {"command": "pwd > here"} ; say x]]'))
    assert found["directory"] == str(place / found["session_id"])
    assert (place / found["session_id"] / "here").read_text().strip() == found["directory"]


@pytest.mark.storm
def test_clean_up_never_takes_what_tasks_have_left(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    desk.agent("bob", walls=False)
    script = '[[tool Write {"file_path": "made", "content": "work"} ; say x]]'
    desk.role("amy", sandbox={"enabled": False}, permission_mode="bypassPermissions")
    found = desk.done(desk.give("amy", script))
    made = Path(found["directory"]) / "made"
    assert made.read_text() == "work"
    other = desk.done(desk.give("bob", "x"))
    desk.pen.stop("amy")
    desk.pen.stop("bob")
    for force in ((), ("--force",)):
        ran = desk.pen.cli("gc", "--older-than", "0s", *force)
        assert ran.code == 0, ran
        assert made.read_text() == "work"
        assert "left files in" in ran.out
    assert not Path(other["directory"]).exists()
    assert not desk.pen.session("bob").exists()
    # Of a removed agent there is no session to go on with.
    with pytest.raises(BullpenError, match="no session"):
        desk.offer("x", session_id=other["session_id"])
    assert desk.task(other["task_id"])["state"] == "completed"


@pytest.mark.storm
def test_clean_up_leaves_an_agent_that_a_task_waits_for(desk: Desk) -> None:
    desk.agent("bob", walls=False)
    session = desk.done(desk.give("bob", "x"))["session_id"]
    desk.pen.stop("bob")
    waiting = desk.offer("[[say late]]", session_id=session)
    ran = desk.pen.cli("gc", "--older-than", "0s", "--force")
    assert "a task waits for it" in ran.out
    desk.agent("bob", walls=False)
    assert desk.done(waiting)["output"] == "late"
