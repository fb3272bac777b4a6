"""Messages to agents that take tasks: in front of the next prompt, once."""

import json

import pytest

from tests.hub.tasks.desk import Desk
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def send(desk: Desk, text: str) -> str:
    found = desk.pen.cli("send", "amy", text, "--json")
    assert found.code == 0, found
    return str(json.loads(found.out)["id"])


def delivered(desk: Desk) -> list[str]:
    return [event["id"] for event in desk.pen.events("amy", "message.delivered")]


@pytest.mark.storm
def test_a_message_comes_in_front_of_the_next_prompt_once(any_desk: Desk) -> None:
    desk = any_desk
    desk.agent("amy")
    first, second = send(desk, "One: ß [x]"), send(desk, "Two")
    shown = desk.pen.client().get("agents", "amy", "explain")
    assert (shown["messages"], shown["messages_wait"]) == (2, "waits for its next task")
    assert "waits for its next task" in desk.pen.cli("explain", "amy").out
    assert delivered(desk) == []
    task = desk.give("amy", "PROMPT [[say x]]", keep_open=True)
    desk.wait(task, "idle")
    told = desk.prompt_of(task)
    places = [told.index(text) for text in ("One: ß [x]", "Two", "PROMPT")]
    assert places == sorted(places)
    wait_until(lambda: sorted(delivered(desk)) == sorted([first, second]))
    wait_until(lambda: desk.pen.client().get("agents", "amy", "explain")["messages"] == 0)
    third = send(desk, "Three")
    desk.go_on(task, "MORE [[say y]]")
    desk.wait(task, "idle")
    told = desk.prompt_of(task, 2)
    assert "Three" in told
    assert "One" not in told
    wait_until(lambda: third in delivered(desk))
    desk.end(task)
    last = desk.give("amy", "LAST [[say z]]", session_id=desk.task(task)["session_id"])
    desk.done(last)
    assert desk.prompt_of(last) == "LAST [[say z]]"
    assert len(delivered(desk)) == 3


@pytest.mark.storm
def test_a_message_to_one_that_works_waits_and_is_not_typed(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    task = desk.give("amy", "[[hold one ; say x]]")
    desk.claude.wait_held("one")
    id = send(desk, "meanwhile")
    desk.pen.kill_hub()
    desk.pen.start()
    shown = desk.pen.client().get("agents", "amy", "explain")
    assert (shown["messages"], shown["messages_wait"]) == (1, "waits for its next task")
    desk.claude.release("one")
    desk.done(task)
    assert delivered(desk) == []
    after = desk.give("amy", "[[say y]]")
    desk.done(after)
    assert "meanwhile" in desk.prompt_of(after)
    wait_until(lambda: delivered(desk) == [id])


@pytest.mark.storm
def test_a_message_that_was_told_while_the_hub_was_away_is_not_told_again(real: Desk) -> None:
    """The hook that shows it finds nobody; the transcript shows it."""
    desk = real
    pause, claude = desk.pen.root.parent / "pause", desk.pen.env["BULLPEN_CLAUDE_BIN"]
    program = desk.pen.root.parent / "program"
    wait = f"while [ -e {pause} ]; do touch {pause}.seen; sleep 0.01; done"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] || {{ {wait}; }}\nexec {claude} "$@"\n')
    program.chmod(0o755)
    desk.pen.env["BULLPEN_CLAUDE_BIN"] = str(program)
    desk.agent("amy", walls=False)
    id = send(desk, "only once")
    pause.touch()
    task = desk.give("amy", "[[say y]]")
    wait_until((pause.with_name("pause.seen")).exists)
    desk.pen.kill_hub()
    pause.unlink()
    log = desk.run_directory(task) / "exit.json"
    wait_until(log.exists)
    desk.pen.start()
    desk.done(task)
    assert "only once" in desk.prompt_of(task)
    again = desk.give("amy", "[[say z]]", session_id=desk.task(task)["session_id"])
    desk.done(again)
    assert "only once" not in desk.prompt_of(again)
    wait_until(lambda: delivered(desk) == [id])


def test_a_message_whose_run_never_began_is_told_by_the_next(desk: Desk) -> None:
    desk.program("""
if "FAIL" in prompt:
    os.kill(os.getpid(), signal.SIGKILL)
result("x")
""")
    desk.agent("amy", walls=False, max_retries=0)
    id = send(desk, "patient")
    failed = desk.give("amy", "FAIL")
    assert desk.over(failed)["state"] == "failed"
    assert delivered(desk) == []
    task = desk.give("amy", "x")
    desk.done(task)
    assert "patient" in desk.prompt_of(task)
    assert id not in delivered(desk)  # this program shows nothing
