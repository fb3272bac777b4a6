"""An index of our own: what an agent's index says of its files is not believed."""

import itertools
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Site, Spec
from bullpen.worktrees.changes import changes_since, head_of, verify_checkout
from bullpen.worktrees.own_index import look_at
from bullpen.worktrees.state import get_checkout
from tests.worktrees.repos import commit, git

Failing = Callable[..., worktrees.WorktreeError]
EVIL = "evil 0\n"  # as long as what it replaces


def call_unchanged(path: Path) -> None:
    git(path, "update-index", "--assume-unchanged", "file0.txt")
    (path / "file0.txt").write_text(EVIL)


def skip(path: Path) -> None:
    git(path, "update-index", "--skip-worktree", "file0.txt")
    (path / "file0.txt").write_text(EVIL)


def forge(path: Path) -> None:
    """The index has the times of the changed file and the content of the old one."""
    (path / "file0.txt").write_text(EVIL)
    index = Path(git(path, "rev-parse", "--absolute-git-dir")) / "index"
    git(path, "add", "file0.txt")
    evil, old = (
        bytes.fromhex(git(path, "rev-parse", rev)) for rev in (":file0.txt", "HEAD:file0.txt")
    )
    content = index.read_bytes().replace(evil, old)[:-20]
    content = content[: content.index(b"TREE")] if b"TREE" in content else content
    sum_ = subprocess.run(["sha1sum"], input=content, capture_output=True, check=True).stdout
    index.write_bytes(content + bytes.fromhex(sum_[:40].decode()))
    os.utime(index, (2**31, 2**31))  # younger than the file: nothing is compared by content


def watch_no_more(path: Path) -> None:
    """A monitor of files that has seen nothing."""
    monitor = path.parent / "monitor"
    monitor.write_text("#!/bin/sh\nprintf 'token\\0'\n")
    monitor.chmod(0o755)
    git(path, "config", "core.fsmonitor", str(monitor))
    git(path, "update-index", "--fsmonitor")
    git(path, "update-index", "--fsmonitor-valid", "file0.txt")
    (path / "file0.txt").write_text(EVIL)


def be_sparse(path: Path) -> None:
    git(path, "sparse-checkout", "set", "--no-cone", "/file1.txt")
    (path / "file0.txt").write_text(EVIL)


HIDING = {
    "assume-unchanged": call_unchanged,
    "skip-worktree": skip,
    "forged times": forge,
    "fsmonitor": watch_no_more,
    "sparse": be_sparse,
}


@pytest.mark.parametrize("how", HIDING)
def test_w10_an_agents_index_does_not_hide_changes(site: Site, how: str) -> None:
    """Git itself finds nothing, with the index that is there."""
    path = worktrees.create(site, Spec("amy"))
    HIDING[how](path)
    if how != "sparse":  # there git itself looks at files that should not be there
        assert git(path, "status", "--porcelain") == ""
    assert worktrees.uncommitted_files(site, "amy") == ["file0.txt"]
    assert worktrees.info(site, "amy").changes == ("file0.txt",)
    assert worktrees.diff_stat(site, "amy").uncommitted.files == 1
    checkout = verify_checkout(path)
    assert checkout is not None
    assert "+evil 0" in changes_since(checkout, head_of(checkout)).uncommitted


@pytest.mark.slow
@pytest.mark.parametrize("how", HIDING)
def test_w7_what_an_agents_index_hides_is_not_lost(site: Site, how: str, failing: Failing) -> None:
    path = worktrees.create(site, Spec("amy"))
    HIDING[how](path)
    assert "file0.txt" in (worktrees.reason_to_keep(site, "amy") or "")
    failing("DIRTY", worktrees.remove, site, "amy")
    kept = worktrees.remove(site, "amy", force=True).kept
    assert git(site.repo.common_dir, "show", f"{kept}:file0.txt") == EVIL.strip()


def test_w7_what_is_only_staged_is_not_dropped(site: Site, failing: Failing) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / "file0.txt").write_text(EVIL)
    git(path, "add", "file0.txt")
    (path / "file0.txt").write_text("file 0\n")
    failing("DIRTY", worktrees.remove, site, "amy")


@pytest.mark.slow
def test_w10_what_was_learnt_follows_the_commits(site: Site) -> None:
    """Each look begins with the index of the last one."""
    path = worktrees.create(site, Spec("amy"))
    cache = site.repo.own_dir / "indexes" / get_checkout(site, "amy").admin.name
    for number in range(3):
        commit(path, "file0.txt", f"{number} 1234\n")
        assert worktrees.uncommitted_files(site, "amy") == []
        assert [file.name for file in cache.iterdir()] == [worktrees.head(site, "amy")]
        (path / "file0.txt").write_text(EVIL)
        assert worktrees.uncommitted_files(site, "amy") == ["file0.txt"]
    worktrees.remove(site, "amy", force=True)
    assert not cache.exists()


def test_w10_a_torn_index_of_ours_is_made_again(site: Site) -> None:
    path = worktrees.create(site, Spec("amy"))
    (file,) = (site.repo.own_dir / "indexes").glob("*/*")
    file.write_bytes(file.read_bytes()[:-100])
    assert worktrees.uncommitted_files(site, "amy") == []
    (path / "file0.txt").write_text(EVIL)
    assert worktrees.uncommitted_files(site, "amy") == ["file0.txt"]


def test_w10_a_file_that_changes_while_we_look_is_looked_at_again(site: Site) -> None:
    """With the same times before and after, as within one tick of the clock: what was learnt
    about files that are as young as the look is forgotten."""
    path = worktrees.create(site, Spec("amy"))
    checkout = get_checkout(site, "amy")
    commit(path, "file0.txt", "1 1234\n")
    with look_at(site.repo, checkout) as look:
        (path / "file0.txt").touch()  # younger than the look, however slow the machine
        assert look.changed() == []
    (cached,) = (site.repo.own_dir / "indexes").glob("*/*")
    entries = {entry.split("\n")[0]: entry for entry in _debug(path, cached)}
    assert "mtime: 0:0" in entries["file0.txt"]


def _debug(path: Path, index: Path) -> list[str]:
    environment = {**os.environ, "GIT_INDEX_FILE": str(index)}
    words = ["git", "-C", str(path), "ls-files", "--debug", "-z"]
    text = subprocess.run(words, env=environment, capture_output=True, check=True).stdout.decode()
    names = text.split("\0")
    return [f"{name.splitlines()[-1]}\n{rest}" for name, rest in itertools.pairwise(names)]
