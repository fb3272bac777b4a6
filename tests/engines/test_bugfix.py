"""The shipped template `bugfix`: starter roles, their sandbox, and Claude Code itself."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.home.create import STARTER
from tests.hub.tasks.desk import Desk, made_desk
from tests.waiting import wait_until
from tests.worktrees.repos import git, make_repo

pytestmark = [pytest.mark.storm, pytest.mark.slow]

SECONDS = 240.0
MEMBERS = ("finder", "fixer", "checker")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with made_desk(tmp_path, "real") as made:
        for name in ("roles", "pods"):
            shutil.copytree(STARTER / name, made.pen.root / name, dirs_exist_ok=True)
        yield made


def script(secret: Path) -> str:
    """What each of them does: goes on with the note of those before it, and commits it."""
    command = (
        f"mkdir -p notes && echo $BULLPEN_ACTOR >> notes/bug.md && cat notes/bug.md"
        f" && (cat {secret} || echo walled) && git add notes"
        " && git -c user.name=Amy -c user.email=a@b.c commit -qm $BULLPEN_ACTOR"
    )
    return f"[[tool Bash {json.dumps({'command': command})} ; say It is in line 3.]]"


def test_p4_the_template_bugfix_works_as_it_is_shipped(desk: Desk, tmp_path: Path) -> None:
    repo = make_repo(desk.pen.root.parent / "shop")
    secret = tmp_path / "secret"
    secret.write_text("heron")
    prompt = f"Saving twice loses the second change. {script(secret)}"
    ran = desk.pen.cli("pod", "launch", "bugfix", "--prompt", prompt, cwd=repo)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("pod bugfix is running: finder, then fixer, then checker\n")

    def ends() -> list[str]:
        return [event["failed"] for event in desk.pen.events(kind="pod.finished")]

    def is_asked() -> bool:
        return "land checker (" in desk.pen.cli("approvals").out

    wait_until(lambda: is_asked() or bool(ends()), SECONDS)
    assert ends() == [], desk.pen.cli("history").out
    # Each began where the one before ended, and main is as it was. The role of the last denies
    # commits, in its sandbox, too.
    assert git(repo, "log", "--format=%s", "-2", "checker").split() == ["fixer", "finder"]
    assert git(repo, "show", "checker:notes/bug.md").split() == ["finder", "fixer"]
    assert git(repo, "log", "--format=%s", "-1", "main").strip() not in MEMBERS
    history = {task["agent"]: task for task in desk.pen.client().get("history")["items"]}
    assert {name: history[name]["state"] for name in MEMBERS} == dict.fromkeys(MEMBERS, "completed")
    told = [json.dumps(turn.body) for turn in desk.claude.model.turns]
    assert any("This is what finder said at the end" in body for body in told)
    assert any("walled" in body for body in told)  # the starter roles' sandbox
    assert not any("heron" in body for body in told)
    assert git(repo, "status", "--porcelain") == ""
    # The person allows it: it lands, and their checkout goes with it.
    for key, value in (("user.name", "Tess"), ("user.email", "tess@example.com")):
        git(repo, "config", key, value)
    assert desk.pen.cli("approve", "--all").code == 0
    wait_until(ends, SECONDS)
    assert ends() == [""], desk.pen.cli("inbox").out
    assert "landed on main as" in desk.pen.cli("inbox").out
    assert (repo / "notes" / "bug.md").read_text().split() == ["finder", "fixer"]
    assert git(repo, "status", "--porcelain") == ""
