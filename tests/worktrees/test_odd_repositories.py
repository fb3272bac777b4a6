"""Repositories that people really have, and some that only an attacker has."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Site, Spec
from tests.worktrees.repos import assert_healthy, commit, git, make_repo, refs

pytestmark = pytest.mark.slow  # many, and with many processes each

Failing = Callable[..., worktrees.WorktreeError]
ALLOW = ("-c", "protocol.file.allow=always")
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's identity")


def live_a_life(site: Site, name: str = "amy", **spec: object) -> None:
    """Create, work as a person does, look, remove by force, restore, remove."""
    path = worktrees.create(site, Spec(name, **spec))  # type: ignore[arg-type]
    where = site.repo.root or site.repo.common_dir
    assert git(path, "status", "--porcelain") == ""
    tip = commit(path, "work of mine.txt")
    assert git(path, "log", "-1", "--format=%H", name) == tip
    (path / "new").write_text("x")
    info = worktrees.info(site, name)
    assert (info.branch, info.head, info.changes) == (name, tip, ("new",))
    assert worktrees.diff_stat(site, name).untracked == 1
    assert name in git(where, "branch", "--list", name)
    assert [entry.name for entry in worktrees.list_managed(site)] == [name]
    assert_healthy(site)
    result = worktrees.remove(site, name, force=True)
    assert result.branch == name and not worktrees.exists(site, name)
    worktrees.restore(site, name)
    assert worktrees.info(site, name).changes == ("new",)
    git(path, "add", "-A")
    git(path, "commit", "-qm", "The rest")
    assert worktrees.remove(site, name).branch_left == name
    assert name in refs(site)
    assert_healthy(site)


# ── beginnings ───────────────────────────────────────────────────────────────


def test_w2_no_commit_yet(tmp_path: Path, failing: Failing) -> None:
    (tmp_path / "repo").mkdir()
    git(tmp_path / "repo", "init", "-q")
    site = worktrees.open_site(tmp_path / "repo", tmp_path / "base")
    for function in (worktrees.create, worktrees.ensure):
        error = failing("NOT_A_REPO", function, site, Spec("amy"))
        assert "commit" in error.message and "git commit" in error.hint
    failing("NOT_A_REPO", worktrees.validate, site.repo)
    assert not worktrees.has_commits(site.repo)
    assert worktrees.list_managed(site) == []
    assert not site.base.exists()


def test_w3_unborn_branch_with_commits_elsewhere(site: Site, repo: Path, failing: Failing) -> None:
    git(repo, "checkout", "-q", "--orphan", "fresh")
    failing("REF_NOT_FOUND", worktrees.create, site, Spec("amy"))
    assert refs(site) == {"main"}
    live_a_life(site, base="main")


def test_w3_detached_head(site: Site, repo: Path) -> None:
    git(repo, "checkout", "-q", "--detach")
    commit(repo, "on no branch.txt")
    live_a_life(site)


def test_w3_only_a_detached_head_as_ci_leaves_it(site: Site, repo: Path) -> None:
    git(repo, "checkout", "-q", "--detach")
    git(repo, "branch", "-D", "main")
    worktrees.validate(site.repo)
    live_a_life(site)


def test_w4_bare(repo: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(repo), "bare.git")
    live_a_life(worktrees.open_site(tmp_path / "bare.git", tmp_path / "base"))


def test_w4_bare_with_a_git_file_beside_its_worktrees(repo: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    git(tmp_path, "clone", "-q", "--bare", str(repo), str(project / ".bare"))
    (project / ".git").write_text("gitdir: ./.bare\n")
    live_a_life(worktrees.open_site(project, project / "trees"))


def test_w4_shallow_clone(repo: Path, tmp_path: Path) -> None:
    commit(repo, "second.txt")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repo}", "shallow")
    assert (tmp_path / "shallow" / ".git" / "shallow").exists()
    live_a_life(worktrees.open_site(tmp_path / "shallow", tmp_path / "base"))


def test_w4_partial_clone(repo: Path, tmp_path: Path) -> None:
    git(repo, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", "--no-checkout", f"file://{repo}", "part")
    live_a_life(worktrees.open_site(tmp_path / "part", tmp_path / "base"))


@pytest.mark.parametrize("name", ["amy", "Swarm~lead.part"])
def test_w4_sha256(tmp_path: Path, name: str) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main", "--object-format=sha256")
    commit(repo, "file.txt")
    site = worktrees.open_site(repo, tmp_path / "base", pool=1)
    if name == "amy":
        worktrees.fill_pool(site)
        live_a_life(site)
    else:
        path = worktrees.create(site, Spec(name, branch=name.replace("~", "/")))
        assert git(path, "status", "--porcelain") == ""
        worktrees.remove(site, name)
        assert_healthy(site)


def test_w4_git_directory_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    git(tmp_path, "init", "-q", "--separate-git-dir", "store.git", "tree")
    commit(tmp_path / "tree", "file.txt")
    site = worktrees.open_site(tmp_path / "tree", tmp_path / "base")
    assert site.repo.common_dir == tmp_path / "store.git"
    live_a_life(site)


def test_w4_alternates(repo: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--shared", str(repo), "shared")
    live_a_life(worktrees.open_site(tmp_path / "shared", tmp_path / "base"))


def test_w4_packed_refs_and_objects(site: Site, repo: Path) -> None:
    git(repo, "gc", "-q", "--aggressive", "--prune=now")
    git(repo, "pack-refs", "--all")
    live_a_life(site)


# ── submodules ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("recurse", [False, True])
def test_w4_submodules(site: Site, repo: Path, tmp_path: Path, recurse: bool) -> None:
    make_repo(tmp_path / "library")
    git(repo, *ALLOW, "submodule", "add", "-q", str(tmp_path / "library"), "lib")
    git(repo, "commit", "-qm", "Add lib")
    git(repo, "config", "submodule.recurse", str(recurse).lower())
    live_a_life(site)


def test_w4_inside_a_submodule(repo: Path, tmp_path: Path) -> None:
    make_repo(tmp_path / "library")
    git(repo, *ALLOW, "submodule", "add", "-q", str(tmp_path / "library"), "lib")
    git(repo, "commit", "-qm", "Add lib")
    site = worktrees.open_site(repo / "lib", tmp_path / "base")
    assert site.repo.common_dir == repo / ".git" / "modules" / "lib"
    live_a_life(site)
    assert git(repo, "status", "--porcelain") == ""


# ── sparse checkouts ─────────────────────────────────────────────────────────


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "how", ["--cone wanted", "--no-cone /* !/unwanted/", "--cone --sparse-index wanted"]
)
@pytest.mark.parametrize("pool", [0, 1])
def test_w4_sparse_checkout(repo: Path, tmp_path: Path, how: str, pool: int) -> None:
    commit(repo, "wanted/a.txt")
    commit(repo, "unwanted/b.txt")
    git(repo, "sparse-checkout", "set", *how.split())
    assert not (repo / "unwanted").exists()
    site = worktrees.open_site(repo, tmp_path / "base", pool=pool)
    worktrees.fill_pool(site)
    live_a_life(site)
    path = worktrees.ensure(site, Spec("bob"))
    assert (path / "wanted" / "a.txt").exists()
    assert git(path, "status", "--porcelain") == ""
    assert git(path, "ls-files", "unwanted/b.txt") == "unwanted/b.txt"
    assert git(repo, "status", "--porcelain") == ""


def test_w7_sparse_worktree_is_saved_whole(site: Site, repo: Path) -> None:
    commit(repo, "wanted/a.txt")
    commit(repo, "unwanted/b.txt")
    path = worktrees.create(site, Spec("amy"))
    git(path, "sparse-checkout", "set", "wanted")
    assert not (path / "unwanted").exists()
    (path / "wanted" / "a.txt").write_text("changed\n")
    (path / "unwanted").mkdir()
    (path / "unwanted" / "new.txt").write_text("x")
    kept = worktrees.remove(site, "amy", force=True).kept
    files = git(repo, "ls-tree", "-r", "--name-only", kept).split("\n")
    assert {"unwanted/b.txt", "unwanted/new.txt", "wanted/a.txt"} <= set(files)
    worktrees.restore(site, "amy")
    assert set(worktrees.uncommitted_files(site, "amy")) == {"unwanted/new.txt", "wanted/a.txt"}
    assert_healthy(site)


# ── names ────────────────────────────────────────────────────────────────────


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name",
    [
        "sp ace",
        "new\nline",
        "two\n\nlines",
        "trailing\n",
        b"caf\xe9",
        "quote'\"$(x)`",
        "-dash",
        "#",
    ],
    ids=ascii,
)
@pytest.mark.parametrize("pool", [0, 1])
def test_w8_odd_paths(tmp_path: Path, name: str | bytes, pool: int) -> None:
    odd = os.fsdecode(name)
    repo = make_repo(tmp_path / "in" / odd)
    site = worktrees.open_site(repo, tmp_path / "out" / odd, pool=pool)
    worktrees.fill_pool(site)
    live_a_life(site)


def test_w8_paths_that_look_like_gits_answers(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "x\nfalse\ny")
    assert worktrees.open_repository(repo).root == repo
    live_a_life(worktrees.open_site(repo, tmp_path / "base"))


def test_w4_branch_and_directory_prefix(site: Site, repo: Path, failing: Failing) -> None:
    git(repo, "branch", "a")
    failing("BRANCH_EXISTS", worktrees.create, site, Spec("b", branch="a/b"))
    worktrees.create(site, Spec("one", branch="x/y/z"))
    failing("BRANCH_EXISTS", worktrees.create, site, Spec("two", branch="x/y"))
    worktrees.create(site, Spec("two", branch="x/w"))
    assert_healthy(site)


def test_w3_tag_and_branch_of_one_name(site: Site, repo: Path) -> None:
    git(repo, "tag", "main")
    git(repo, "tag", "amy")
    new = commit(repo, "newer.txt")
    worktrees.create(site, Spec("amy"))
    assert worktrees.head(site, "amy") == new
    assert git(site.base / "amy", "symbolic-ref", "HEAD") == "refs/heads/amy"
    worktrees.remove(site, "amy")
    assert git(repo, "for-each-ref", "--format=%(refname)").split("\n") == [
        *("refs/heads/main", "refs/tags/amy", "refs/tags/main")
    ]


# ── other worktrees ──────────────────────────────────────────────────────────


def test_w4_neighbours_that_are_locked_prunable_or_broken(
    site: Site, repo: Path, tmp_path: Path
) -> None:
    for name in ("locked", "gone", "broken"):
        git(repo, "worktree", "add", "-q", "-b", name, str(tmp_path / name))
    git(repo, "worktree", "lock", str(tmp_path / "locked"))
    shutil.rmtree(tmp_path / "gone")
    (tmp_path / "broken" / ".git").unlink()
    path = worktrees.create(site, Spec("amy"))
    assert git(path, "status", "--porcelain") == ""
    worktrees.remove(site, "amy")
    worktrees.prune(site)
    worktrees.gc(site)
    assert {entry.name for entry in worktrees.list_all(site)} == {
        *("repo", "locked", "gone", "broken")
    }


def test_w4_branch_checked_out_elsewhere_can_be_the_base(
    site: Site, repo: Path, tmp_path: Path
) -> None:
    git(repo, "worktree", "add", "-q", "-b", "topic", str(tmp_path / "topic"))
    tip = commit(tmp_path / "topic", "t.txt")
    path = worktrees.create(site, Spec("amy", base="topic"))
    assert git(path, "rev-parse", "HEAD") == tip


def test_w2_repository_inside_another(tmp_path: Path) -> None:
    outer = make_repo(tmp_path / "outer")
    inner = make_repo(outer / "vendor" / "inner", files=1)
    live_a_life(worktrees.open_site(inner, tmp_path / "base"))
    assert refs(worktrees.open_site(outer, tmp_path / "base")) == {"main"}


@pytest.mark.parametrize("ignored", [True, False])
def test_w12_home_inside_the_work_tree(repo: Path, ignored: bool) -> None:
    if ignored:
        (repo / ".git" / "info" / "exclude").write_text("/.bullpen/\n")
    site = worktrees.open_site(repo, repo / ".bullpen" / "worktrees", pool=1)
    worktrees.fill_pool(site)
    home = repo / ".bullpen"
    (home / ".bullpen-dir.txt").write_text("v0.1.0\n")
    (home / "credentials").mkdir()
    (home / "credentials" / "token").write_text("secret")
    live_a_life(site)
    (repo / ".env").write_text("x")
    path = worktrees.create(site, Spec("bob", copy=("**", ".bullpen", ".bullpen/credentials/*")))
    assert (path / ".env").exists() and not (path / ".bullpen").exists()
    assert git(repo, "status", "--porcelain").split("\n") == (
        ["?? .env"] if ignored else ["?? .bullpen/", "?? .env"]
    )


def test_w14_what_lies_in_the_base_is_not_copied_from_one_worktree_to_the_next(repo: Path) -> None:
    site = worktrees.open_site(repo, repo / "trees")  # no home, which would tell
    worktrees.create(site, Spec("amy"))
    (repo / ".env").write_text("x")
    path = worktrees.create(site, Spec("bob", copy=("**",)))
    assert (path / ".env").exists()
    assert not (path / "trees").exists()


# ── configuration and environment ────────────────────────────────────────────


@pytest.mark.parametrize("where", ["default", "relative", "absolute"])
def test_w4_hooks_never_run(site: Site, repo: Path, tmp_path: Path, where: str) -> None:
    hooks = {
        "default": repo / ".git" / "hooks",
        "relative": repo / "my hooks",
        "absolute": tmp_path / "hooks",
    }[where]
    hooks.mkdir(exist_ok=True)
    for hook in ("post-checkout", "reference-transaction", "post-index-change", "pre-commit"):
        (hooks / hook).write_text(f"#!/bin/sh\necho {hook} >> '{tmp_path}/ran'\nexit 1\n")
        (hooks / hook).chmod(0o755)
    if where == "relative":
        git(repo, "add", "-A")
        git(repo, "-c", "core.hooksPath=/dev/null", "commit", "-qm", "Hooks")
        git(repo, "config", "core.hooksPath", "my hooks")
    elif where == "absolute":
        git(repo, "config", "core.hooksPath", str(hooks))
    path = worktrees.create(site, Spec("amy"))
    (path / "new").write_text("x")
    worktrees.info(site, "amy")
    worktrees.remove(site, "amy", force=True)
    worktrees.restore(site, "amy")
    assert not (tmp_path / "ran").exists()
    git(path, "status", "--porcelain")
    done = subprocess.run(["git", "-C", path, "commit", "-qam", "x"], check=False)
    assert done.returncode and (tmp_path / "ran").exists()  # the person's own hooks still do


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "setting",
    [
        "status.showUntrackedFiles=no",
        "core.untrackedCache=true",
        "core.splitIndex=true",
        "index.version=4",
        "feature.manyFiles=true",
        "commit.gpgSign=true",
        "gpg.program=/bin/false",
        "core.quotePath=false",
        "diff.noprefix=true",
        "diff.renames=copies",
        "core.autocrlf=input",
        "worktree.guessRemote=true",
        "core.logAllRefUpdates=false",
        "log.showSignature=true",
        "color.ui=always",
        "core.fileMode=false",
        "init.defaultObjectFormat=sha256",
        "push.default=nothing",
        "diff.external=/bin/false",
        "core.pager=/bin/false",
        "status.branch=true",
        "diff.ignoreSubmodules=all",
        "core.sharedRepository=group",
        "format.pretty=oneline",
        "core.abbrev=4",
        "safe.bareRepository=explicit",
    ],
)
def test_w4_settings_of_the_person_do_not_confuse_us(
    site: Site, tmp_path: Path, setting: str
) -> None:
    git(tmp_path, "config", "--global", *setting.split("=", 1))
    path = worktrees.create(site, Spec("amy"))
    (path / "new").write_text("x\n")
    (path / "file0.txt").write_text("changed\n")
    assert worktrees.info(site, "amy").changes == ("file0.txt", "new")
    assert worktrees.diff_stat(site, "amy").uncommitted.files == 1
    worktrees.remove(site, "amy", force=True)
    worktrees.restore(site, "amy")
    assert (path / "new").read_text() == "x\n"
    assert worktrees.info(site, "amy").changes == ("file0.txt", "new")
    assert not worktrees.conflicts_with(site, "amy", "main")
    worktrees.remove(site, "amy", force=True)
    assert refs(site) == {"main"}
    assert_healthy(site)


def test_w2_variables_that_point_elsewhere(
    site: Site, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_repo(tmp_path / "other")
    before = (git(other, "status", "--porcelain"), git(other, "for-each-ref"))
    with monkeypatch.context() as patch:
        patch.setenv("GIT_DIR", str(other / ".git"))
        patch.setenv("GIT_WORK_TREE", str(other))
        patch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
        patch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "objects"))
        patch.setenv("GIT_NAMESPACE", "x")
        patch.setenv("GIT_CONFIG_COUNT", "1")
        patch.setenv("GIT_CONFIG_KEY_0", "core.bare")
        patch.setenv("GIT_CONFIG_VALUE_0", "true")
        opened = worktrees.open_site(repo, site.base)
        assert opened == site
        path = worktrees.create(opened, Spec("amy", setup="git status --porcelain > out"))
        (path / "new").write_text("x")
        assert worktrees.info(opened, "amy").changes == ("new", "out")
        worktrees.remove(opened, "amy", force=True)
        worktrees.restore(opened, "amy")
    assert git(path, "status", "--porcelain") == "?? new\n?? out"
    assert (git(other, "status", "--porcelain"), git(other, "for-each-ref")) == before
    assert not (tmp_path / "index").exists() and not (tmp_path / "objects").exists()
    assert_healthy(site)


def test_w7_no_identity_configured(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for who in ("AUTHOR", "COMMITTER"):
        for what in ("NAME", "EMAIL"):
            monkeypatch.delenv(f"GIT_{who}_{what}")
    monkeypatch.setenv("EMAIL", "")
    path = worktrees.create(site, Spec("amy"))
    (path / "new").write_text("x")
    assert worktrees.remove(site, "amy", force=True).kept
    worktrees.restore(site, "amy")
    assert (path / "new").read_text() == "x"


@pytest.mark.parametrize("locale", ["C", "POSIX", "de_DE.UTF-8"])
def test_w1_other_languages(site: Site, monkeypatch: pytest.MonkeyPatch, locale: str) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    monkeypatch.setenv("LANGUAGE", "de")
    live_a_life(site)


# ── hostile trees ────────────────────────────────────────────────────────────


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    """A program that must never run; it leaves a trace when it does."""
    path = tmp_path / "evil.sh"
    path.write_text(f"#!/bin/sh\ntouch '{tmp_path}/EVIL'\ncat\n")
    path.chmod(0o755)
    yield path
    assert not (tmp_path / "EVIL").exists(), "planted code has run"


def arm(repo: Path, script: Path) -> None:
    """Configure everything that git would start by itself."""
    for key in ("core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process"):
        git(repo, "config", key, str(script))
    for key in ("diff.evil.textconv", "diff.evil.command", "core.sshCommand", "core.editor"):
        git(repo, "config", key, str(script))
    git(repo, "config", "core.hooksPath", str(script.parent))


def look_everywhere(site: Site) -> None:
    for function in (
        worktrees.info,
        worktrees.uncommitted_files,
        worktrees.diff_stat,
        worktrees.head,
    ):
        try:
            function(site, "amy")
        except worktrees.WorktreeError as error:
            assert error.code is worktrees.Code.WORKTREE_CORRUPT
    worktrees.list_managed(site)
    worktrees.conflicts_with(site, "bob", "amy")
    worktrees.gc(site)
    worktrees.prune(site)
    try:
        worktrees.remove(site, "amy")
    except worktrees.WorktreeError as error:
        assert error.code is worktrees.Code.DIRTY
    worktrees.remove(site, "amy", force=True)
    assert not worktrees.exists(site, "amy")


@pytest.mark.parametrize("what", ["git file", "git directory", "link"])
def test_w7_planted_git_runs_nothing(site: Site, tmp_path: Path, script: Path, what: str) -> None:
    worktrees.create(site, Spec("bob"))
    path = worktrees.create(site, Spec("amy"))
    (path / ".gitattributes").write_text("* filter=evil diff=evil\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "Attributes")
    evil = make_repo(tmp_path / "evil")
    arm(evil, script)
    (path / ".git").unlink()
    match what:
        case "git file":
            (path / ".git").write_text(f"gitdir: {evil}/.git\n")
        case "git directory":
            shutil.copytree(evil / ".git", path / ".git")
        case "link":
            (path / ".git").symlink_to(evil / ".git")
    (path / "file0.txt").write_text("changed\n")
    look_everywhere(site)


@pytest.mark.parametrize("known", [True, False], ids=["gitlink", "untracked"])
def test_w7_repository_planted_inside_runs_nothing(site: Site, script: Path, known: bool) -> None:
    worktrees.create(site, Spec("bob"))
    path = worktrees.create(site, Spec("amy"))
    inner = path / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / ".gitattributes").write_text("* filter=evil diff=evil\n")
    commit(inner, "file.txt")
    git(inner, "add", "-A")
    git(inner, "commit", "-qm", "Attributes")
    if known:
        git(path, "add", "inner")
        git(path, "commit", "-qm", "A gitlink")
    arm(inner, script)
    (inner / "file.txt").write_text("changed\n")
    (path / "new").write_text("x")
    look_everywhere(site)


def test_w7_planted_pointers_in_gits_directory_run_nothing(
    site: Site, tmp_path: Path, script: Path
) -> None:
    worktrees.create(site, Spec("bob"))
    path = worktrees.create(site, Spec("amy"))
    evil = make_repo(tmp_path / "evil")
    arm(evil, script)
    (path / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (path / "file0.txt").write_text("changed\n")
    admin = Path(git(path, "rev-parse", "--absolute-git-dir"))
    (admin / "commondir").write_text(f"{evil}/.git\n")
    (admin / "config").write_text(f"[core]\n\tfsmonitor = {script}\n")
    (admin / "config.worktree").write_text(f"[core]\n\tfsmonitor = {script}\n")
    look_everywhere(site)


def test_w7_pipe_in_place_of_the_git_file_keeps_nobody_waiting(
    site: Site, failing: Failing
) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / ".git").unlink()
    os.mkfifo(path / ".git")
    failing("WORKTREE_CORRUPT", worktrees.info, site, "amy")
    failing("WORKTREE_CORRUPT", worktrees.ensure, site, Spec("amy"))
    worktrees.remove(site, "amy", force=True)
    assert not worktrees.exists(site, "amy")


# ── permissions ──────────────────────────────────────────────────────────────


def run_as_nobody(work: Callable[[], None]) -> None:
    """In a child that has given up root; its failure is ours."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            work()
            code = 0
        except BaseException as error:  # noqa: BLE001 - the child must never return
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def open_tmp(tmp_path: Path) -> Iterator[Path]:
    """A directory that another user can reach; pytest's own are closed."""
    import tempfile

    path = Path(tempfile.mkdtemp(prefix="bullpen-odd-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    # What is in the trash may go meanwhile.
    subprocess.run(["chmod", "-R", "u+rwX", path], check=False, capture_output=True)
    shutil.rmtree(path, ignore_errors=True)


def give(path: Path, user: int = NOBODY) -> None:
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{user}:{user}", path], check=True)


def code_of(function: Callable[..., object], *args: object, **kwargs: object) -> str:
    try:
        function(*args, **kwargs)
    except worktrees.WorktreeError as error:
        assert "ermission" in str(error.message) + str(error.details), error
        return error.code.value
    return "no error"


def test_w1_read_only_repository(open_tmp: Path) -> None:
    repo = make_repo(open_tmp / "repo")
    give(open_tmp)

    def work() -> None:
        os.environ["HOME"] = str(open_tmp)
        os.chdir("/")
        site = worktrees.open_site(repo, open_tmp / "base")
        subprocess.run(["chmod", "-R", "a-w", repo], check=True)
        assert code_of(worktrees.create, site, Spec("amy")) == "GIT_FAILED"
        assert code_of(worktrees.ensure, site, Spec("amy")) == "GIT_FAILED"
        assert code_of(worktrees.remove, site, "amy") == "CLEANUP_FAILED"
        assert worktrees.list_managed(site) == []
        subprocess.run(["chmod", "-R", "u+w", repo], check=True)
        worktrees.create(site, Spec("amy"))
        assert_healthy(site)

    run_as_nobody(work)


def test_w1_read_only_base(open_tmp: Path) -> None:
    repo = make_repo(open_tmp / "repo")
    (open_tmp / "base").mkdir()
    give(open_tmp)

    def work() -> None:
        os.environ["HOME"] = str(open_tmp)
        os.chdir("/")
        site = worktrees.open_site(repo, open_tmp / "base")
        path = worktrees.create(site, Spec("amy"))
        for directory in (site.making, site.records, site.base):
            directory.chmod(0o500)
        assert code_of(worktrees.create, site, Spec("bob")) == "GIT_FAILED"
        assert code_of(worktrees.remove, site, "amy") == "CLEANUP_FAILED"
        assert git(path, "status", "--porcelain") == ""
        for directory in (site.base, site.making, site.records):
            directory.chmod(0o700)
        assert refs(site) == {"main", "amy"}
        assert_healthy(site)
        worktrees.remove(site, "amy")
        worktrees.create(site, Spec("bob"))

    run_as_nobody(work)


def test_w1_directory_that_may_not_be_entered(open_tmp: Path) -> None:
    make_repo(open_tmp / "closed" / "repo")
    give(open_tmp)

    def work() -> None:
        os.chdir("/")
        (open_tmp / "closed").chmod(0o000)
        assert code_of(worktrees.open_site, open_tmp / "closed" / "repo", open_tmp) == "NOT_A_REPO"

    run_as_nobody(work)


@as_root
def test_w2_repository_of_somebody_else(repo: Path, tmp_path: Path, failing: Failing) -> None:
    give(repo)
    error = failing("NOT_A_REPO", worktrees.open_site, repo, tmp_path / "base")
    assert "somebody else" in error.message and "safe.directory" in error.hint
    git(tmp_path, "config", "--global", "--add", "safe.directory", str(repo))
    live_a_life(worktrees.open_site(repo, tmp_path / "base"))


def test_w7_file_that_cannot_be_read_stops_a_forced_removal(open_tmp: Path) -> None:
    repo = make_repo(open_tmp / "repo")
    give(open_tmp)

    def work() -> None:
        os.environ["HOME"] = str(open_tmp)
        os.chdir("/")
        site = worktrees.open_site(repo, open_tmp / "base")
        path = worktrees.create(site, Spec("amy"))
        (path / "closed").write_text("x")
        (path / "closed").chmod(0o000)
        assert code_of(worktrees.remove, site, "amy", force=True) == "GIT_FAILED"
        assert (path / "closed").exists()
        (path / "closed").chmod(0o600)
        assert worktrees.remove(site, "amy", force=True).kept

    run_as_nobody(work)
