"""Any program takes tasks: the prompt is its input, what it prints the result."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.hub.tasks.desk import Desk

pytestmark = pytest.mark.slow


def program(desk: Desk, *command: str, **file: Any) -> str:
    role = {"agent_type": "command", "command": list(command)}
    return desk.agent("amy", role=role, **file)


def test_t1_a_plain_program_takes_a_task(desk: Desk) -> None:
    program(desk, "/bin/sh", "-c", "grep -c . ; echo; echo second; printf last")
    found = desk.done(desk.give("amy", "one\ntwo"))
    assert found["output"].endswith("\n\nsecond\nlast"), "as it was printed, to the last byte"


def test_t6_it_is_told_nothing_but_the_task(desk: Desk) -> None:
    program(desk, "/bin/cat")
    assert desk.done(desk.give("amy", "one\ntwo"))["output"] == "one\ntwo"
    shop = {"name": "shop", "prompt": "It sells things."}
    assert desk.done(desk.give("amy", "one", project=shop))["output"] == "one"


def test_t9_its_exit_code_says_whether_it_went_well(desk: Desk) -> None:
    program(desk, "/bin/sh", "-c", "echo so far; echo error: no >&2; exit 3")
    found = desk.over(desk.give("amy", "go"))
    assert (found["state"], found["exit_code"], found["output"]) == ("failed", 3, "so far")
    assert "error: no" in found["error"]["message"]


@pytest.mark.parametrize("walls", [True, False])
def test_x4_it_is_behind_walls_like_every_other(desk: Desk, walls: bool) -> None:
    secret = Path(desk.pen.env["HOME"]) / "secret"
    secret.write_text("what is not its own")
    role = {"agent_type": "command", "command": ["/bin/cat", str(secret)]}
    desk.agent("amy", walls=walls, role=role)
    found = desk.over(desk.give("amy", "go"))
    assert (found["output"] == "what is not its own") is not walls, json.dumps(found)
