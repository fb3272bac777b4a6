"""N3: the target moves, and a checkout of it goes along where nothing stands in the way."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Site, Spec, WorktreeError
from bullpen.worktrees.landing import fast_forward
from bullpen.worktrees.landing.checked_out import InTheWayError
from bullpen.worktrees.landing.fast_forward import TargetMovedError
from bullpen.worktrees.landing.move import move
from bullpen.worktrees.plain import find_tip
from tests.worktrees.landing.works import built, head_of, land, status, tree_of
from tests.worktrees.repos import assert_healthy, commit, git


def refused(site: Site, name: str = "amy") -> InTheWayError:
    """The landing is refused, and nothing of anybody's has changed."""
    root = site.repo.root
    assert root is not None
    result = built(site, name)
    before = (git(root, "for-each-ref"), status(root), git(root, "ls-files", "-s"))
    with pytest.raises(InTheWayError) as caught:
        move(site, "main", head_of(site, "main"), result.commit, "landed")
    assert (git(root, "for-each-ref"), status(root), git(root, "ls-files", "-s")) == before
    assert not list((root / ".git").glob("index.lock")) + list((root / ".git").glob("bullpen.*"))
    assert_healthy(site)
    return caught.value


def test_n3_a_target_that_is_checked_out_nowhere_just_moves(site: Site, repo: Path) -> None:
    git(repo, "branch", "staging")
    tree_of(site, "amy", a_txt="a\n")
    result, moved = land(site, "amy", target="staging")
    assert moved.checkout is None
    assert head_of(site, "staging") == result.commit
    assert status(repo) == ""
    assert "landed amy" in git(repo, "reflog", "-1", "staging")


def test_n3_the_checkout_is_fast_forwarded(site: Site, repo: Path) -> None:
    tree_of(site, "amy", a_txt="a\n", file0_txt="amy\n", deep__er_txt="d\n")
    path = site.base / "amy"
    git(path, "rm", "-q", "file1.txt")
    git(path, "commit", "-qm", "Drop")
    result, moved = land(site, "amy")
    assert moved.checkout == repo
    assert git(repo, "rev-parse", "HEAD") == result.commit
    assert git(repo, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert status(repo) == ""
    assert (repo / "file0.txt").read_text() == "amy\n"
    assert (repo / "deep" / "er.txt").exists() and not (repo / "file1.txt").exists()
    assert "landed amy" in git(repo, "reflog", "-1", "HEAD")
    assert_healthy(site)


def test_n3_a_checkout_that_has_the_target_by_another_name_goes_along(
    site: Site, repo: Path
) -> None:
    git(repo, "symbolic-ref", "refs/heads/alias", "refs/heads/main")
    git(repo, "symbolic-ref", "HEAD", "refs/heads/alias")
    tree_of(site, "amy", a_txt="a\n")
    result, moved = land(site, "amy")
    assert moved.checkout == repo
    assert (git(repo, "rev-parse", "main"), status(repo)) == (result.commit, "")


def test_n3_what_git_refuses_is_no_target_that_moved(site: Site) -> None:
    """Whoever is told that it moved tries again."""
    main = head_of(site, "main")
    with pytest.raises(WorktreeError) as caught:
        fast_forward.swap(site.repo, "refs/heads/main/", main, main, [], "landed")
    assert not isinstance(caught.value, TargetMovedError)


@pytest.mark.parametrize("name", ["main/", "./main", "main/.", "x/../main", "nobody"])
def test_n3_what_only_the_file_system_takes_for_a_branch_is_none(site: Site, name: str) -> None:
    assert find_tip(site.repo, f"refs/heads/{name}") is None


def test_n3_the_persons_other_work_stays_as_it_is(site: Site, repo: Path) -> None:
    tree_of(site, "amy", file0_txt="amy\n")
    (repo / ".gitignore").write_text("*.secret\n")
    (repo / "file1.txt").write_text("staged\n")
    git(repo, "add", "file1.txt", ".gitignore")
    (repo / "file1.txt").write_text("staged, and changed again\n")
    (repo / "file2.txt").write_text("changed\n")
    (repo / "new.txt").write_text("new\n")
    (repo / "my.secret").write_text("s\n")
    git(repo, "stash", "store", "-m", "mine", git(repo, "rev-parse", "HEAD"))
    before, staged = status(repo), git(repo, "diff", "--cached")
    land(site, "amy")
    assert status(repo) == before
    assert git(repo, "diff", "--cached") == staged
    assert (repo / "file1.txt").read_text() == "staged, and changed again\n"
    assert git(repo, "stash", "list").endswith("mine")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda repo: (repo / "file0.txt").write_text("mine\n"), "file0.txt"),
        (lambda repo: (repo / "file0.txt").unlink(), "file0.txt"),
        (lambda repo: (repo / "a.txt").write_text("mine\n"), "a.txt"),
        (lambda repo: (repo / "a.txt").mkdir() or (repo / "a.txt" / "x").write_text(""), "a.txt/x"),
        (lambda repo: (repo / "a.txt").symlink_to("nowhere"), "a.txt"),
        (lambda repo: (repo / "deep").write_text("mine\n"), "deep"),
        (lambda repo: (repo / "deep").symlink_to("."), "deep"),
        (lambda repo: git(repo, "rm", "-q", "--cached", "file0.txt"), "file0.txt"),
    ],
)
def test_n3_what_stands_in_the_way_is_named_and_kept(
    site: Site, repo: Path, spoil: Callable[[Path], object], named: str
) -> None:
    tree_of(site, "amy", file0_txt="amy\n", a_txt="a\n", deep__x_txt="d\n")
    spoil(repo)
    error = refused(site)
    assert named in error.files
    assert str(repo) in error.message and named in error.message


def test_n3_staged_changes_that_the_files_do_not_show_are_in_the_way(
    site: Site, repo: Path
) -> None:
    tree_of(site, "amy", file0_txt="amy\n")
    (repo / "file0.txt").write_text("staged\n")
    git(repo, "add", "file0.txt")
    (repo / "file0.txt").write_text("file 0\n")
    assert refused(site).files == ("file0.txt",)


def test_n3_a_change_that_git_was_told_not_to_see_is_in_the_way(site: Site, repo: Path) -> None:
    tree_of(site, "amy", file0_txt="amy\n")
    git(repo, "update-index", "--assume-unchanged", "file0.txt")
    (repo / "file0.txt").write_text("mine\n")
    assert refused(site).files == ("file0.txt",)
    assert (repo / "file0.txt").read_text() == "mine\n"


def test_n3_a_file_that_was_only_touched_is_not_in_the_way(site: Site, repo: Path) -> None:
    """Its time alone has changed, and its inode: `git read-tree` would refuse it."""
    tree_of(site, "amy", file0_txt="amy\n")
    (repo / "again").write_text("file 0\n")
    (repo / "again").rename(repo / "file0.txt")
    os.utime(repo / "file0.txt", (1, 1))
    land(site, "amy")
    assert (repo / "file0.txt").read_text() == "amy\n" and status(repo) == ""


def test_n3_a_change_that_neither_time_nor_size_tells_is_in_the_way(site: Site, repo: Path) -> None:
    file = repo / "file0.txt"
    os.utime(file, (1, 1))
    assert status(repo) == ""  # git has taken that time into its index
    git(repo, "config", "core.trustctime", "false")
    before = file.read_text()
    with file.open("r+") as same:
        same.write(before.upper())
    os.utime(file, (1, 1))
    assert status(repo) == ""  # so that it does not see the change
    tree_of(site, "amy", file0_txt="amy\n")
    assert refused(site).files == ("file0.txt",)
    file.write_text(before)
    land(site, "amy")
    assert file.read_text() == "amy\n" and status(repo) == ""


def test_n3_nothing_of_the_checkout_is_looked_at_but_what_lands(site: Site, repo: Path) -> None:
    (repo / "file1.txt").write_text("mine\n")
    (repo / "file2.txt").unlink()
    (repo / "new").write_text("mine\n")
    tree_of(site, "amy", file0_txt="amy\n", other_txt="amy\n")
    land(site, "amy")
    assert (repo / "file0.txt").read_text() == (repo / "other.txt").read_text() == "amy\n"
    assert status(repo).split() == ["M", "file1.txt", "D", "file2.txt", "??", "new"]


def test_n3_ignored_files_count(site: Site, repo: Path) -> None:
    """`git merge --ff-only` overwrites them in silence: shown here, too."""
    commit(repo, ".gitignore", ".env\nbuild/\n")
    path = tree_of(site, "amy")
    for name in (".env", "build/out"):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text("the agent's\n")
        git(path, "add", "-f", name)
    git(path, "commit", "-qm", "Add by force")
    (repo / ".env").write_text("SECRET=1\n")
    (repo / "build").mkdir()
    (repo / "build" / "out").write_text("mine\n")
    assert set(refused(site).files) == {".env", "build/out"}
    assert (repo / ".env").read_text() == "SECRET=1\n"
    git(repo, "merge", "-q", "--ff-only", "amy")
    assert (repo / ".env").read_text() == "the agent's\n", "that is why we look ourselves"


@pytest.mark.slow
def test_n3_a_directory_that_becomes_a_file_and_back(site: Site, repo: Path) -> None:
    commit(repo, "x/y/z.txt")
    path = tree_of(site, "amy")
    git(path, "rm", "-rq", "x")
    commit(path, "x", "now a file\n")
    land(site, "amy")
    assert (repo / "x").read_text() == "now a file\n"
    git(path, "rm", "-q", "x")
    commit(path, "x/again.txt")
    land(site, "amy")
    assert (repo / "x" / "again.txt").exists()
    assert status(repo) == ""
    (repo / "x" / "mine.txt").write_text("mine\n")
    git(path, "rm", "-rq", "x")
    commit(path, "x", "file again\n")
    assert refused(site).files == ("x/mine.txt",)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["merge", "rebase", "bisect", "cherry-pick"])
def test_n3_a_tree_in_the_middle_of_something_is_refused(site: Site, repo: Path, what: str) -> None:
    git(repo, "switch", "-qc", "side")
    commit(repo, "file0.txt", "side\n")
    git(repo, "switch", "-q", "main")
    commit(repo, "file0.txt", "main\n")
    tree_of(site, "amy", a_txt="a\n")
    match what:
        case "bisect":
            git(repo, "bisect", "start")
        case "rebase":
            git(repo, "rebase", "side", check=False)
        case _:
            git(repo, what, "side", check=False)
    result = built(site, "amy")
    before = git(repo, "for-each-ref"), status(repo)
    with pytest.raises(InTheWayError) as caught:
        move(site, "main", head_of(site, "main"), result.commit, "landed")
    assert f"in the middle of a {what}" in caught.value.message
    assert (git(repo, "for-each-ref"), status(repo)) == before


def test_n3_a_target_that_moved_meanwhile_is_not_moved(site: Site, repo: Path) -> None:
    tree_of(site, "amy", a_txt="a\n")
    git(repo, "branch", "staging")
    for target in ("main", "staging"):
        old, result = head_of(site, target), built(site, "amy", target=target)
        if target == "main":
            new = commit(repo, "b.txt")
        else:
            git(repo, "branch", "-f", "staging", new)
        with pytest.raises(TargetMovedError):
            move(site, target, old, result.commit, "landed")
        assert head_of(site, target) == new
        assert status(repo) == ""
    assert_healthy(site)


@pytest.mark.slow
def test_n3_a_ref_that_moves_while_the_files_are_written_takes_them_back(
    site: Site, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree_of(site, "amy", a_txt="a\n", file0_txt="amy\n")
    old, result = head_of(site, "main"), built(site, "amy")
    git(repo, "commit-tree", "-m", "x", f"{old}^{{tree}}")
    other = git(repo, "commit-tree", "-m", "x", "-p", old, f"{old}^{{tree}}")
    real = fast_forward.swap

    def swap(*args: object, **options: object) -> None:
        git(repo, "update-ref", "refs/heads/main", other)
        real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(fast_forward, "swap", swap)
    with pytest.raises(TargetMovedError):
        move(site, "main", old, result.commit, "landed")
    assert head_of(site, "main") == other
    assert status(repo) == ""
    assert not (repo / "a.txt").exists()
    assert (repo / "file0.txt").read_text() == "file 0\n"
    assert_healthy(site)


@pytest.mark.slow
def test_n3_another_git_at_work_there_is_waited_for_and_then_refused(
    site: Site, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree_of(site, "amy", a_txt="a\n")
    result = built(site, "amy")
    lock = repo / ".git" / "index.lock"
    lock.write_text("")
    monkeypatch.setattr(fast_forward, "LOCK_SECONDS", 0.2)
    with pytest.raises(InTheWayError) as caught:
        move(site, "main", head_of(site, "main"), result.commit, "landed")
    assert "index.lock" in caught.value.message
    assert lock.exists(), "it is not ours"
    lock.unlink()
    land(site, "amy")
    assert status(repo) == ""


@pytest.mark.slow
def test_n3_the_checkout_may_be_a_linked_worktree(site: Site, repo: Path, tmp_path: Path) -> None:
    git(repo, "branch", "staging")
    other = tmp_path / "other place"
    git(repo, "worktree", "add", "-q", str(other), "staging")
    tree_of(site, "amy", a_txt="a\n")
    _, moved = land(site, "amy", target="staging")
    assert moved.checkout == other
    assert (other / "a.txt").exists() and status(other) == "" == status(repo)


@pytest.mark.slow
def test_n3_the_site_may_be_opened_by_its_git_directory(site: Site, repo: Path) -> None:
    """As the hub does it: it knows the common directory of an agent's repository."""
    tree_of(site, "amy", a_txt="a\n")
    bare = worktrees.open_site(site.repo.common_dir, site.base)
    assert bare.repo.root is None
    result = built(site, "amy")
    moved = move(bare, "main", head_of(site, "main"), result.commit, "landed")
    assert moved.checkout == repo and (repo / "a.txt").exists() and status(repo) == ""


@pytest.mark.slow
def test_n3_a_bare_repository_lands(tmp_path: Path, repo: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(repo), "bare")
    site = worktrees.open_site(tmp_path / "bare", tmp_path / "base2")
    tree_of(site, "amy", a_txt="a\n")
    result, moved = land(site, "amy")
    assert moved.checkout is None and head_of(site, "main") == result.commit


@pytest.mark.slow
def test_n3_odd_names_land(site: Site, repo: Path) -> None:
    names = ["a b.txt", "tab\there", "new\nline", "quote\"'", "-dash", "ünï", "a\\b", "$(x)", "*"]
    path = tree_of(site, "amy")
    for name in names:
        (path / name).write_text(name)
    git(path, "add", "-A")
    git(path, "commit", "-qm", "Odd")
    land(site, "amy")
    assert all((repo / name).read_text() == name for name in names)
    for name in names:
        (path / name).write_text(name * 2)
    git(path, "commit", "-qam", "Odder")
    (repo / "new\nline").write_text("mine")
    assert refused(site).files == ("new\nline",)


@pytest.mark.slow
def test_n3_links_modes_and_submodules_land(site: Site, repo: Path) -> None:
    path = tree_of(site, "amy")
    (path / "link").symlink_to("file0.txt")
    (path / "run.sh").write_text("#!/bin/sh\n")
    (path / "run.sh").chmod(0o755)
    git(path, "add", "-A")
    git(path, "update-index", "--add", "--cacheinfo", f"160000,{head_of(site, 'main')},sub")
    git(path, "commit", "-qm", "Kinds")
    land(site, "amy")
    assert (repo / "link").readlink() == Path("file0.txt")
    assert (repo / "run.sh").stat().st_mode & 0o100
    assert (repo / "sub").is_dir()
    assert git(repo, "diff", "--cached") == ""


@pytest.mark.slow
def test_n3_filters_that_only_the_agent_configured_do_not_run(
    site: Site, repo: Path, tmp_path: Path
) -> None:
    path = tree_of(site, "amy")
    mark = tmp_path / "ran"
    git(path, "config", "extensions.worktreeConfig", "true")
    git(path, "config", "--worktree", "filter.evil.smudge", f"touch {mark}; cat")
    git(path, "config", "--worktree", "filter.evil.clean", f"touch {mark}; cat")
    git(path, "config", "--worktree", "merge.evil.driver", f"touch {mark}; cat")
    commit(path, ".gitattributes", "* filter=evil merge=evil diff=evil\n")
    commit(path, "x.txt", "x\n")
    mark.unlink(missing_ok=True)
    commit(repo, "file1.txt", "main\n")
    land(site, "amy")
    assert not mark.exists() and (repo / "x.txt").read_text() == "x\n"


@pytest.mark.slow
def test_n3_a_sparse_checkout_stays_sparse(site: Site, repo: Path) -> None:
    commit(repo, "in/a.txt")
    commit(repo, "out/b.txt")
    path = tree_of(site, "amy")
    git(repo, "sparse-checkout", "set", "in")
    assert not (repo / "out").exists()
    commit(path, "out/b.txt", "changed\n")
    commit(path, "in/c.txt")
    land(site, "amy")
    assert (repo / "in" / "c.txt").exists() and not (repo / "out").exists()
    assert git(repo, "status", "--porcelain") == ""


@pytest.mark.slow
def test_w2_worktrees_are_made_after_a_landing_as_before(site: Site) -> None:
    tree_of(site, "amy", a_txt="a\n")
    land(site, "amy")
    worktrees.create(site, Spec("bob"))
    assert worktrees.remove(site, "amy").branch == "amy", "its branch is merged: it goes"
    assert_healthy(site)
