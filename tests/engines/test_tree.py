"""A tree of real programs: Claude Code against the scripted model starts agents through its tools,
and hears of each of them once."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.story import call, script
from tests.engines.team import Team, made_team
from tests.hub.tree.support import Grove
from tests.waiting import wait_until
from tests.worktrees.repos import git

pytestmark = pytest.mark.slow

ALLOWED = {"permissions": {"allow": ["mcp__bullpen", "Bash(true:*)"]}}


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    with made_team(tmp_path, "real") as made:
        work = made.claude.work
        git(work, "init", "-q", "-b", "main")
        git(work, "commit", "-q", "--allow-empty", "-m", "first")
        made.role("worker", **ALLOWED)
        yield made


def queue(team: Team, name: str = "root") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = team.pen.client().get("agents", name, "queue")["events"]
    return found


def kinds(team: Team, name: str) -> list[tuple[str, str]]:
    return [(event["from"], event["kind"]) for event in queue(team, name)]


def test_m1_m3_m4_a_parent_spawns_a_subtree_and_waits_for_its_report(team: Team) -> None:
    report = call("notify_parent", status="success", message="it is done")
    spawn = call(
        "spawn_subtree", task=script(f"hold child ; {report} ; say bye"), branch_name="csv"
    )
    amy = team.run(prompt=f"[[{spawn} ; {call('wait_for_event')} ; say heard]]", name="amy")
    team.claude.model.wait_held("child")
    amy.wait("working (waiting for children)")
    tree = team.pen.client().get("tree")["agents"]
    assert [(each["name"], each["kind"]) for each in tree[0]["children"]] == [
        ("main.csv", "subtree")
    ]
    assert git(team.claude.work, "branch", "--list", "main.csv").strip() != ""
    team.claude.release("child")
    amy.wait_said("heard")
    assert "it is done" in json.dumps(team.claude.model.turns[-1].body)
    assert kinds(team, "amy") == [("main.csv", "child_finished")]


@pytest.mark.storm
def test_m3_a_child_that_forgets_its_report_is_reminded_once_then_its_parent_is_told(
    team: Team,
) -> None:
    spawn = call("spawn_subtree", task=script("say i am done"), branch_name="csv")
    amy = team.run(prompt=f"[[{spawn} ; {call('wait_for_event')} ; say heard]]", name="amy")
    amy.wait_said("heard")
    [event] = queue(team, "amy")
    assert (event["kind"], event["from"]) == ("child_idle", "main.csv")
    asked = [json.dumps(turn.body) for turn in team.claude.model.turns]
    reminders = [text for text in asked if "call the tool notify_parent now" in text]
    assert len(reminders) == 1  # one more request of the child's, with the reminder in it
    wait_until(lambda: team.pen.state("main.csv") == "idle")


@pytest.mark.parametrize("kind", ["gemini", "codex"])
@pytest.mark.storm
def test_m3_children_of_other_engines_are_reminded_too(tmp_path: Path, kind: str) -> None:
    """A parent that is a plain program, and a child that says nothing to it."""
    with made_team(tmp_path, kind) as team:
        work = team.claude.work
        git(work, "init", "-q", "-b", "main")
        git(work, "commit", "-q", "--allow-empty", "-m", "first")
        team.role("worker", permissions={"allow": ["mcp__bullpen"]})
        team.pen.role(
            "boss",
            agent_type="command",
            command=["cat"],
            deliver="lines-from-agents",
            may_grant="worker",
        )
        ran = team.pen.cli("run", "--role", "boss", "--name", "lead", "-d", cwd=work)
        assert ran.code == 0, ran
        grove = Grove.of(team.pen, work)
        child = grove.call(
            "lead", "spawn_subtree", task=script("say i am done"), branch_name="csv", role="worker"
        )["name"]
        event = grove.wait("lead", seconds=300.0)
        assert (event["kind"], event["from"]) == ("child_idle", child)
        asked = [json.dumps(turn.body) for turn in team.claude.model.turns]
        assert len([text for text in asked if "call the tool notify_parent now" in text]) == 1


@pytest.mark.parametrize(
    ("kind", "called"),
    [
        pytest.param("gemini", "mcp_bullpen_list_agents", marks=pytest.mark.storm),
        ("codex", "mcp__bullpen/list_agents"),
    ],
)
def test_m0_other_engines_have_the_tools_too(tmp_path: Path, kind: str, called: str) -> None:
    with made_team(tmp_path, kind) as team:
        team.role("worker", permissions={"allow": ["mcp__bullpen"]})
        amy = team.run(name="amy")
        own = '{"wait_for_previous":true}' if kind == "gemini" else "{}"
        amy.submit(f"[[tool {called} {own} ; say listed]]")
        amy.wait_said("listed")
        assert '"relation": "you"' in json.dumps(
            [turn.body for turn in team.claude.model.turns]
        ).replace("\\", "")
