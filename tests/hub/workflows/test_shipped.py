"""The shipped templates with the shipped roles: from `pod launch` to a landed branch."""

import json
import shutil
from pathlib import Path

import pytest

from tests.engines.team import made_team
from tests.homes import STARTER
from tests.hub.pen import Pen
from tests.hub.tasks.desk import ROOT, SECONDS, made_desk
from tests.hub.workflows.sequences import WHO
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow

ROLES = ("researcher", "coder", "developer", "reviewer")
# What each agent does: whoever reviews changes nothing.
WORK = f"""
case $BULLPEN_ACTOR in *checker|*reviewer) exit 0;; esac
mkdir -p notes && echo hello > notes/$BULLPEN_ACTOR.md && git add notes
{WHO} commit -qm "Work of $BULLPEN_ACTOR"
"""
PROMPT = f"[[tool Bash {json.dumps({'command': 'sh work.sh'})} ; say Done.]]"


def furnish(pen: Pen, program: Path) -> Path:
    """The starter roles, allowed to run one script of the project; and the project."""
    for folder in ("roles", "pods"):
        shutil.copytree(STARTER / folder, pen.root / folder, dirs_exist_ok=True)
    for name in ROLES:
        path = pen.root / "roles" / f"{name}.yaml"
        text = path.read_text().replace("  allow:\n", "  allow:\n    - Bash(sh work.sh)\n", 1)
        # The stand-in and its Python are installed where the tests are.
        shown = json.dumps([str(ROOT), str(program.parent)])[1:-1]
        if "\n  read_only_paths: [.]\n" in text:
            text = text.replace("[.]", f"[., {shown}]")
        else:
            text += f"\nsandbox:\n  read_only_paths: [{shown}]\n"
        path.write_text(text)
    repo = make_repo(pen.root.parent / "shop")
    git(repo, "config", "user.name", "Tess")
    git(repo, "config", "user.email", "tess@example.com")
    commit(repo, "work.sh", WORK)
    return repo


def work(repo: Path) -> list[str]:
    subjects = git(repo, "log", "--format=%s", "--no-merges", "main").split("\n")
    return sorted(subject for subject in subjects if subject.startswith("Work of"))


def is_asked(pen: Pen) -> bool:
    return "land checker (" in pen.cli("approvals").out


@pytest.mark.storm
def test_p4_bugfix_from_a_prompt_to_a_landed_branch(tmp_path: Path) -> None:
    """In sandboxes, as tasks are; the person allows the landing. With the real Claude Code:
    `tests/engines/test_bugfix.py`."""
    with made_desk(tmp_path) as desk:
        repo = furnish(desk.pen, desk.claude.program)
        ran = desk.pen.cli("pod", "launch", "bugfix", "--prompt", PROMPT, cwd=repo)
        assert ran.code == 0, ran
        assert ran.out.startswith("pod bugfix is running: finder, then fixer, then checker\n")
        assert ran.out.endswith("\nat its end you are asked whether it lands in main\n")
        wait_until(
            lambda: is_asked(desk.pen) or "stopped" in desk.pen.cli("inbox").out, 3 * SECONDS
        )
        assert is_asked(desk.pen), desk.pen.cli("inbox").out
        assert work(repo) == []
        assert "bullpen diff checker --against main" in desk.pen.cli("approvals").out
        looked = desk.pen.cli("diff", "checker", "--against", "main", "--stat", cwd=repo)
        files = [line.split()[0] for line in looked.out.splitlines()[:2]]
        assert files == ["notes/finder.md", "notes/fixer.md"]
        ran = desk.pen.cli("approve", "--all")
        assert ran.code == 0, ran
        wait_until(lambda: "pod bugfix is finished" in desk.pen.cli("inbox").out, SECONDS)
        assert "landed on main as" in desk.pen.cli("inbox").out
        assert work(repo) == ["Work of finder", "Work of fixer"]
        assert (repo / "notes" / "fixer.md").read_text() == "hello\n"


@pytest.mark.parametrize("kind", ["standin", pytest.param("real", marks=pytest.mark.storm)])
def test_p4_feature_from_a_prompt_to_a_landed_branch(tmp_path: Path, kind: str) -> None:
    """In terminals, all at once; the person lands what the developer made."""
    with made_team(tmp_path, kind) as team:
        repo = furnish(team.pen, team.claude.program)
        ran = team.pen.cli("pod", "launch", "feature", "--prompt", PROMPT, cwd=repo)
        assert ran.code == 0, ran
        last = ("log", "-1", "--format=%s", "developer")
        wait_until(lambda: git(repo, *last) == "Work of developer", 3 * SECONDS)
        wait_until(lambda: team.pen.state("developer") == "idle", SECONDS)
        ran = team.pen.cli("land", "developer", cwd=repo)
        assert ran.code == 0, ran
        assert work(repo) == ["Work of developer"]
        assert (repo / "notes" / "developer.md").exists()
