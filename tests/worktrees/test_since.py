"""What was done in a checkout since a commit, whatever lies in it."""

import os
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Spec
from bullpen.worktrees.since import CUT, MOST_DIFF_BYTES, head_of, look_at, since, snapshot
from tests.worktrees.repos import commit, git, make_repo


def test_a_main_checkout_and_a_linked_one(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    site = worktrees.open_site(repo, tmp_path / "trees")
    tree = worktrees.create(site, Spec("amy"))
    main, linked = look_at(repo), look_at(tree)
    assert main is not None
    assert linked is not None
    assert (main.is_main, linked.is_main) == (True, False)
    assert head_of(main) == head_of(linked) == git(repo, "rev-parse", "HEAD")
    base = head_of(linked)
    commit(tree, "a", "one\n", "Subject \x1b[31m\xff".encode("latin-1").decode("latin-1"))
    (tree / "b").write_text("two\n")
    found = since(linked, base)
    assert [line.partition(" ")[2].startswith("Subject  [31m") for line in found.commits] == [True]
    assert "+one" in found.diff
    assert "+two" in found.diff
    assert since(main, base).commits == ()
    assert look_at(tmp_path) is None
    (repo / "inner").mkdir()
    assert look_at(repo / "inner") is None


def test_what_was_changed_before_is_not_what_was_done_since(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo: odd")
    looked = look_at(repo)
    assert looked is not None
    base, objects = head_of(looked), tmp_path / "its: own"
    assert snapshot(looked, objects) == ""
    assert not objects.exists()
    (repo / "file0.txt").write_text("early\n")
    assert since(looked, base, "", objects).diff.startswith("diff --git"), "no words of git's"
    (repo / "file1.txt").unlink()
    for name in ("new, left", "new, changed", "new, removed", "new, added"):
        (repo / name).write_text(f"{name}\n")
    before = git(repo, "status", "--porcelain"), sorted((repo / ".git").rglob("*"))
    tree = snapshot(looked, objects)
    assert (git(repo, "status", "--porcelain"), sorted((repo / ".git").rglob("*"))) == before
    assert since(looked, base, tree, objects).diff == ""
    (repo / "new, changed").write_text("late\n")
    (repo / "new, removed").unlink()
    git(repo, "add", "new, added")
    (repo / "file1.txt").write_text("back\n")
    (repo / "file2.txt").write_text("late, too\n")
    lines = since(looked, base, tree, objects).diff.splitlines()
    changes = {line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")}
    assert changes == {
        *("-new, changed", "+late", "-new, removed", "+back", "-file 2", "+late, too"),
    }
    commit(repo, "file0.txt", "early\n")  # what was there, committed: nothing of it is new
    assert "early" not in since(looked, base, tree, objects).diff


def test_before_the_first_commit_there_is_no_head(tmp_path: Path) -> None:
    place = tmp_path / "new"
    place.mkdir()
    git(place, "init", "-q")
    looked = look_at(place)
    assert looked is not None
    assert head_of(looked) == ""


def test_a_git_file_that_leads_to_another_s_worktree_is_not_believed(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    site = worktrees.open_site(repo, tmp_path / "trees")
    tree = worktrees.create(site, Spec("amy"))
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / ".git").write_bytes((tree / ".git").read_bytes())
    # Git itself takes it for one.
    assert git(planted, "rev-parse", "--show-toplevel") == str(planted)
    assert look_at(planted) is None
    assert look_at(tree) is not None


def test_x5_what_an_agent_wrote_does_not_lead_to_another_repository(tmp_path: Path) -> None:
    """It would be shown to the agent, and parts of it could be written."""
    theirs = make_repo(tmp_path / "theirs") / ".git"
    planted = tmp_path / "planted"
    admin = planted / "admin"
    admin.mkdir(parents=True)
    for name, line in {
        "HEAD": "ref: refs/heads/x",
        "gitdir": planted / ".git",
        "commondir": theirs,
    }.items():
        (admin / name).write_text(f"{line}\n")
    for target in (admin, theirs):
        (planted / ".git").write_text(f"gitdir: {target}\n")
        assert git(planted, "rev-parse", "--git-common-dir") == str(theirs)  # git believes it
        assert look_at(planted) is None
    (planted / ".git").unlink()
    (planted / ".git").symlink_to(theirs)
    assert look_at(planted) is None


def test_x5_a_repository_in_its_own_worktree_is_the_agents_own(tmp_path: Path) -> None:
    """Git run there would run what its configuration says."""
    tree = tmp_path / "tree"
    tree.mkdir()
    git(tmp_path, "init", "-q", "--bare", str(tree / "common"))
    admin = tree / "common" / "worktrees" / "x"
    admin.mkdir(parents=True)
    for name, line in {
        "HEAD": "ref: refs/heads/x",
        "gitdir": tree / ".git",
        "commondir": "../..",
    }.items():
        (admin / name).write_text(f"{line}\n")
    (tree / ".git").write_text(f"gitdir: {admin}\n")
    assert git(tree, "rev-parse", "--git-common-dir") == str(tree / "common")
    assert look_at(tree) is None


def test_a_submodule_is_a_checkout_of_its_own(tmp_path: Path) -> None:
    repo, part = make_repo(tmp_path / "repo"), make_repo(tmp_path / "part")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(part), "part")
    looked = look_at(repo / "part")
    assert looked is not None
    assert looked.is_main
    assert looked.repo.git_dir == repo / ".git" / "modules" / "part"


@pytest.mark.parametrize("subject", [b"\xff\xfe", "ß\u2028".encode(), b"\x07\x1b]0;x\x07"])
def test_subjects_of_any_bytes_can_be_kept_and_shown(tmp_path: Path, subject: bytes) -> None:
    repo = make_repo(tmp_path / "repo")
    looked = look_at(repo)
    assert looked is not None
    base = head_of(looked)
    message = tmp_path / "message"
    message.write_bytes(b"S" + subject)
    git(
        repo, "-c", "i18n.commitEncoding=utf-8", "commit", "-q", "--allow-empty", "-F", str(message)
    )
    (line,) = since(looked, base).commits
    line.encode()  # no half surrogates
    assert line.isprintable()


def test_too_much_is_cut_off(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    looked = look_at(repo)
    assert looked is not None
    base = head_of(looked)
    for number in range(8):
        (repo / f"many{number}").write_text("line\n" * 100_000)
    found = since(looked, base)
    assert found.diff.endswith(CUT)
    assert len(found.diff) == MOST_DIFF_BYTES + len(CUT)


def test_one_large_file_says_only_that_it_changed(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    looked = look_at(repo)
    assert looked is not None
    (repo / "large").write_text("line\n" * 1_000_000)
    os.truncate(repo / "file0.txt", 5 << 30)
    base = head_of(looked)
    diff = since(looked, base).diff
    assert diff == "# changed, and not shown:\n#   file0.txt\n#   large\n"
    # What was large before is not read, either.
    git(repo, "add", "large")
    git(repo, "commit", "-qm", "Large", "--", "large")
    base = head_of(looked)
    (repo / "large").unlink()
    (repo / "file0.txt").unlink()
    diff = since(looked, base).diff
    assert "Binary files a/large and /dev/null differ" in diff
    assert len(diff) < 1000


def test_odd_files_neither_hang_nor_fail(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    looked = look_at(repo)
    assert looked is not None
    base = head_of(looked)
    (repo / "file0.txt").unlink()
    os.mkfifo(repo / "file0.txt")
    os.mkfifo(repo / "pipe")
    (repo / "loop").symlink_to("loop")
    (repo / "new").write_text("kept\n")
    (repo / os.fsdecode(b"\xff\nname")).write_text("odd\n")
    found = since(looked, base)
    assert "+kept" in found.diff
    assert "+odd" in found.diff
    assert "# changed, and not shown:\n#   file0.txt" in found.diff
    assert list(tmp_path.glob("repo/.git/index.lock")) == []
    assert git(repo, "ls-files") == "file0.txt\nfile1.txt\nfile2.txt"


def test_many_files_are_counted(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    looked = look_at(repo)
    assert looked is not None
    for number in range(1500):
        (repo / f"{number:04}").touch()
    found = since(looked, head_of(looked)).diff
    assert found.count("diff --git") == 1000
    assert found.endswith("#   1099\n#   and 400 more\n")


def test_a_pattern_as_a_name_is_a_name(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    looked = look_at(repo)
    assert looked is not None
    (repo / ":(exclude)*").write_text("one\n")
    (repo / "-u").write_text("two\n")
    found = since(looked, head_of(looked)).diff
    assert "+one" in found
    assert "+two" in found
