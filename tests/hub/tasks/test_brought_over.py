"""A task says whether its repository has what it committed in a git of its own (X7)."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from bullpen.worktrees.private.store import PrivateStore, locked_store
from tests.hub.tasks.desk import Desk
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WHO = ("-c", "user.name=me", "-c", "user.email=me@example.com")
COMMIT = f"git {' '.join(WHO)} commit -q --allow-empty -m Mine"
WAIT = "touch here; until test -e go; do sleep 0.05; done"


def bash(command: str) -> str:
    return f'[[tool Bash {{"command": "{command}"}} ; say done]]'


def git(checkout: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(checkout), *WHO, *words], check=True, capture_output=True, timeout=60
    )
    return done.stdout.decode().strip()


def shown(desk: Desk, task: str) -> dict[str, Any]:
    return desk.pen.client().get("history", task)


def left_behind(desk: Desk, task: str) -> Any:
    """What did not come over, once that is known: the end of a run does not wait for ever."""
    wait_until(lambda: shown(desk, task)["not_brought_over"] is not None)
    return shown(desk, task)["not_brought_over"]


@pytest.fixture
def checkout(desk: Desk) -> Path:
    path = desk.pen.root.parent / "shop"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    git(path, "commit", "-q", "--allow-empty", "-m", "first")
    desk.agent("amy", role={"permissions": {"allow": ["Bash"]}})
    return path


def begun(desk: Desk, checkout: Path) -> tuple[str, Path]:
    """A task that commits on `work` as soon as there is a file `go`, and its directory."""
    task = desk.give("amy", bash(f"{WAIT}; {COMMIT}"), repo=str(checkout), worktree="work")
    wait_until(lambda: Path(shown(desk, task)["directory"] or "/nowhere", "here").exists())
    return task, Path(shown(desk, task)["directory"])


def test_x7_a_task_says_which_commits_did_not_come_over(desk: Desk, checkout: Path) -> None:
    task, directory = begun(desk, checkout)
    assert shown(desk, task)["not_brought_over"] is None, "it is not over"
    other = git(checkout, "commit-tree", "-m", "Other", "-p", "work", "work^{tree}")
    git(checkout, "update-ref", "refs/heads/work", other)
    (directory / "go").touch()
    desk.done(task)
    assert left_behind(desk, task) == ["work: it was changed outside as well"]
    again = desk.give("amy", bash(COMMIT), repo=str(checkout), worktree="second")
    desk.done(again)
    assert left_behind(desk, again) == []


@pytest.mark.storm
def test_x7_a_task_says_that_its_commits_are_on_their_way(desk: Desk, checkout: Path) -> None:
    task, directory = begun(desk, checkout)
    [store] = (checkout / ".git" / "bullpen" / "private").iterdir()
    before = git(checkout, "rev-parse", "work")
    with locked_store(PrivateStore(checkout / ".git", store.name, directory)):
        (directory / "go").touch()
        desk.done(task)
        assert shown(desk, task)["not_brought_over"] is None
        assert git(checkout, "rev-parse", "work") == before
    wait_until(lambda: shown(desk, task)["not_brought_over"] == [])
    assert git(checkout, "log", "-1", "--format=%s", "work") == "Mine"
