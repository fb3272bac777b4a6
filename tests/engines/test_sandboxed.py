"""Claude Code behind walls, in a terminal and without one: the real program, the real sandbox."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.commands import BULLPEN
from tests.engines.inbox import wait_delivered
from tests.engines.team import Agent, Team
from tests.hub.tasks.desk import Desk
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SECRET = "what-only-the-person-may-read"


def bash(command: str, say: str) -> str:
    return f"[[tool Bash {json.dumps({'command': command})} ; say {say}]]"


@pytest.fixture
def secret(team: Team) -> Path:
    """Something of the person's, in the home directory."""
    path = Path(team.pen.env["HOME"]) / ".ssh" / "id"
    path.parent.mkdir(parents=True)
    path.write_text(SECRET)
    return path


def looked(team: Team, secret: Path, **sandbox: Any) -> str:
    """What the command brought to light that tries to read it, as the model is told."""
    team.role("worker", sandbox=sandbox, permissions={"allow": ["Bash"]})
    amy = team.run("worker")
    amy.wait("idle")
    return told(team, amy, f"cat {secret} || echo not there")


def told(team: Team, amy: Agent, command: str) -> str:
    """What the command prints, run by the agent."""
    file = team.claude.work / f"told-{len(list(team.claude.work.iterdir()))}"
    amy.submit(bash(f"({command}) >{file} 2>&1", f"looked into {file.name}"))
    amy.wait_said(f"looked into {file.name}")
    return file.read_text()


@pytest.mark.storm
def test_x4_in_a_terminal_walls_hide_what_is_not_its_own(team: Team, secret: Path) -> None:
    found = looked(team, secret, enabled=True)
    assert "not there" in found
    assert SECRET not in found


@pytest.mark.storm
def test_x4_in_a_terminal_there_are_no_walls_unless_the_role_says_so(
    team: Team, secret: Path
) -> None:
    assert SECRET in looked(team, secret)


@pytest.mark.storm
def test_x2_hooks_states_and_messages_pass_through_the_walls(team: Team) -> None:
    team.role("worker", sandbox={"enabled": True}, permissions={"allow": ["Bash"]})
    amy = team.run("worker")
    amy.wait("idle")
    assert "amy" in told(team, amy, f"{BULLPEN} list"), "its own command reaches the hub"
    assert "amy" in told(team, amy, f"{BULLPEN} status amy")
    ran = team.cli("send", "amy", "[[say got it]]")
    assert ran.code == 0, ran.err
    amy.wait_said("got it")
    hooks = {"SessionStart", "UserPromptSubmit", "PreToolUse", "Stop"}
    wait_until(lambda: hooks <= set(amy.hooks()))
    wait_delivered(team, "amy")
    inbox = team.cli("inbox", "amy", "--json")
    assert json.loads(inbox.out)["messages"][0]["delivered"], inbox.out


@pytest.mark.storm
def test_x2_a_permission_is_asked_and_answered_through_the_walls(team: Team) -> None:
    team.role("worker", sandbox={"enabled": True})
    amy = team.run("worker")
    amy.wait("idle")
    amy.submit(bash("echo done >there", "allowed"))
    amy.wait("blocked (permission: Bash)")
    amy.wait_listed()
    team.cli("approve", "1")
    amy.wait_said("allowed")
    assert (team.claude.work / "there").read_text() == "done\n"


def test_x2_without_network_model_and_hub_are_reached_all_the_same(team: Team) -> None:
    """The same addresses; nothing else on this machine answers."""
    port = team.pen.client().get("status")["port"]
    team.role(
        "worker",
        sandbox={"enabled": True, "allow_network": False},
        permissions={"allow": ["Bash"]},
    )
    amy = team.run("worker")
    amy.wait("idle")
    with socket.create_server(("127.0.0.1", 0)) as outside:
        number = outside.getsockname()[1]
        tried = told(team, amy, f"bash -c 'echo >/dev/tcp/127.0.0.1/{number}' || echo refused")
    assert "refused" in tried
    assert "refused" not in told(team, amy, f"bash -c 'echo >/dev/tcp/127.0.0.1/{port}'")
    wait_until(lambda: {"PreToolUse", "Stop"} <= set(amy.hooks()))  # over HTTP
    team.pen.kill_hub()
    team.pen.start()
    amy.submit("[[say still here]]")
    amy.wait_said("still here")


@pytest.mark.storm
def test_x2_a_task_without_network(real: Desk) -> None:
    real.agent("amy", role={"sandbox": {"allow_network": False}})
    task = real.give("amy", bash("cat </dev/tcp/127.0.0.1/1 || echo closed", "done"))
    assert real.done(task)["output"] == "done"
