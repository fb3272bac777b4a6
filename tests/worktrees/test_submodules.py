"""Submodules of worktrees: there from the beginning, and no reason against a removal."""

from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Site, Spec
from bullpen.worktrees.submodules import NAME, resolve_url
from tests.worktrees.repos import commit, git, make_repo

ALLOW = ("-c", "protocol.file.allow=always")


def add_submodule(repo: Path, library: Path, name: str = "lib") -> None:
    git(repo, *ALLOW, "submodule", "add", "-q", str(library), name)
    git(repo, "commit", "-qm", f"Add {name}")


def test_x7_submodules_are_initialised_when_a_worktree_is_made(
    site: Site, repo: Path, tmp_path: Path
) -> None:
    inner, library = make_repo(tmp_path / "inner"), make_repo(tmp_path / "library")
    add_submodule(library, inner, "deep/inner")
    add_submodule(repo, library)
    git(repo, *ALLOW, "submodule", "update", "-q", "--init", "--recursive")
    path = worktrees.create(site, Spec("amy"))
    assert git(path / "lib", "rev-parse", "HEAD") == git(library, "rev-parse", "HEAD")
    assert (path / "lib" / "file0.txt").read_text()
    assert (path / "lib" / "deep" / "inner" / "file0.txt").read_text()
    assert git(path, "status", "--porcelain") == ""
    assert git(path / "lib", "remote", "get-url", "origin") == str(library)
    assert worktrees.remove(site, "amy").branch == "amy"


@pytest.mark.slow
def test_x7_submodules_come_from_where_the_person_has_them_from_and_nowhere_else(
    site: Site, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent writes `.gitmodules`, and would be given another repository of the person."""
    config = tmp_path / "gitconfig"
    config.write_text('[protocol "file"]\n\tallow = always\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    library, secret = make_repo(tmp_path / "library"), make_repo(tmp_path / "secret")
    add_submodule(repo, library)
    (repo / ".git" / "modules").rename(tmp_path / "gone")
    path = worktrees.create(site, Spec("amy"))
    assert (path / "lib" / "file0.txt").exists()
    git(repo, "checkout", "-q", "-b", "theirs")
    add_submodule(repo, secret, "loot")
    git(repo, "checkout", "-q", "main")
    (repo / ".git" / "modules").rename(tmp_path / "also-gone")
    git(repo, "config", "--remove-section", "submodule.loot")
    path = worktrees.create(site, Spec("bob", base="theirs"))
    assert (path / "lib" / "file0.txt").exists()
    assert list((path / "loot").iterdir()) == []
    assert git(path, "status", "--porcelain") == ""
    git(repo, "merge", "-q", "theirs")
    path = worktrees.create(site, Spec("cat"))
    assert list((path / "loot").iterdir()) == [], "merged is not initialised"


@pytest.mark.slow
def test_x7_a_commit_of_a_submodule_that_was_fetched_by_its_id_is_no_work(
    site: Site, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No branch of its remote has it: that alone must not keep the worktree for ever."""
    config = tmp_path / "gitconfig"
    config.write_text('[protocol "file"]\n\tallow = always\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    library = make_repo(tmp_path / "library")
    git(library, "config", "uploadpack.allowAnySHA1InWant", "true")
    add_submodule(repo, library)
    tip = commit(library, "newer.txt")
    git(repo / "lib", "fetch", "-q", "origin")
    git(repo / "lib", "checkout", "-q", tip)
    git(repo, "commit", "-qam", "Newer lib")
    git(library, "reset", "-q", "--hard", "HEAD~1")
    (repo / ".git" / "modules").rename(tmp_path / "gone")
    path = worktrees.create(site, Spec("amy"))
    assert git(path / "lib", "rev-parse", "HEAD") == tip
    assert worktrees.remove(site, "amy").branch == "amy"


def test_x7_a_submodule_with_work_is_not_removed(site: Site, repo: Path, tmp_path: Path) -> None:
    add_submodule(repo, make_repo(tmp_path / "library"))
    path = worktrees.create(site, Spec("amy"))
    (path / "lib" / "new").write_text("x")
    with pytest.raises(worktrees.WorktreeError, match="repositories of their own: lib"):
        worktrees.remove(site, "amy")
    (path / "lib" / "new").unlink()
    tip = commit(path / "lib", "work.txt")
    git(path, "add", "lib")
    git(path, "commit", "-qm", "Newer lib")
    git(repo, "merge", "-q", "amy")
    with pytest.raises(worktrees.WorktreeError, match="repositories of their own"):
        worktrees.remove(site, "amy")
    # What is dropped by force comes back.
    worktrees.remove(site, "amy", force=True)
    path = worktrees.restore(site, "amy")
    assert git(path / "lib", "rev-parse", "HEAD") == tip
    assert git(path, "status", "--porcelain") == ""


@pytest.mark.slow
def test_x7_a_submodule_with_a_stash_is_not_removed(site: Site, repo: Path, tmp_path: Path) -> None:
    add_submodule(repo, make_repo(tmp_path / "library"))
    path = worktrees.create(site, Spec("amy"))
    (path / "lib" / "file0.txt").write_text("set aside for later")
    git(path / "lib", "stash", "-q")
    with pytest.raises(worktrees.WorktreeError, match="repositories of their own: lib"):
        worktrees.remove(site, "amy")
    git(path / "lib", "stash", "drop", "-q")
    assert worktrees.remove(site, "amy").branch == "amy"


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["stash -q", "tag v2"])
def test_x7_what_no_branch_of_a_submodule_has_is_work(
    keep: str, site: Site, repo: Path, tmp_path: Path
) -> None:
    add_submodule(repo, make_repo(tmp_path / "library"))
    path = worktrees.create(site, Spec("amy"))
    lib = path / "lib"
    start = git(lib, "rev-parse", "HEAD")
    if keep == "tag v2":
        commit(lib, "work.txt")
    (lib / "file0.txt").write_text("precious")
    git(lib, *keep.split())
    git(lib, "checkout", "-q", "-f", start)
    with pytest.raises(worktrees.WorktreeError, match="repositories of their own"):
        worktrees.remove(site, "amy")
    kept = git(lib, "rev-parse", "stash" if "stash" in keep else "v2")
    worktrees.remove(site, "amy", force=True)
    path = worktrees.restore(site, "amy")
    assert kept in git(path / "lib", "for-each-ref", "--format=%(objectname)").split()


@pytest.mark.parametrize(
    ("url", "base", "meant"),
    [
        ("https://x/y", "https://a/b", "https://x/y"),
        ("../c.git", "https://a/b/d.git", "https://a/b/c.git"),
        ("../../c", "https://a/b/d/", "https://a/c"),
        ("./c", "/srv/a", "/srv/a/c"),
        ("../c", "host:a", "host:c"),
        ("../c", "host:a/b", "host:a/c"),
        ("../c", "", ""),
    ],
)
def test_x7_relative_addresses_of_submodules(url: str, base: str, meant: str) -> None:
    assert resolve_url(url, base) == meant


@pytest.mark.parametrize(
    "name", ["../x", "a/../b", "/a", ".git", "a/objects", "a/refs/b", "", "-a/"]
)
def test_x7_names_of_submodules_that_lead_elsewhere(name: str) -> None:
    assert not NAME.fullmatch(name)
