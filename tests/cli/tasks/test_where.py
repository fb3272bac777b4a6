"""Where `bullpen task` lets a task work that names no directory."""

import json
from pathlib import Path

import pytest

from bullpen.cli.tasks import where as task_where
from bullpen.errors import BullpenError
from bullpen.home import marker
from bullpen.home.paths import Home, make_directories
from tests.worktrees.repos import make_repo


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """With a role that has a worktree, and one that has none."""
    root = tmp_path / "shop" / ".bullpen"
    root.mkdir(parents=True)
    make_directories(root)
    marker.create(root)
    for name, is_enabled in (("coder", True), ("clerk", False)):
        role = {"name": name, "worktree": {"enabled": is_enabled}}
        (root / "roles" / f"{name}.yaml").write_text(json.dumps(role))
    return Home(root)


def test_t1_a_role_with_a_worktree_gets_one_of_the_repository_around(home: Home) -> None:
    repo = make_repo(home.root.parent / "code")
    inner = repo / "src"
    inner.mkdir(exist_ok=True)
    where = task_where.here(home, inner, "coder", "amy")
    assert where.fields == {"repo": str(repo), "worktree": "amy"}
    assert where.words.endswith("/code, branch amy")
    whoever = task_where.here(home, inner, "coder", "")
    assert (whoever.fields.get("worktree") or "").startswith("task-")


def test_t1_else_it_is_this_directory_if_tasks_may_work_there(home: Home, tmp_path: Path) -> None:
    repo = make_repo(home.root.parent / "code")
    assert task_where.here(home, repo, "clerk", "amy").fields == {"workdir": str(repo)}
    plain = home.root.parent / "plain"
    plain.mkdir()
    for role in ("coder", "clerk", ""):
        assert task_where.here(home, plain, role, "amy").fields == {"workdir": str(plain)}
    for denied, why in ((tmp_path, "under no directory"), (home.root, "belongs to Bullpen")):
        where = task_where.here(home, denied, "clerk", "amy")
        assert where.fields == {}
        assert where.words.startswith(task_where.OWN) and why in where.words
    elsewhere = make_repo(tmp_path / "elsewhere")
    assert task_where.here(home, elsewhere, "coder", "amy").fields == {}


def test_t1_what_the_person_named_is_said_and_counts(home: Home) -> None:
    (home.projects / "web.yaml").write_text(json.dumps({"name": "web", "prompt": "x"}))
    (home.projects / "api.yaml").write_text(
        json.dumps({"name": "api", "prompt": "x", "workdir": "/srv/api"})
    )
    assert task_where.named({"project": "web"}, home) == ""
    assert "/srv/api" in task_where.named({"project": "api"}, home)
    assert task_where.named({"workdir": "/srv/x"}, home) == "in /srv/x"
    named = task_where.named({"repo": "https://x.test/shop.git", "worktree": "b"}, home)
    assert named == "in a worktree of https://x.test/shop.git, branch b"
    assert task_where.named({"session_id": "s"}, home) == "where its session was"
    assert task_where.named({}, home) == ""


def test_l3_a_branch_that_is_named_is_the_one_its_work_comes_as(home: Home) -> None:
    repo = make_repo(home.root.parent / "code")
    plain = home.root.parent / "plain"
    plain.mkdir()
    for directory, fields in (
        (repo, {"worktree": "a/b"}),
        (plain, {"repo": str(repo), "worktree": "a/b"}),
    ):
        where = task_where.anywhere(fields, directory, is_scratch=False)
        assert where.fields == {"repo": str(repo), "worktree": "a/b"}
        assert where.words.endswith("/code, and its work comes as a/b")
    made = task_where.anywhere({"repo": str(repo)}, plain, is_scratch=False)
    assert (made.fields.get("worktree") or "").startswith("task-")
    assert task_where.anywhere({}, repo, is_scratch=True).fields == {}
    with pytest.raises(BullpenError, match="--scratch is for"):
        task_where.anywhere({"worktree": "a/b"}, repo, is_scratch=True)
