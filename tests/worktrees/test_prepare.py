"""Ready to work: the persona, untracked files, the set-up command."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Site, Spec, prepare
from bullpen.worktrees.git import git as run_git
from tests.worktrees.repos import assert_healthy, commit, git, refs

pytestmark = pytest.mark.slow

Failing = Callable[..., worktrees.WorktreeError]


@pytest.fixture
def persona(tmp_path: Path) -> Path:
    path = tmp_path / "CLAUDE.md"
    path.write_text("You are careful.\n")
    return path


# ── W9: persona ──────────────────────────────────────────────────────────────


def test_w9_persona_is_a_file_that_git_does_not_see(site: Site, repo: Path, persona: Path) -> None:
    path = worktrees.create(site, Spec("amy", persona=persona))
    assert (path / "CLAUDE.local.md").read_text() == "You are careful.\n"
    assert git(path, "status", "--porcelain") == ""
    git(path, "add", "-A")
    assert git(path, "diff", "--cached", "--name-only") == ""
    assert not worktrees.info(site, "amy").dirty
    assert not (path / "CLAUDE.md").exists() and not (repo / "CLAUDE.local.md").exists()
    assert_healthy(site)


def test_w9_the_exclusion_is_written_once_and_spares_what_is_there(
    site: Site, repo: Path, persona: Path
) -> None:
    exclude = repo / ".git" / "info" / "exclude"
    exclude.write_bytes(b"*.mine\n\xff odd # no newline")
    for name in ("amy", "bob"):
        worktrees.create(site, Spec(name, persona=persona))
    assert exclude.read_bytes() == b"*.mine\n\xff odd # no newline\n/CLAUDE.local.md\n"
    (repo / "x.mine").write_text("x")
    assert git(repo, "status", "--porcelain") == ""


def test_w9_without_info_directory(site: Site, repo: Path, persona: Path) -> None:
    for file in (repo / ".git" / "info").iterdir():
        file.unlink()
    (repo / ".git" / "info").rmdir()
    path = worktrees.create(site, Spec("amy", persona=persona))
    assert git(path, "status", "--porcelain") == ""


def test_w9_no_persona_no_file_no_exclusion(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy", role="coder"))
    assert not (path / "CLAUDE.local.md").exists()
    assert "CLAUDE" not in (repo / ".git" / "info" / "exclude").read_text()


@pytest.mark.parametrize("place", ["CLAUDE.local.md", "CLAUDE.local.md/inner"])
def test_w9_never_over_a_tracked_file(
    site: Site, repo: Path, persona: Path, failing: Failing, place: str
) -> None:
    commit(repo, place, "the project's own\n")
    failing("DIRTY", worktrees.create, site, Spec("amy", persona=persona))
    assert refs(site) == {"main"} and not worktrees.exists(site, "amy")
    path = worktrees.create(site, Spec("bob", role="coder"))
    failing("DIRTY", worktrees.update_persona, site, "coder", persona)
    assert (path / place).read_text() == "the project's own\n"
    assert git(path, "status", "--porcelain") == ""


def test_w9_update_persona(site: Site, persona: Path, tmp_path: Path, failing: Failing) -> None:
    for name, role in (("amy", "coder"), ("bob", "coder"), ("cat", "tester")):
        worktrees.create(site, Spec(name, role=role, persona=persona))
    persona.write_text("You are quick.\n")
    assert worktrees.update_persona(site, "coder", persona) == ["amy", "bob"]
    texts = [(site.base / n / "CLAUDE.local.md").read_text() for n in ("amy", "bob", "cat")]
    assert texts == ["You are quick.\n", "You are quick.\n", "You are careful.\n"]
    assert worktrees.update_persona(site, "nobody", persona) == []
    failing("ROLE_NOT_FOUND", worktrees.update_persona, site, "coder", tmp_path / "none")


def test_w9_update_persona_where_there_was_none(site: Site, persona: Path) -> None:
    path = worktrees.create(site, Spec("amy", role="coder"))
    worktrees.update_persona(site, "coder", persona)
    assert (path / "CLAUDE.local.md").read_text() == "You are careful.\n"
    assert git(path, "status", "--porcelain") == ""


def test_w9_update_persona_never_writes_through_a_link(
    site: Site, persona: Path, tmp_path: Path
) -> None:
    path = worktrees.create(site, Spec("amy", role="coder"))
    (tmp_path / "profile").write_text("precious\n")
    (path / "CLAUDE.local.md").symlink_to(tmp_path / "profile")
    worktrees.update_persona(site, "coder", persona)
    assert (tmp_path / "profile").read_text() == "precious\n"
    assert (path / "CLAUDE.local.md").read_text() == "You are careful.\n"


def test_w9_one_broken_worktree_does_not_stop_the_others(site: Site, persona: Path) -> None:
    for name in ("amy", "bob"):
        worktrees.create(site, Spec(name, role="coder"))
    (site.base / "amy" / ".git").unlink()
    assert worktrees.update_persona(site, "coder", persona) == ["bob"]
    assert (site.base / "bob" / "CLAUDE.local.md").exists()


# ── W14: copy ────────────────────────────────────────────────────────────────


def untracked(repo: Path) -> None:
    commit(repo, ".gitignore", ".env*\nconfig/*.local\nnode_modules/\n")
    for name in (".env", ".env.test", "config/db.local", "config/deep/x.local", "plain"):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(name)
    (repo / ".env").chmod(0o600)
    (repo / "config" / "link.local").symlink_to("/nowhere")
    os.mkfifo(repo / ".env.pipe")


@pytest.mark.parametrize(
    ("globs", "names"),
    [
        ((), []),
        ((".env",), [".env"]),
        ((".env*",), [".env", ".env.test"]),
        (("config/*.local",), ["config/db.local", "config/link.local"]),
        (
            ("config", ".env"),
            [".env", "config/db.local", "config/deep/x.local", "config/link.local"],
        ),
        (("config/",), ["config/db.local", "config/deep/x.local", "config/link.local"]),
        (("**/*.local",), ["config/db.local", "config/deep/x.local", "config/link.local"]),
        (("nothing*", "file0.txt"), []),
        (("plain",), ["plain"]),
    ],
)
def test_w14_copy(site: Site, repo: Path, globs: tuple[str, ...], names: list[str]) -> None:
    untracked(repo)
    path = worktrees.create(site, Spec("amy", copy=globs))
    tracked = {".git", ".gitignore", "file0.txt", "file1.txt", "file2.txt"}
    found = {
        str(file.relative_to(path))
        for file in path.rglob("*")
        if file.is_symlink() or not file.is_dir()
    }
    assert sorted(found - tracked) == names
    if ".env" in names:
        assert (path / ".env").stat().st_mode & 0o777 == 0o600
        assert (path / ".env").read_text() == ".env"
    if "config/link.local" in names:
        assert (path / "config" / "link.local").readlink() == Path("/nowhere")
    assert_healthy(site)


@pytest.mark.parametrize("glob", ["../x", "/etc/passwd", "a/../../x", "", "a\0b", ".."])
def test_w14_copy_stays_in_the_repository(site: Site, failing: Failing, glob: str) -> None:
    failing("INVALID", worktrees.create, site, Spec("amy", copy=(glob,)))
    assert refs(site) == {"main"}


@pytest.mark.parametrize("glob", ["-x", ":(exclude)*", "--", "[", "a b", "*", "**"])
def test_w14_odd_globs_do_no_harm(site: Site, repo: Path, glob: str) -> None:
    (repo / "a b").write_text("x")
    path = worktrees.create(site, Spec("amy", copy=(glob,)))
    assert (path / "a b").exists() == (glob in {"a b", "*", "**"})
    assert (path / "file0.txt").exists()


def test_w14_copy_from_a_subdirectory_of_the_repository(repo: Path, tmp_path: Path) -> None:
    (repo / "sub").mkdir()
    (repo / ".env").write_text("x")
    site = worktrees.open_site(repo / "sub", tmp_path / "base")
    assert (worktrees.create(site, Spec("amy", copy=(".env",))) / ".env").read_text() == "x"


def test_w14_copy_does_not_follow_what_the_base_made_a_link(
    site: Site, repo: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    git(repo, "checkout", "-q", "-b", "trap")
    (repo / "config").symlink_to(tmp_path / "outside")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "Trap")
    git(repo, "checkout", "-q", "main")
    (repo / "config").mkdir()
    (repo / "config" / "db.local").write_text("secret")
    worktrees.create(site, Spec("amy", base="trap", copy=("config/*",)))
    assert list((tmp_path / "outside").iterdir()) == []


def test_w14_copy_takes_nothing_by_a_link_that_comes_after_git_has_looked(
    repo: Path, tmp_path: Path
) -> None:
    """As an agent could make one that works in that tree meanwhile."""
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "id").write_text("secret")
    (repo / "config").symlink_to(keys)
    (repo / "id").symlink_to(keys / "id")
    for name in ("config/id", "id"):
        with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
            prepare._copy_file(repo, repo / name, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()


def test_w14_copy_never_replaces_what_the_base_has(site: Site, repo: Path) -> None:
    git(repo, "checkout", "-q", "-b", "old")
    commit(repo, "config", "a file here\n")
    commit(repo, ".env", "tracked here\n")
    git(repo, "checkout", "-q", "main")
    (repo / "config").mkdir()
    (repo / "config" / "db.local").write_text("x")
    (repo / ".env").write_text("untracked")
    path = worktrees.create(site, Spec("amy", base="old", copy=("config/*", ".env")))
    assert (path / "config").read_text() == "a file here\n"
    assert (path / ".env").read_text() == "tracked here\n"
    assert git(path, "status", "--porcelain") == ""


# ── W14: setup ───────────────────────────────────────────────────────────────


def test_w14_setup_runs_once_in_place(site: Site, tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("p")
    setup = "pwd -P; cat CLAUDE.local.md; git symbolic-ref HEAD; echo x >> ../count"
    path = worktrees.create(site, Spec("amy", setup=setup, persona=tmp_path / "CLAUDE.md"))
    log = (site.records / "amy.setup.log").read_text()
    assert log == f"{path}\nprefs/heads/amy\n"
    assert (site.base / "count").read_text() == "x\n"
    worktrees.ensure(site, Spec("amy", setup=setup))
    assert (site.base / "count").read_text() == "x\n"


def test_w14_failing_setup_tells_the_tail_of_its_output(site: Site, failing: Failing) -> None:
    setup = "seq 1 3000; echo 'out'; echo 'the reason' >&2; exit 7"
    error = failing("SETUP_FAILED", worktrees.create, site, Spec("amy", setup=setup))
    assert "exit 7" in error.message and error.message.endswith("out\nthe reason")
    assert str(error.details["output"]).endswith("the reason")
    assert len(str(error.details["output"])) <= 4000
    log = Path(str(error.details["log"]))
    assert log.read_text().startswith("1\n2\n")
    assert str(log) in error.hint
    assert not worktrees.exists(site, "amy")


@pytest.mark.parametrize(
    "setup", ["kill -9 $$", "no-such-command-at-all", "exit 1", "printf '\\377'; false"]
)
def test_w14_other_ways_to_fail(site: Site, failing: Failing, setup: str) -> None:
    failing("SETUP_FAILED", worktrees.create, site, Spec("amy", setup=setup))
    assert refs(site) == {"main"} and not worktrees.exists(site, "amy")
    assert_healthy(site)


@pytest.mark.parametrize("kind", ["blob", "commit", "graft"])
def test_w14_what_is_checked_out_is_what_the_commit_names(
    site: Site, repo: Path, kind: str
) -> None:
    """A sandboxed agent could write refs, and so put other objects in the place of a commit's."""
    was = commit(repo, "setup.sh", "echo good\n")
    evil = commit(repo, "setup.sh", "echo evil\n")
    git(repo, "reset", "-q", "--hard", was)
    if kind == "blob":
        git(repo, "replace", git(repo, "rev-parse", f"{was}:setup.sh"), f"{evil}:setup.sh")
    elif kind == "commit":
        git(repo, "replace", was, evil)
    else:
        (repo / ".git" / "info" / "grafts").write_text(f"{was}\n")
        assert git(repo, "rev-list", "--count", "HEAD").splitlines()[-1] == "1"
        done = run_git(site.repo, "rev-list", "--count", "HEAD")
        assert (int(done.text) > 1, done.err) == (True, b"")
        return
    # The attack works where git is asked plainly.
    git(repo, "worktree", "add", "-q", "--detach", str(repo.parent / "plain"), was)
    assert (repo.parent / "plain" / "setup.sh").read_text() == "echo evil\n"
    path = worktrees.create(site, Spec("amy", base=was, setup="sh setup.sh"))
    assert (path / "setup.sh").read_text() == "echo good\n"
    assert (site.records / "amy.setup.log").read_text() == "good\n"


def test_w14_setup_with_a_nul_is_one_of_our_errors(site: Site) -> None:
    with pytest.raises(worktrees.WorktreeError):
        worktrees.create(site, Spec("amy", setup="a\0b"))
    assert refs(site) == {"main"} and not worktrees.exists(site, "amy")


def test_w14_setup_is_not_led_astray_by_the_environment(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "BULLPEN_AGENT"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    setup = "env | grep -E '^(GIT_(DIR|WORK|IND|COMMON)|BULLPEN_)' || true; git rev-parse HEAD"
    worktrees.create(site, Spec("amy", setup=setup))
    log = (site.records / "amy.setup.log").read_text()
    assert log == worktrees.head(site, "amy") + "\n"


def test_w14_setup_gets_no_input_and_no_terminal(site: Site) -> None:
    worktrees.create(site, Spec("amy", setup="cat; test ! -t 0"))
    assert (site.records / "amy.setup.log").read_text() == ""
