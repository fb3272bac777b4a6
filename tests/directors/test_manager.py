"""A director of type claude leads: from a goal to the work of others and one report (D5).

Claude Code itself against the scripted model, the roles as they are shipped, in their sandboxes."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.home.create import STARTER
from tests.directors.running import RunningDirector
from tests.engines.script import nested
from tests.hub.tasks.desk import Desk, made_desk
from tests.waiting import wait_until
from tests.worktrees.repos import git, make_repo

pytestmark = pytest.mark.slow

SECONDS = 240.0
WHO = "-c user.name=Amy -c user.email=a@b.c"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with made_desk(tmp_path, "real") as made:
        shutil.copytree(STARTER / "roles", made.pen.root / "roles", dirs_exist_ok=True)
        made.pen.start()
        yield made


@pytest.fixture
def repo(desk: Desk) -> Path:
    made = make_repo(desk.pen.root.parent / "shop")
    for key, value in (("name", "Pat"), ("email", "pat@example.com")):  # who lands
        git(made, "config", f"user.{key}", value)
    return made


@contextlib.contextmanager
def manager(desk: Desk, repo: Path, **config: Any) -> Iterator[RunningDirector]:
    """Running, until the end of the block."""
    made = RunningDirector(desk.pen, "lead")
    fields = {"type": "claude", "port": desk.pen.free_port(), "workdir": str(repo), **config}
    made.file.write_text(json.dumps(fields))
    ran = desk.cli("director", "start", "lead")
    assert ran.code == 0, ran
    try:
        yield made
        ran = made.cli("director", "stop", "lead")
        assert ran.code == 0, ran
    finally:
        with contextlib.suppress(AssertionError):
            made.kill()


def workers(desk: Desk, *names: str, role: str = "coder") -> None:
    for name in names:
        ran = desk.cli("agent", "start", name, "--role", role)
        assert ran.code == 0, ran


def script(*steps: str) -> str:
    return f"[[{' ; '.join(steps)}]]"


def tool(called: str, **arguments: Any) -> str:
    return f"tool {called} {json.dumps(nested(arguments))}"


def ours(called: str, **arguments: Any) -> str:
    return tool(f"mcp__bullpen__{called}", **arguments)


def bash(command: str) -> str:
    return tool("Bash", command=command)


def write_a_file(name: str) -> str:
    """What a worker does."""
    commit = f"echo {name} > {name}.txt && git add {name}.txt && git {WHO} commit -qm {name}"
    return script(bash(commit), f"say {name} is written")


def answers(director: RunningDirector) -> bool:
    """Whether its supervisor has started it again."""
    try:
        return bool(director.ask("GET", "/status"))
    except (AssertionError, BullpenError):
        return False


def over(director: RunningDirector, goal: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def is_over() -> bool:
        found.update(director.ask("GET", f"/task/{goal}"))
        return found["state"] in ("completed", "failed", "cancelled")

    wait_until(is_over, SECONDS)
    return found


def results(desk: Desk) -> list[str]:
    """What the tools of the manager came to."""
    bodies = [turn.body["messages"] for turn in desk.claude.model.turns]
    messages = max((each for each in bodies if "Lead them." in json.dumps(each)), key=len)
    blocks = [block for message in messages for block in message["content"]]
    return [
        str(block["content"])
        for block in blocks
        if isinstance(block, dict) and block["type"] == "tool_result"
    ]


def tasks_of(desk: Desk, agent: str) -> list[dict[str, Any]]:
    return [row for row in desk.pen.client().get("history")["items"] if row["agent"] == agent]


@pytest.mark.storm
def test_d5_a_goal_is_delegated_looked_at_and_reported_once_whoever_is_killed(
    desk: Desk, repo: Path
) -> None:
    workers(desk, "dev")
    goal = "Lead them. " + script(
        ours("delegate_task", prompt=write_a_file("csv"), agent="dev", branch_name="csv"),
        "hold given",
        ours("wait_for_event"),
        ours("task_diff", task_id="$task_id"),
        ours("merge_task", task_id="$task_id"),
        bash("cat csv.txt"),  # in its own worktree
        "say csv is there",
    )
    with manager(desk, repo) as lead:
        body = {"prompt": goal, "request": "0" * 32}
        id = lead.ask("POST", "/task", body)["task_id"]
        desk.claude.model.wait_held("given")
        assert lead.ask("POST", "/task", body)["task_id"] == id
        lead.kill()
        desk.pen.kill_hub()
        desk.claude.model.release("given")
        desk.pen.start()
        wait_until(lambda: answers(lead), SECONDS)
        found = over(lead, id)
        rows = lead.ask("GET", "/history")["items"]
    assert (found["state"], found["report"]) == ("completed", "csv is there")
    assert [row["id"] for row in rows] == [id]
    _, event, diff, merged, file = results(desk)
    assert '"landed"' in merged and found["branch"] in merged and "csv" in file
    assert "task_finished" in event
    assert "csv is written" in event
    assert "+csv" in diff
    assert len(tasks_of(desk, "dev")) == len(tasks_of(desk, "lead")) == 1
    assert git(repo, "rev-list", "--count", "--merges", found["branch"]) == "1"
    assert git(repo, "status", "--porcelain") == ""
    assert desk.pen.cli("land", found["branch"], cwd=repo).code == 0
    assert (repo / "csv.txt").read_text() == "csv\n"


@pytest.mark.storm
def test_d5_several_work_at_once_and_one_goes_on_in_its_own_directory(
    desk: Desk, repo: Path
) -> None:
    workers(desk, "dev", "tess")
    more = bash(f"echo more >> csv.txt && git {WHO} commit -qam more")
    goal = "Lead them. " + script(
        ours("delegate_task", prompt=write_a_file("docs"), role="coder", branch_name="docs"),
        ours("delegate_task", prompt=write_a_file("csv"), role="coder", branch_name="csv"),
        ours("wait_for_event"),
        ours("wait_for_event", after="$id"),
        ours("delegate_task", prompt=script(more, "say more"), continue_task="$task_id"),
        ours("wait_for_event", after="$id"),
        "say all of it is there",
    )
    with manager(desk, repo):
        ran = desk.cli("director", "task", "lead", goal, "--wait")
    assert (ran.code, ran.out) == (0, "all of it is there\n"), ran
    assert git(repo, "show", "csv:csv.txt").split() == ["csv", "more"]
    assert git(repo, "show", "docs:docs.txt") == "docs"
    states = [row["state"] for name in ("dev", "tess") for row in tasks_of(desk, name)]
    assert states == ["completed"] * 3


@pytest.mark.storm
def test_d5_the_manager_cannot_change_the_project_and_has_a_scratch_directory(
    desk: Desk, repo: Path
) -> None:
    attack = "Lead them. " + script(
        tool("Write", file_path=str(repo / "written.txt"), content="mine"),
        bash(f"echo mine > {repo}/echoed.txt"),
        bash("echo mine > echoed.txt"),
        bash(f"git -C {repo} {WHO} commit --allow-empty -qm mine"),
        bash(f"git -C . {WHO} commit --allow-empty -qm mine"),
        bash("echo noted > /tmp/notes && cat /tmp/notes"),
        "say tried",
    )
    with manager(desk, repo) as lead:
        found = over(lead, lead.ask("POST", "/task", {"prompt": attack})["task_id"])
    assert found["report"] == "tried", found
    assert "noted" in results(desk)[5]
    wait_until(lambda: git(repo, "branch", "--format=%(refname:short)") == "main")
    assert git(repo, "status", "--porcelain") == ""
    assert git(repo, "log", "--format=%s").split() == ["Start"]
    # Without what holds it back, the same works; and no director leads with such a role.
    sandbox = {"enabled": True, "read_only_paths": ["/opt"]}
    desk.role("free", capabilities=["delegate"], sandbox=sandbox)
    ran = desk.cli("agent", "start", "free", "--role", "free")
    assert ran.code == 0, ran
    assert desk.done(desk.give("free", attack, workdir=str(repo)))["output"] == "tried"
    assert (repo / "echoed.txt").read_text() == "mine\n"
    assert (repo / "written.txt").read_text() == "mine"
    lead.file.write_text(json.dumps({"type": "claude", "role": "free", "agent": "other"}))
    ran = desk.cli("director", "start", "lead")
    assert ran.code != 0
    assert "free could change the project" in ran.err
    assert "free could change files" in ran.err
