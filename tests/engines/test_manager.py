"""The starter role `manager` leads: from a prompt to the work of others in its branch and a report.
Claude Code itself, against the scripted model, with the roles as they are shipped."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.home.create import STARTER
from tests.engines.team import Team, made_team
from tests.worktrees.repos import git

pytestmark = [pytest.mark.storm, pytest.mark.slow]


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    with made_team(tmp_path, "real") as made:
        shutil.copytree(STARTER / "roles", made.pen.root / "roles", dirs_exist_ok=True)
        work = made.claude.work
        git(work, "init", "-q", "-b", "main")
        for key, value in (("name", "Pat"), ("email", "pat@example.com")):
            git(work, "config", f"user.{key}", value)
        git(work, "commit", "-q", "--allow-empty", "-m", "first")
        yield made


def script(*steps: str) -> str:
    return f"[[{' ; '.join(steps)}]]"


def tool(called: str, **arguments: Any) -> str:
    """A script for another in its arguments must not end this one."""
    text = json.dumps(arguments).replace("[[", "\\u005b\\u005b").replace("]]", "\\u005d\\u005d")
    return f"tool {called} {text}"


def ours(called: str, **arguments: Any) -> str:
    return tool(f"mcp__bullpen__{called}", **arguments)


def bash(command: str) -> str:
    return tool("Bash", command=command)


def spawn(team: Team, name: str) -> str:
    """A coder that writes a file of its own and one line of everybody's, commits and reports; if
    that conflicts, it takes in what its parent has and reports again."""
    tree = team.pen.root / "worktrees" / f"lead.{name}"
    shared = tool("Write", file_path=str(tree / "shared.txt"), content=f"{name}\n")
    reported = ours("notify_parent", status="success", message=f"{name} is written")
    task = script(
        tool("Write", file_path=str(tree / f"{name}.txt"), content=f"{name}\n"),
        shared,
        bash("git add -A"),
        bash(f"git commit -qm {name}"),
        reported,
        "say done",
        "next",
        bash("git merge -q lead || echo conflict"),
        tool("Read", file_path=str(tree / "shared.txt")),
        shared,
        bash("git add -A"),
        bash(f"git commit -qm {name}-again"),
        reported,
        "say mended",
    )
    return ours("spawn_subtree", task=task, branch_name=name, role="coder")


def results(team: Team) -> tuple[list[str], str]:
    """What the manager's tools came to: the texts of those that were refused, and all the rest."""
    messages = max((turn.body["messages"] for turn in team.claude.model.turns), key=len)
    blocks = [block for message in messages for block in message["content"]]
    found = [each for each in blocks if isinstance(each, dict) and each["type"] == "tool_result"]
    refused = [str(block["content"]) for block in found if block.get("is_error")]
    return refused, "".join(str(block["content"]) for block in found if not block.get("is_error"))


def test_d5_m6_the_manager_leads_two_coders_through_a_conflict_and_reports(team: Team) -> None:
    """It is refused by a rule, and what a person lets through by its sandbox."""
    tree = team.pen.root / "worktrees" / "lead"
    lead = team.run(
        "manager",
        name="lead",
        prompt="Write two files. "
        + script(
            # It cannot do it itself, however it tries.
            tool("Write", file_path=str(tree / "own.txt"), content="mine\n"),
            bash("git commit --allow-empty -qm mine"),
            bash(f"echo mine > {tree}/own.txt"),
            # So it has it done.
            spawn(team, "csv"),
            spawn(team, "docs"),
            ours("wait_for_event"),
            ours("wait_for_event", after=1),
            ours("agent_diff", name="lead.csv"),
            ours("merge_child", name="lead.csv"),
            ours("merge_child", name="lead.docs"),
            ours("wait_for_event", after=2),
            ours("merge_child", name="lead.docs"),
            bash("git log --format=%s"),
            ours("notify_parent", status="success", message="both are in lead"),
            "say reported",
        ),
    )
    lead.wait_listed()  # no rule knows the last of them, and its reviewer is not sure
    assert team.cli("approve", "lead").code == 0
    lead.wait_said("reported")
    subjects = git(team.claude.work, "log", "--format=%s", "--no-merges", "lead").split()
    assert sorted(subjects) == ["csv", "docs", "first"]
    assert sorted(path.name for path in tree.glob("*.txt")) == ["csv.txt", "docs.txt", "shared.txt"]
    assert (tree / "shared.txt").read_text() == "docs\n"
    events = team.pen.client().get("agents", "root", "queue")["events"]
    assert [(event["from"], event["data"]["message"]) for event in events] == [
        ("lead", "both are in lead")
    ]
    refused, seen = results(team)
    write, commit, redirect = refused
    assert "No such tool available: Write" in write
    assert "git commit --allow-empty -qm mine has been denied" in commit
    assert "Read-only file system" in redirect
    assert "shared.txt" in seen.partition("conflict")[2]
    assert "+csv" in seen  # the diff
    assert git(team.claude.work, "log", "--format=%s", "main").split() == ["first"]
    # And the person takes it.
    assert team.cli("land", "lead").code == 0
    assert (team.claude.work / "docs.txt").read_text() == "docs\n"
