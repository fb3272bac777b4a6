"""A task with a branch of its own, where its place lies in a git repository (T1, D5)."""

import subprocess
from pathlib import Path

import pytest

from bullpen.hub.tasks import workspaces
from tests.hub.http.inside import made_inside
from tests.hub.tasks.desk import Desk
from tests.hub.tree.support import PROGRAM, Grove, made_grove
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow


def head(directory: Path) -> str:
    return git(directory, "symbolic-ref", "--short", "HEAD")


def test_d5_it_works_in_a_worktree_begun_at_what_is_checked_out_there(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    root = desk.pen.root.parent
    repo, plain = make_repo(root / "shop"), root / "plain"
    git(repo, "switch", "-q", "-c", "side")
    tip = commit(repo, "web/page.txt")
    plain.mkdir()
    project = desk.pen.root / "projects" / "shop.yaml"
    project.write_text(f"name: shop\nprompt: Shoes.\nworkdir: {repo}\n")
    for number, where in enumerate(
        ({"workdir": str(repo)}, {"workdir": str(repo / "web")}, {"project": "shop"})
    ):
        branch = f"lead-g-{number}"
        task = desk.done(desk.give("amy", "x", branch=branch, **where))
        tree = Path(task["directory"])
        assert (tree, task["branch"]) == (desk.pen.root / "worktrees" / branch, branch)
        assert head(tree) == branch
        assert git(tree, "rev-parse", "HEAD") == tip
        is_below = "This is about web in the repository." in desk.prompt_of(task["task_id"])
        assert is_below == (number == 1)
    assert git(repo, "status", "--porcelain") == ""
    # Without a repository, or a commit to begin at, or a place at all, it is as without it.
    for where in ({"workdir": str(plain)}, {}):
        task = desk.done(desk.give("amy", "x", branch="other", **where))
        assert task["branch"] is None
        assert task["directory"] == where.get("workdir", task["directory"])
    git(plain, "init", "-q")
    task = desk.done(desk.give("amy", "x", branch="other", workdir=str(plain)))
    assert (task["directory"], task["branch"]) == (str(plain), None)


@pytest.mark.storm
@pytest.mark.parametrize("is_defended", [True, False])
def test_x2_a_repository_that_an_agent_made_is_not_one_to_branch_from(
    is_defended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its filters would run outside of the sandbox when the worktree is filled."""
    with made_grove() as grove:
        place, ran = grove.pen.root.parent / "plain", grove.pen.root.parent / "ran"
        place.mkdir()
        monkeypatch.setenv("HOME", grove.pen.env["HOME"])  # of the hub in this process
        if not is_defended:
            monkeypatch.setattr(workspaces, "earlier_than", lambda _session, _others: [])
        with made_inside(grove.pen):
            begin_shell(grove, "amy")
            done(grove, "amy", "true", place)
            plant(place, ran)
            task = done(grove, "amy", "pwd", place, branch="lead-g-1")
            assert (task == str(place)) == is_defended
            assert ran.exists() != is_defended


def begin_shell(grove: Grove, name: str) -> None:
    grove.pen.role("shell", **{**PROGRAM, "command": ["sh"]})
    assert grove.pen.cli("agent", "start", name, "--role", "shell").code == 0


def done(grove: Grove, agent: str, prompt: str, place: Path, **fields: str) -> str:
    client = grove.pen.client
    body = {"prompt": prompt, "agent": agent, "workdir": str(place), **fields}
    id = client().post("tasks", body=body)["task_id"]
    wait_until(lambda: client().get("task", id)["state"] in ("completed", "failed"))
    return str(client().get("task", id)["output"]).strip()


def plant(place: Path, ran: Path) -> None:
    subprocess.run(["git", "init", "-q", place], check=True)
    commit(place, ".gitattributes", "* filter=evil\n")
    commit(place, "a.txt")
    git(place, "config", "filter.evil.smudge", f"touch {ran}; cat")
