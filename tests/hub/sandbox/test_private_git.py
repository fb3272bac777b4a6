"""Agents with a git of their own under a real hub: when their work is there for others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.worktrees.git import open_repository
from bullpen.worktrees.private.store import stores_of
from tests.hub.pen import Pen
from tests.waiting import wait_until
from tests.worktrees.repos import git, make_repo

pytestmark = pytest.mark.slow

ROLE = """\
name: worker
agent_type: command
command: ["/bin/sh", "-c", "{script}"]
worktree: {{enabled: true, branch_from: main}}
sandbox: {{enabled: true, allow_network: true}}
"""
COMMIT = "echo {0} >{0}; git add {0}; git commit -qm {0};"
# Does what it is told by files, so that a test has it in its hands.
OBEY = "while :; do for f in do-*; do [ -f $f ] && sh $f && rm $f; done; sleep 0.05; done"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    path = make_repo(tmp_path / "repo")
    git(path, "config", "user.name", "Amy")
    git(path, "config", "user.email", "amy@example.com")
    return path


@pytest.fixture
def pen(tidy: Pen) -> Iterator[Pen]:
    yield tidy


def start(pen: Pen, repo: Path, script: str, name: str = "amy") -> Path:
    (pen.root / "roles" / "worker.yaml").write_text(ROLE.format(script=script))
    started = pen.run(words=[], role="worker", name=name, cwd=str(repo))
    return Path(started["worktree"]["path"])


def tell(tree: Path, script: str) -> None:
    """Have the agent do that, and wait until it has."""
    aside = tree / ".todo"
    aside.write_text(script)
    aside.rename(tree / "do-it")
    wait_until(lambda: not (tree / "do-it").exists())


def subjects(repo: Path, ref: str) -> list[str]:
    return git(repo, "log", "--format=%s", ref, "--").splitlines()


@pytest.mark.storm
def test_x7_a_commit_is_outside_soon_and_everything_at_the_end(pen: Pen, repo: Path) -> None:
    tree = start(pen, repo, OBEY)
    tell(tree, COMMIT.format("one"))
    wait_until(lambda: subjects(repo, "amy")[0] == "one")
    tell(tree, COMMIT.format("two"))
    wait_until(lambda: subjects(repo, "amy")[0] == "two")
    # No commit of HEAD's: at the end.
    tell(tree, "git branch -q side $(git commit-tree -m side -p HEAD HEAD^{tree})")
    pen.stop("amy")
    assert subjects(repo, "refs/bullpen/in/amy/heads/side")[0] == "side"
    assert stores_of(open_repository(repo))  # its side branch is in there alone
    assert "side" in pen.cli("worktree", "remove", "amy", "--repo", str(repo)).err


def test_x7_a_commit_of_just_now_is_in_the_list_of_worktrees(pen: Pen, repo: Path) -> None:
    tree = start(pen, repo, OBEY, "joy")
    tell(tree, COMMIT.format("one"))
    asked = f"/worktrees?repo={repo}"
    [joy] = pen.ask("GET", asked)[1]["worktrees"]
    assert (joy["name"], joy["ahead"], joy["changes"]) == ("joy", 1, [])
    # What cannot be brought over is told: finished text has no room for it, the command does.
    [store] = stores_of(open_repository(repo))
    state = store.directory / "state.json"
    aside = state.rename(store.directory / "aside")
    state.write_text("{")
    try:
        assert list(pen.ask("GET", asked)[1]["not_brought_over"]) == ["joy"]
        assert pen.ask("GET", f"{asked}&text=1")[0] == 409
        ran = pen.cli("worktree", "list", "--repo", repo)
    finally:
        aside.rename(state)
    assert ran.code == 0 and "joy: its commits were not brought over" in ran.err
    pen.stop("joy")


def test_x7_its_store_is_cleared_after_an_ordinary_life(pen: Pen, repo: Path) -> None:
    tree = start(pen, repo, COMMIT.format("one") + "sleep 1000000", "bea")
    wait_until(lambda: subjects(repo, "bea")[0] == "one")
    pen.stop("bea")
    wait_until(lambda: not stores_of(open_repository(repo)))
    assert git(repo, "for-each-ref", "refs/bullpen/in") == ""
    assert git(repo, "fsck", "--no-dangling") == ""
    assert git(tree, "status", "--porcelain") == ""


@pytest.mark.storm
def test_x7_a_branch_that_was_renamed_outside_has_its_new_name_in_the_list(
    pen: Pen, repo: Path
) -> None:
    tree = start(pen, repo, OBEY, "ines")
    tell(tree, COMMIT.format("one"))
    wait_until(lambda: subjects(repo, "ines")[0] == "one")
    git(repo, "branch", "-m", "ines", "feature")
    tell(tree, COMMIT.format("two"))
    wait_until(lambda: subjects(repo, "feature")[0] == "two")

    def shown() -> str:
        return str(pen.client().get("agents", "ines")["birth_branch"])

    wait_until(lambda: shown() == "feature")
    pen.kill_hub()
    pen.start()
    wait_until(lambda: shown() == "feature")
    pen.stop("ines")
    assert pen.cli("restart", "ines").code == 0
    assert shown() == "feature"
    assert git(repo, "branch", "--list", "ines") == ""
    pen.stop("ines")


@pytest.mark.storm
def test_x7_what_was_committed_while_there_was_no_hub(pen: Pen, repo: Path) -> None:
    tree = start(pen, repo, OBEY, "cleo")
    pen.kill_hub()
    tell(tree, COMMIT.format("one"))
    pen.start()
    wait_until(lambda: subjects(repo, "cleo")[0] == "one")
    tell(tree, COMMIT.format("two"))
    wait_until(lambda: subjects(repo, "cleo")[0] == "two")
    pen.stop("cleo")


def test_x7_refs_outside_come_in_while_a_plain_command_runs(pen: Pen, repo: Path) -> None:
    """It has no turns, at whose ends they would."""
    tree = start(pen, repo, OBEY, "fred")
    git(repo, "branch", "fresh")
    tell(tree, COMMIT.format("one"))

    def sees_it() -> bool:
        tell(tree, "git branch --list fresh >seen")
        return (tree / "seen").read_text().strip() == "fresh"

    wait_until(sees_it)
    pen.stop("fred")


@pytest.mark.storm
def test_x7_a_hub_that_is_killed_in_the_middle_of_a_bring_over(pen: Pen, repo: Path) -> None:
    tree = start(pen, repo, OBEY, "hal")
    pinned = repo / ".git" / "refs" / "bullpen" / "in" / "hal" / "HEAD"
    was = pinned.read_text() if pinned.exists() else ""
    tell(tree, COMMIT.format("one"))
    wait_until(lambda: pinned.exists() and pinned.read_text() != was)
    pen.kill_hub()
    tell(tree, COMMIT.format("two"))
    pen.start()
    wait_until(lambda: subjects(repo, "hal")[0] == "two")
    tell(tree, COMMIT.format("three"))
    wait_until(lambda: subjects(repo, "hal")[0] == "three")
    pen.stop("hal")
    assert git(repo, "fsck", "--no-dangling") == ""
    assert git(tree, "status", "--porcelain", "-uno") == ""


@pytest.mark.storm
def test_x7_list_says_where_it_is_and_the_agent_is_told(pen: Pen, repo: Path) -> None:
    tree = start(pen, repo, OBEY, "dora")
    tell(tree, COMMIT.format("one"))
    wait_until(lambda: subjects(repo, "dora")[0] == "one")
    tree_id = git(repo, "rev-parse", "dora^{tree}").strip()
    theirs = git(repo, "commit-tree", "-m", "Theirs", "-p", "dora", tree_id).strip()
    git(repo, "update-ref", "refs/heads/dora", theirs)
    tell(tree, COMMIT.format("two"))
    wait_until(lambda: "dora (diverged)" in pen.cli("list").out)
    assert git(repo, "rev-parse", "dora").strip() == theirs
    assert "diverged" in pen.cli("explain", "dora").out
    wait_until(lambda: bool(pen.events("dora", "git.news")))
    wait_until(lambda: bool(pen.events("dora", "message.sent")))
    tell(tree, "git merge -q -m Merged refs/bullpen/outside/dora")
    wait_until(lambda: subjects(repo, "dora")[0] == "Merged")
    tell(tree, "git checkout -q -b feature/login")
    wait_until(lambda: "dora (on feature/login)" in pen.cli("list").out)
    assert pen.ask("GET", "/agents/dora/diff")[1]["where"] == "on feature/login"
    assert "none (on feature/login)" in pen.cli("worktree", "info", "dora", "--repo", str(repo)).out
    tell(tree, "git checkout -q --detach")
    wait_until(lambda: "dora (detached)" in pen.cli("list").out)
    assert pen.ask("GET", "/agents/dora/diff")[1]["where"] == "detached"
    assert "none (detached)" in pen.cli("worktree", "info", "dora", "--repo", str(repo)).out
    pen.stop("dora")


def test_x5_a_rebase_that_was_taken_away_is_told(pen: Pen, repo: Path) -> None:
    """Of one that has no git of its own: here, one that may not write."""
    role = ROLE.format(script="sleep 1000000")
    role = role.replace("allow_network: true", "allow_network: true, read_only_paths: [.]")
    (pen.root / "roles" / "worker.yaml").write_text(role)
    tree = Path(pen.run(words=[], role="worker", name="gil", cwd=str(repo))["worktree"]["path"])
    admin = Path(git(tree, "rev-parse", "--absolute-git-dir"))
    (admin / "rebase-merge").mkdir()
    (admin / "rebase-merge" / "git-rebase-todo").write_text("exec make\n")
    pen.stop("gil")
    wait_until(lambda: bool(pen.events("gil", "git.news")))
    (event,) = pen.events("gil", "git.news")
    assert "a half-done rebase that runs commands was taken away" in str(event)
    assert not (admin / "rebase-merge").exists()


def hub_size(pen: Pen) -> dict[str, int]:
    process = Path("/proc", str(pen.pid))
    status = (process / "status").read_text()
    return {
        "descriptors": len(list((process / "fd").iterdir())),
        "kilobytes": int(status.partition("VmRSS:")[2].split()[0]),
        "database": sum(path.stat().st_size for path in pen.root.glob("state.db*")),
    }


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.storm)])
@pytest.mark.storm
def test_x7_one_that_commits_as_fast_as_it_can(pen: Pen, repo: Path, count: int) -> None:
    script = "i=0; while [ $i -lt %d ]; do i=$((i+1)); echo $i >file; git add file;"
    script += " git commit -qm $i; done"
    name = f"fast{count}"
    before = hub_size(pen)
    tree = start(pen, repo, script % count, name)
    wait_until(lambda: pen.state(name) == "exited (0)", 300)
    wait_until(lambda: not stores_of(open_repository(repo)))
    # Nothing of it stays in the hub: descriptors, memory, events.
    wait_until(lambda: hub_size(pen)["descriptors"] <= before["descriptors"] + 3)
    after = hub_size(pen)
    assert after["kilobytes"] < before["kilobytes"] + 50_000
    assert after["database"] < before["database"] + 1_000_000
    assert git(repo, "rev-list", "--count", f"main..{name}").strip() == str(count)
    assert git(repo, "fsck", "--no-dangling") == ""
    assert git(tree, "status", "--porcelain") == ""
    assert git(repo, "for-each-ref", "refs/bullpen") == ""
    # Its objects are packed; nothing else is left of it.
    counted = dict(line.split(": ") for line in git(repo, "count-objects", "-v").splitlines())
    assert int(counted["count"]) == 0
    assert int(counted["in-pack"]) < 3 * count + 50
    assert int(counted["garbage"]) == 0
