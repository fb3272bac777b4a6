"""The private git of a sandboxed agent: what comes out of it, and what does not."""

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from bullpen import proc
from bullpen.sandboxes import inside as inside_module
from bullpen.worktrees import submodules
from bullpen.worktrees.git import Checkout, Repository
from bullpen.worktrees.private import bring_over as bringing
from bullpen.worktrees.private import lfs
from bullpen.worktrees.private import work as private_work
from bullpen.worktrees.private.make import begin_use
from bullpen.worktrees.private.refresh import refresh
from bullpen.worktrees.private.store import (
    PrivateStore,
    is_in_use,
    load_state,
)
from bullpen.worktrees.private.work import clear, find_private_work
from tests.sandboxes.attacks import LFS_OBJECT
from tests.sandboxes.machine import Machine
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

PIN = "refs/bullpen/in/amy/"
COMMIT = "echo {0} >{0}; git add {0}; git commit -qm {0}; "


def copy_over(source: str, target: str) -> None:
    """Also over a file that nobody may write, as objects of git are."""
    Path(target).unlink(missing_ok=True)
    shutil.copy(source, target)


def refs(machine: Machine, prefix: str = "refs") -> dict[str, str]:
    words = ("for-each-ref", "--format=%(refname) %(objectname)", prefix)
    lines = machine.git(*words).splitlines()
    return {name: oid for name, _, oid in (line.partition(" ") for line in lines)}


def subjects(machine: Machine, ref: str) -> list[str]:
    return machine.git("log", "--format=%s", ref, "--").splitlines()


@dataclass(frozen=True)
class WithoutSandbox:
    """What the store was looked at with before: git outside, on the agent's own files."""

    store: PrivateStore

    def _env(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}

    def run(self, script: str, *words: str, stdin: bytes = b"", most: int = 0) -> proc.Done:
        argv = ["sh", "-c", script, "inside", *words]
        admin = self.store.git / "worktrees" / self.store.id
        return proc.run(argv, cwd=admin, stdin=stdin, env=self._env(), timeout=60)

    def upload_pack(self, _source: Path) -> str:
        git = "git -c uploadpack.allowAnySHA1InWant=true upload-pack"
        return f"sh -c 'exec {git} {self.store.git}' sh"


def plain_store(machine: Machine) -> WithoutSandbox:
    """The same store, as if it lay in one piece: nothing is mounted outside."""
    store = machine.store
    shutil.rmtree(store.git / "objects")
    shutil.copytree(store.objects, store.git / "objects")
    (store.git / "objects" / "info").mkdir(exist_ok=True)
    if not (store.git / "objects" / "info" / "alternates").exists():
        (store.git / "objects/info/alternates").write_text(f"{machine.common}/objects\n")
    machine.own()
    return WithoutSandbox(store)


# ── what comes out ───────────────────────────────────────────────────────────


def test_x7_its_branch_and_all_its_other_work_come_over(machine: Machine) -> None:
    machine.shell(
        COMMIT.format("one")
        + "git tag -a -m marked mark; git branch amy.part; echo x >>one; git stash -q;"
        + "echo y >>one; git stash -q; git checkout -q -b feature/login;"
        + COMMIT.format("two")
    )
    before = refs(machine)
    outcome = machine.bring_over()
    assert outcome.told == ()
    after = refs(machine)
    assert subjects(machine, "amy") == ["one", "Start"]
    assert subjects(machine, "amy.part") == ["one", "Start"]
    assert subjects(machine, f"{PIN}heads/feature/login") == ["two", "one", "Start"]
    assert after[f"{PIN}HEAD"] == after[f"{PIN}heads/feature/login"]
    assert machine.git("cat-file", "-t", f"{PIN}tags/mark").strip() == "tag"
    assert len([name for name in after if name.startswith(f"{PIN}stash/")]) == 2
    assert outcome.state.on == "feature/login"
    # Nothing else that anybody sees is another.
    others = {name for name in after if not name.startswith(("refs/bullpen", "refs/heads/amy"))}
    assert {name: before[name] for name in others} == {name: after[name] for name in others}
    assert machine.git("fsck", "--no-dangling") == ""
    assert machine.git("status", "--porcelain", "-uno", cwd=machine.cwd) == ""
    assert machine.git("rev-parse", "HEAD", cwd=machine.cwd).strip() == after[f"{PIN}HEAD"]
    # And again, on its own branch once more.
    machine.shell("git checkout -q amy;" + COMMIT.format("three"))
    machine.bring_over()
    assert machine.git("symbolic-ref", "HEAD", cwd=machine.cwd).strip() == "refs/heads/amy"
    assert machine.git("status", "--porcelain", "-uno", cwd=machine.cwd) == ""


def test_x7_other_branches_tags_and_stashes_do_not_move_or_vanish(machine: Machine) -> None:
    before = refs(machine)
    machine.shell(
        "git update-ref refs/heads/main $(git commit-tree -m evil HEAD^{tree});"
        "git branch -D other spare;"
        "git tag v1; git branch amyx; " + COMMIT.format("one")
    )
    machine.bring_over()
    after = refs(machine)
    assert {name: after.get(name) for name in before} | {"refs/heads/amy": None} == {
        **before,
        "refs/heads/amy": None,
    }
    assert {name for name in after if not name.startswith("refs/bullpen")} == set(before)


@pytest.mark.storm
def test_x7_a_child_has_its_branch_for_itself(machine: Machine) -> None:
    """Its name begins with that of the parent's."""
    machine.git("branch", "amy.child")
    was = refs(machine)["refs/heads/amy.child"]
    machine.shell(COMMIT.format("one") + "git branch -f amy.child")
    machine.bring_over()
    assert refs(machine)["refs/heads/amy.child"] == was
    assert subjects(machine, f"{PIN}heads/amy.child")[0] == "one"


@pytest.mark.storm
def test_x7_git_outside_is_as_before(machine: Machine) -> None:
    """An index that it had shared made `gc` and `commit` outside fail."""
    machine.shell(COMMIT.format("one") + "echo staged >staged; git add staged; git commit -qm x;"
                "git reset -q --soft HEAD~1; git gc -q --prune=now")  # fmt: skip
    machine.bring_over()
    unsigned = ("-c", "commit.gpgsign=false")
    assert machine.git("gc", "-q", "--prune=now") == ""
    assert machine.git(*unsigned, "commit", "-q", "--allow-empty", "-m", "Mine") == ""
    assert machine.git("fsck", "--no-dangling") == ""
    assert "staged" in machine.shell("git status --porcelain; git fsck")
    lines = machine.git("worktree", "list").splitlines()
    assert any(line.endswith("[amy]") for line in lines)
    # An attack counts only if it works without the defence: an index that both sides share.
    shutil.copy(in_store(machine, f"worktrees/{machine.store.id}/index"), machine.admin / "index")
    machine.own()
    assert "staged" in machine.git("ls-files", cwd=machine.cwd)
    assert machine.git("gc", "-q", "--prune=now") != ""


@pytest.mark.storm
def test_x7_what_gc_outside_would_prune_is_pinned(machine: Machine) -> None:
    machine.shell("git checkout -q -b topic;" + COMMIT.format("one") + "echo x >>one; git stash -q")
    machine.bring_over()
    machine.shell("git gc -q --prune=now")  # leaves to the outside what is there
    machine.git("reflog", "expire", "--expire=now", "--all")
    machine.git("gc", "-q", "--prune=now")
    assert "one" in machine.shell("git fsck; git log -1 --format=%s; git stash pop -q; cat one")


@pytest.mark.storm
def test_x7_a_detached_agent_brings_its_head(machine: Machine) -> None:
    machine.git("checkout", "-q", "--detach", cwd=machine.cwd)
    before = refs(machine, "refs/heads")
    machine.shell(COMMIT.format("one"))
    assert machine.bring_over().state.branch == ""
    assert subjects(machine, f"{PIN}HEAD") == ["one", "Start"]
    assert refs(machine, "refs/heads") == before
    assert machine.git("log", "-1", "--format=%s", cwd=machine.cwd).strip() == "one"


@pytest.mark.storm
def test_x7_a_sparse_checkout_stays_one(machine: Machine) -> None:
    machine.write("repo/big/file", "big")
    machine.write("repo/small/file", "small")
    machine.own()
    unsigned = ("-c", "commit.gpgsign=false")
    machine.git("add", "big", "small")
    machine.git(*unsigned, "commit", "-qm", "Files")
    machine.git("reset", "-q", "--hard", "main", cwd=machine.cwd)
    machine.git("sparse-checkout", "set", "small", cwd=machine.cwd)
    assert not (machine.cwd / "big").exists()
    machine.shell("echo more >>small/file; git commit -qam More; git status --porcelain -uno")
    machine.bring_over()
    assert machine.git("status", "--porcelain", "-uno", cwd=machine.cwd) == ""
    assert "S big/file" in machine.git("ls-files", "-t", cwd=machine.cwd)
    assert machine.git("show", "amy:big/file") == "big"


@pytest.mark.storm
def test_x7_a_shallow_repository(machine: Machine, tmp_path: Path) -> None:
    for number in range(3):
        machine.git(
            "-c", "commit.gpgsign=false", "commit", "-q", "--allow-empty", "-m", str(number)
        )
    head = machine.git("rev-parse", "main~1").strip()
    (machine.common / "shallow").write_text(f"{head}\n")
    machine.own()
    machine.git("reset", "-q", "--hard", "main", cwd=machine.cwd)
    machine.shell(COMMIT.format("one") + "git log --oneline")
    assert machine.bring_over().state.refused == {}
    assert subjects(machine, "amy") == ["one", "2", "1"]


def borrow_objects(machine: Machine) -> None:
    """As after `git clone --shared`: all objects are in another repository, and in one that that
    one borrows from."""
    base, lower = (machine.root / "elsewhere" / name for name in ("base.git", "lower.git"))
    machine.git("clone", "-q", "--bare", str(machine.repo), str(lower))
    machine.git("clone", "-q", "--bare", "--shared", str(lower), str(base))
    alternates = machine.write("repo/.git/objects/info/alternates", "")
    alternates.write_text(
        f"# borrowed\n{os.path.relpath(base / 'objects', machine.common / 'objects')}\n"
    )
    machine.own()
    machine.git("repack", "-a", "-d", "-l", "-q")
    machine.git("prune-packed", "-q")


@pytest.mark.storm
def test_x7_a_repository_that_borrows_its_objects(machine: Machine) -> None:
    borrow_objects(machine)
    said = machine.shell(COMMIT.format("one") + "git log --format=%s; git fsck --no-dangling 2>&1")
    assert said == "one\nStart\n"
    assert machine.bring_over().state.refused == {}
    assert subjects(machine, "amy") == ["one", "Start"]
    assert machine.git("fsck", "--no-dangling") == ""
    # Read-only, and without that not.
    attack = "find /run/bullpen/git/alternates -type f | xargs chmod u+w"
    assert machine.run(["sh", "-c", attack]).returncode != 0
    machine.shell(attack, without={"git-borrowed"})


# ── both sides ───────────────────────────────────────────────────────────────


def commit_outside(machine: Machine, ref: str, subject: str) -> str:
    tree = machine.git("rev-parse", f"{ref}^{{tree}}").strip()
    made = machine.git("commit-tree", "-m", subject, "-p", ref, tree).strip()
    machine.git("update-ref", ref, made)
    return made


@pytest.mark.storm
def test_x7_refs_outside_come_in_and_what_it_changed_stays_its_own(machine: Machine) -> None:
    machine.shell("git branch -f other $(git commit-tree -m mine HEAD^{tree}); git pack-refs --all;"
                + COMMIT.format("one"))  # fmt: skip
    theirs = commit_outside(machine, "refs/heads/bob", "Theirs")
    commit_outside(machine, "refs/heads/other", "Also theirs")
    machine.git("branch", "-D", "spare")
    machine.git("branch", "fresh", theirs)
    said = machine.shell("git log -1 --format=%s bob; git log -1 --format=%s other; git branch")
    assert said.splitlines()[:2] == ["Theirs", "mine"]
    assert "fresh" in said
    assert "spare" not in said
    # Its own branch was not thrown back, and another's work can be merged.
    assert "one" in machine.shell("git merge -q -m Merged bob; git log --format=%s")
    machine.bring_over()
    assert subjects(machine, "amy")[0] == "Merged"


@pytest.mark.storm
def test_x7_settings_outside_come_in(machine: Machine) -> None:
    machine.shell("git config user.nickname mine")
    assert machine.shell("git config user.nickname") == "mine\n"
    machine.git("config", "remote.origin.url", "https://example.com/x")
    assert machine.shell("git config remote.origin.url") == "https://example.com/x\n"


@pytest.mark.storm
def test_x7_its_branch_follows_if_it_was_moved_outside_only(machine: Machine) -> None:
    machine.shell(COMMIT.format("one") + "echo mine >>one")
    machine.bring_over()
    theirs = commit_outside(machine, "refs/heads/amy", "Theirs")
    assert machine.bring_over().state.diverged == ""
    said = machine.shell("git log --format=%s; git status --porcelain -uno; cat one")
    assert said.splitlines() == ["Theirs", "one", "Start", " M one", "one", "mine"]
    assert refs(machine)["refs/heads/amy"] == theirs
    machine.shell("git commit -qam two")
    machine.bring_over()
    assert subjects(machine, "amy") == ["two", "Theirs", "one", "Start"]


@pytest.mark.storm
def test_x7_without_compare_and_swap_a_commit_is_overwritten(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attack counts only if it works without the defence."""
    monkeypatch.setattr(bringing, "decide", lambda *_, **__: "move")
    machine.shell(COMMIT.format("one"))
    machine.bring_over()
    commit_outside(machine, "refs/heads/amy", "Theirs")
    machine.shell(COMMIT.format("two"))
    machine.bring_over()
    assert subjects(machine, "amy") == ["two", "one", "Start"]


@pytest.mark.storm
def test_x7_nobodys_commit_is_overwritten_when_both_have_moved_it(machine: Machine) -> None:
    machine.shell(COMMIT.format("one"))
    machine.bring_over()
    theirs = commit_outside(machine, "refs/heads/amy", "Theirs")
    machine.shell(COMMIT.format("two"))
    outcome = machine.bring_over()
    assert outcome.state.diverged == theirs
    assert any("diverged" in text for text in outcome.told)
    assert refs(machine)["refs/heads/amy"] == theirs
    assert subjects(machine, f"{PIN}heads/amy") == ["two", "one", "Start"]
    assert machine.bring_over().told == ()
    # It finds the other side, and goes on from there.
    machine.shell("git merge -q -m Merged refs/bullpen/outside/amy")
    outcome = machine.bring_over()
    assert outcome.state.diverged == ""
    assert subjects(machine, "amy")[0] == "Merged"
    assert "bullpen/outside" not in machine.shell("git for-each-ref")


@pytest.mark.storm
def test_x7_a_branch_that_was_set_back_outside_stays_there(machine: Machine) -> None:
    start = refs(machine)["refs/heads/amy"]
    machine.shell(COMMIT.format("one"))
    machine.bring_over()
    machine.git("update-ref", "refs/heads/amy", start)
    machine.shell(COMMIT.format("two"))
    assert machine.bring_over().state.diverged == start
    assert refs(machine)["refs/heads/amy"] == start
    # The agent drops what the person dropped, and goes on.
    machine.shell("git rebase -q --onto refs/bullpen/outside/amy HEAD~1")
    assert machine.bring_over().state.diverged == ""
    assert subjects(machine, "amy") == ["two", "Start"]


@pytest.mark.storm
def test_x7_a_history_without_its_beginning_stays_inside(machine: Machine) -> None:
    """Git takes nothing of it over, and says that all went well."""
    start = refs(machine)["refs/heads/amy"]
    machine.shell(
        "echo x >x; git add x; tree=$(git write-tree); name='a <a@b> 1 +0000';"
        ' text="tree $tree\nparent 1111111111111111111111111111111111111111\n";'
        ' text="${text}author $name\ncommitter $name\n\nghost\n";'
        ' ghost=$(printf "$text" | git hash-object -t commit -w --stdin --literally);'
        ' echo $ghost >"$(git rev-parse --git-common-dir)/shallow";'
        " git update-ref refs/heads/amy $ghost"
    )
    outcome = machine.bring_over()
    assert refs(machine)["refs/heads/amy"] == start
    assert "shallow" in outcome.state.refused["heads/amy"]
    assert machine.git("fsck", "--no-dangling") == ""
    assert not cleared(machine), "what did not come over is there alone"


@pytest.mark.storm
def test_x7_a_sparse_checkout_is_kept(machine: Machine) -> None:
    machine.shell(COMMIT.format("one") + "git sparse-checkout set --no-cone /one")
    machine.bring_over()
    assert not cleared(machine), "a new one would have all files, and none of them is there"


@pytest.mark.storm
def test_x7_a_branch_that_another_worktree_is_on_does_not_move(machine: Machine) -> None:
    machine.shell("git branch amy.kid")
    machine.bring_over()
    there = refs(machine)["refs/heads/amy.kid"]
    machine.git("worktree", "add", "-q", str(machine.root / "kid"), "amy.kid")
    machine.shell(COMMIT.format("one") + "git branch -f amy.kid")
    machine.bring_over()
    assert refs(machine)["refs/heads/amy.kid"] == there
    assert subjects(machine, f"{PIN}heads/amy.kid")[0] == "one"


@pytest.mark.storm
def test_x7_a_branch_that_was_deleted_outside_is_not_made_again(machine: Machine) -> None:
    machine.shell(COMMIT.format("one"))
    machine.bring_over()
    machine.git("update-ref", "-d", "refs/heads/amy")
    machine.shell(COMMIT.format("two"))
    assert machine.bring_over().state.diverged == "deleted"
    assert "refs/heads/amy" not in refs(machine)
    assert subjects(machine, f"{PIN}heads/amy")[0] == "two"


class _Any:
    """The same as everything."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _: object) -> bool:
        return True


ANY = _Any()


@pytest.mark.storm
def test_x7_a_branch_that_was_renamed_outside_is_renamed_inside(machine: Machine) -> None:
    machine.shell(COMMIT.format("one"))
    machine.bring_over()
    machine.shell(COMMIT.format("two"))  # not brought over yet
    machine.git("branch", "-m", "amy", "login")
    assert machine.bring_over().state.branch == "login"
    assert "refs/heads/amy" not in refs(machine)
    assert subjects(machine, "login") == ["two", "one", "Start"]
    assert (
        machine.shell("git symbolic-ref HEAD; git status --porcelain -uno") == "refs/heads/login\n"
    )
    assert machine.git("status", "--porcelain", "-uno", "-b", cwd=machine.cwd) == "## login\n"
    machine.shell(COMMIT.format("three"))
    assert machine.bring_over().state.diverged == ""
    assert subjects(machine, "login")[0] == "three"
    assert "refs/heads/amy" not in refs(machine)


@pytest.mark.storm
def test_x7_a_branch_that_was_deleted_outside_goes_inside_if_it_has_no_commit_since(
    machine: Machine,
) -> None:
    machine.shell(COMMIT.format("one"))
    machine.bring_over()
    machine.git("update-ref", "-d", "refs/heads/amy")
    outcome = machine.bring_over()
    assert (outcome.state.diverged, outcome.told) == ("", ())
    assert "refs/heads/amy" not in refs(machine)
    # At the commit where it was, on both sides; never on a branch that is not there.
    assert machine.git("log", "-1", "--format=%s", "HEAD", cwd=machine.cwd) == "one\n"
    assert machine.git("status", "--porcelain", "-uno", cwd=machine.cwd) == ""
    said = machine.shell(
        "git branch --list amy; git log -1 --format=%s; git status --porcelain -uno"
    )
    assert said == "one\n"
    machine.shell(COMMIT.format("two") + "git checkout -q -b amy")
    machine.bring_over()
    assert subjects(machine, "amy")[0] == "two"


@pytest.mark.storm
def test_x7_lfs_objects_come_over_by_their_hash(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = hashlib.sha256(b"large").hexdigest(), hashlib.sha256(b"other").hexdigest()
    for name in (good, bad):
        directory = f"$(git rev-parse --git-common-dir)/lfs/objects/{name[:2]}/{name[2:4]}"
        machine.shell(f"mkdir -p {directory}; printf large >{directory}/{name}")
    outcome = machine.bring_over()
    objects = machine.repo / ".git" / "lfs" / "objects"
    files = [path for path in objects.rglob("*") if path.is_file() and path.name != LFS_OBJECT]
    assert [(path.name, path.read_text()) for path in files] == [(good, "large")]
    assert list(outcome.state.refused) == [f"lfs/{bad}"]
    assert not cleared(machine), "what did not come over is there alone"
    # An attack counts only if it works without the defence.
    with monkeypatch.context() as without:
        unchecked = SimpleNamespace(hexdigest=lambda: ANY)
        without.setattr(lfs, "hashlib", SimpleNamespace(sha256=lambda _: unchecked))
        assert machine.bring_over().state.refused == {}
    assert (objects / bad[:2] / bad[2:4] / bad).read_text() == "large"


@pytest.mark.storm
def test_x7_lfs_objects_that_are_too_many_at_once_keep_the_store(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that was cut said nothing of the rest, and the store was cleared."""
    monkeypatch.setattr(lfs, "MOST_AT_ONCE", 2)
    names = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(3)]
    script = "cd $(git rev-parse --git-common-dir);"
    for number, name in enumerate(names):
        directory = f"lfs/objects/{name[:2]}/{name[2:4]}"
        script += f"mkdir -p {directory}; printf {number} >{directory}/{name};"
    machine.shell(script)
    assert list(machine.bring_over().state.refused) == ["lfs"]
    assert not cleared(machine)
    assert machine.bring_over().state.refused == {}
    objects = machine.common / "lfs" / "objects"
    assert {path.name for path in objects.rglob("*") if path.is_file()} >= set(names)
    assert cleared(machine)


# ── submodules ───────────────────────────────────────────────────────────────


def with_submodule(machine: Machine) -> None:
    """The worktree as `worktrees.create` makes it."""
    library, allow = machine.root / "elsewhere" / "library", ("-c", "protocol.file.allow=always")
    unsigned = ("-c", "commit.gpgsign=false")
    machine.outside(["git", "init", "-q", "-b", "main", str(library)])
    machine.git(*unsigned, "commit", "-q", "--allow-empty", "-m", "Library", cwd=library)
    machine.git(*allow, "submodule", "--quiet", "add", str(library), "lib")
    machine.git(*unsigned, "commit", "-qm", "Add lib")
    machine.git("reset", "-q", "--hard", "main", cwd=machine.cwd)
    repo, checkout = (
        Repository(machine.common, machine.common, None),
        Checkout(machine.cwd, machine.admin),
    )
    machine.inside(lambda _: submodules.initialise(repo, checkout, "main"))


@pytest.mark.storm
def test_x7_commits_of_submodules_come_over_with_the_commits_that_name_them(
    machine: Machine,
) -> None:
    with_submodule(machine)
    said = machine.shell("git submodule status --recursive; git status --porcelain -uno")
    assert said.splitlines()[0].startswith(" ")
    assert len(said.splitlines()) == 1
    machine.shell(
        "cd lib; echo x >x; git add x; git commit -qm Inside; cd ..; git commit -qam Newer"
    )
    assert machine.bring_over().state.refused == {}
    assert subjects(machine, "amy")[0] == "Newer"
    assert machine.git("log", "-1", "--format=%s", cwd=machine.cwd / "lib").strip() == "Inside"
    assert machine.git("status", "--porcelain", "-uno", cwd=machine.cwd) == ""
    # Nothing in it is missing outside; and it goes on from there.
    assert cleared(machine)
    said = machine.shell("git status --porcelain -uno; cd lib; git log --format=%s; git fsck")
    assert said.splitlines()[:2] == ["Inside", "Library"]
    # The person's own is as it was.
    assert machine.git("log", "--format=%s", cwd=machine.repo / "lib") == "Library\n"


@pytest.mark.storm
def test_x7_a_gitlink_to_a_commit_that_is_nowhere_outside_never_lands(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_submodule(machine)
    start = refs(machine)["refs/heads/amy"]
    nowhere = "1234567890" * 4
    machine.shell(
        f"git update-index --cacheinfo 160000,{nowhere},lib; git commit -qm Nowhere;"
        "git checkout -q --no-recurse-submodules -b amy.part"
    )
    outcome = machine.bring_over()
    assert set(outcome.state.refused) == {"HEAD", "heads/amy", "heads/amy.part"}
    assert any("lib is at 123456789012" in text for text in outcome.told)
    assert refs(machine, "refs/heads/amy") == {"refs/heads/amy": start}
    assert machine.git("rev-parse", "HEAD", cwd=machine.cwd).strip() == start
    assert not cleared(machine)
    # Also in the middle of what comes over.
    machine.shell(
        "git commit -q --allow-empty -m Then; git rm -q --cached lib; git commit -qm Gone"
    )
    assert "heads/amy.part" in machine.bring_over().state.refused
    # An attack counts only if it works without the defence.
    with monkeypatch.context() as without:
        without.setattr(bringing, "refuse_lost_links", lambda *_: {})
        machine.bring_over()
    assert "1234567890" in machine.git("ls-tree", "amy", "lib")
    machine.git("update-ref", "refs/heads/amy", start)
    machine.shell(f"git reset -q --soft {start}; git checkout -q -B amy; git branch -D amy.part;"
                "git reset -q; git commit -q --allow-empty -m Mended")  # fmt: skip
    assert machine.bring_over().state.refused == {}
    assert subjects(machine, "amy")[0] == "Mended"


@pytest.mark.storm
def test_x7_git_outside_works_after_a_submodule_was_made_inside(machine: Machine) -> None:
    machine.shell(
        "git init -q /tmp/new; git -C /tmp/new commit -q --allow-empty -m New;"
        "git -c protocol.file.allow=always submodule --quiet add /tmp/new new; git commit -qm Added"
    )
    assert machine.bring_over().state.refused == {}
    assert machine.git("status", "--porcelain", "-uno", cwd=machine.cwd) == ""
    assert machine.git("log", "--format=%s", cwd=machine.cwd / "new") == "New\n"
    assert subjects(machine, "amy")[0] == "Added"


# ── attacks on the bring-over ────────────────────────────────────────────────


def secret_repository(machine: Machine) -> str:
    """Another repository of the person, out of the agent's sight."""
    other = machine.root / "elsewhere" / "other"
    machine.outside(["git", "init", "-q", str(other)])
    (other / "secret").write_text("secret of the person")
    machine.own()
    machine.git("add", ".", cwd=other)
    machine.git("-c", "commit.gpgsign=false", "commit", "-qm", "Secret", cwd=other)
    return machine.git("rev-parse", "HEAD", cwd=other).strip()


def in_store(machine: Machine, path: str) -> Path:
    return machine.store.git / path


def plant(machine: Machine, info: Path, *, is_link: bool) -> None:
    """What an agent could do if it could write to `objects/info`, too."""
    other, commit = machine.root / "elsewhere" / "other", secret_repository(machine)
    with (info / "alternates").open("a") as file:
        file.write(f"{other}/.git/objects\n")
    ref = in_store(machine, "refs/heads/loot")
    ref.parent.mkdir(exist_ok=True)
    if is_link:
        ref.symlink_to(next((other / ".git" / "refs" / "heads").iterdir()))
    else:
        ref.write_text(f"{commit}\n")
    machine.own()


@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.storm
def test_x7_nothing_of_another_repository_comes_in(machine: Machine, is_link: bool) -> None:
    machine.shell(COMMIT.format("one"))
    plant(machine, machine.store.info, is_link=is_link)
    outcome = machine.bring_over()
    assert f"{PIN}heads/loot" not in refs(machine)
    assert subjects(machine, "amy") == ["one", "Start"], outcome


@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.storm
def test_x7_without_a_sandbox_it_would(machine: Machine, is_link: bool) -> None:
    machine.shell(COMMIT.format("one"))
    without = plain_store(machine)
    plant(machine, in_store(machine, "objects/info"), is_link=is_link)
    machine.bring_over(without)
    assert machine.git("show", f"{PIN}heads/loot:secret") == "secret of the person"


@pytest.mark.parametrize("is_protected", [True, False])
@pytest.mark.few(1)
def test_x7_a_refresh_follows_no_link(machine: Machine, is_protected: bool) -> None:
    """Git by itself follows a link to a directory. To one at `packed-refs.new` it does not write:
    what was overwritten there was so by a plain write from outside."""
    target, directory = machine.person / ".bashrc", machine.person / ".config" / "planted"
    target.write_text("of the person\n")
    directory.mkdir(parents=True)
    machine.shell("git pack-refs --all")
    in_store(machine, "packed-refs.new").symlink_to(target)
    in_store(machine, "refs/zz").symlink_to(directory)
    without = None if is_protected else plain_store(machine)
    machine.own()
    machine.git("update-ref", "refs/zz/evil", "main")
    machine.inside(lambda inside: refresh(machine.store, inside), without)
    assert target.read_text() == "of the person\n"
    assert bool(list(directory.iterdir())) != is_protected
    if not is_protected:
        in_store(machine, "packed-refs.new").write_text("of the agent\n")
        assert target.read_text() == "of the agent\n"


@pytest.mark.storm
def test_x7_pipes_and_too_much_output_keep_nobody_waiting(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inside_module, "SECONDS", 2.0)
    machine.shell(COMMIT.format("one"))
    os.mkfifo(in_store(machine, "refs/pipe"))
    machine.own()
    # An attack counts only if it works without the defence: git itself waits for it.
    with pytest.raises(subprocess.TimeoutExpired):
        words = ["git", "--git-dir", str(machine.store.git), "for-each-ref"]
        subprocess.run(words, env=machine.env, timeout=1, check=False, **machine.identity)
    with pytest.raises(Exception, match=r"did not end|cannot look"):
        machine.bring_over()
    in_store(machine, "refs/pipe").unlink()
    monkeypatch.setattr(inside_module, "SECONDS", 60.0)
    monkeypatch.setattr(inside_module, "MOST_BYTES", 1 << 16)
    with in_store(machine, "packed-refs").open("a") as file:
        oid = refs(machine)["refs/heads/main"]
        file.writelines(f"{oid} refs/zz/{number:06}\n" for number in range(20_000))
    with pytest.raises(Exception, match="says too much"):
        machine.bring_over()
    monkeypatch.setattr(inside_module, "MOST_BYTES", 1 << 30)
    assert machine.inside(lambda one: len(bringing.look(one).refs)) > 20_000


@pytest.mark.storm
def test_x7_a_pack_that_is_too_large_is_refused_and_told(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inside_module, "MOST_PACK_BYTES", 1 << 16)
    machine.shell(COMMIT.format("one"))
    machine.bring_over()
    machine.shell("head -c 3000000 /dev/urandom >big; git add big; git commit -qm Big")
    outcome = machine.bring_over()
    assert subjects(machine, "amy") == ["one", "Start"]
    assert "heads/amy" in outcome.state.refused
    assert any("heads/amy was not brought over" in text for text in outcome.told)
    assert (
        find_work(machine).unknown.startswith("HEAD was not")
        or "heads/amy" in find_work(machine).unknown
    )
    # Without that limit it comes.
    monkeypatch.setattr(inside_module, "MOST_PACK_BYTES", 1 << 30)
    assert machine.bring_over().state.refused == {}
    assert subjects(machine, "amy")[0] == "Big"


@pytest.mark.storm
def test_x7_an_object_that_is_not_what_it_is_called_never_gets_out(machine: Machine) -> None:
    machine.shell(COMMIT.format("one") + "echo good >good; git add good; git commit -qm Good")
    blob = machine.shell("git rev-parse HEAD:good").strip()
    evil = machine.shell("echo evil | git hash-object -w --stdin").strip()
    objects = machine.store.objects
    (objects / blob[:2] / blob[2:]).chmod(0o644)
    shutil.copy(objects / evil[:2] / evil[2:], objects / blob[:2] / blob[2:])
    machine.own()
    assert machine.shell("git cat-file blob HEAD:good") == "evil\n"
    outcome = machine.bring_over()
    assert "heads/amy" in outcome.state.refused
    assert machine.git("rev-parse", "amy") == machine.git("rev-parse", "main")
    assert machine.git("fsck", "--no-dangling") == ""
    # Nor under the id of one that is outside already.
    was = refs(machine)["refs/heads/main"]
    (objects / was[:2]).mkdir(exist_ok=True)
    shutil.copy(objects / evil[:2] / evil[2:], objects / was[:2] / was[2:])
    assert machine.git("cat-file", "-t", "main").strip() == "commit"
    # An attack counts only if it works without the defence: objects that both sides share.
    shared = machine.common / "objects"
    shutil.copytree(objects, shared, copy_function=copy_over, dirs_exist_ok=True)
    machine.own()
    assert machine.git("cat-file", "blob", blob) == "evil\n"


@pytest.mark.storm
def test_x7_one_that_does_not_verify_keeps_no_other_back(machine: Machine) -> None:
    machine.shell(
        COMMIT.format("one")
        + "oid=$(git commit-tree -m bad -p HEAD HEAD^{tree}); git update-ref refs/heads/bad $oid;"
        + "rm -f .git/x; d=$(git rev-parse --git-common-dir)/objects;"
        + "tree=$(echo '100644 blob 1234567890123456789012345678901234567890\tlost' | "
        + "git mktree --missing); c=$(git commit-tree -m lost $tree);"
        + "git update-ref refs/heads/lost $c"
    )
    outcome = machine.bring_over()
    assert set(outcome.state.refused) == {"heads/lost"}
    assert subjects(machine, "amy") == ["one", "Start"]
    assert subjects(machine, f"{PIN}heads/bad")[0] == "bad"


@pytest.mark.storm
def test_x7_a_name_that_became_a_directory_stands_in_nobodys_way(machine: Machine) -> None:
    machine.shell("git checkout -q -b a;" + COMMIT.format("one"))
    machine.bring_over()
    machine.shell("git checkout -q amy; git branch -D -q a; git checkout -q -b a/b;"
                + COMMIT.format("two"))  # fmt: skip
    assert machine.bring_over().state.refused == {}
    assert subjects(machine, f"{PIN}heads/a/b")[0] == "two"
    kept = [name for name in refs(machine) if name.startswith(f"{PIN}old/")]
    assert [subjects(machine, name)[0] for name in kept] == ["one"]


# ── clearing ─────────────────────────────────────────────────────────────────


def find_work(machine: Machine):
    return machine.inside(lambda _: find_private_work(machine.store))


def cleared(machine: Machine) -> bool:
    return machine.inside(lambda inside: clear(machine.store, inside))


@pytest.mark.storm
def test_x7_it_is_cleared_when_nothing_in_it_is_missing_outside(machine: Machine) -> None:
    machine.shell(COMMIT.format("one"))
    assert not cleared(machine)  # not brought over
    machine.bring_over()
    assert cleared(machine)
    assert not machine.store.exists
    assert not [name for name in refs(machine) if name.startswith(PIN)]
    assert machine.git("fsck", "--no-dangling") == ""
    # And goes on as if it had never been away.
    assert machine.shell("git status --porcelain -uno; git log --format=%s") == "one\nStart\n"


@pytest.mark.parametrize(
    "script",
    [
        "echo x >>one; git stash -q",
        "git checkout -q -b topic; git commit -q --allow-empty -m x; git checkout -q amy",
        "git checkout -q -b topic",
        "git tag -a -m x mark",
        "git config branch.amy.merge refs/heads/main",
        'echo mine >>"$(git rev-parse --git-common-dir)/info/exclude"',
        "echo x >>one; git add one; echo y >>one",
        "git checkout -q -b t; echo x >one; git commit -qam x; git checkout -q amy;"
        "echo y >one; git commit -qam y; git merge -q t || true",
        "tree=$(echo '100644 blob 1234567890123456789012345678901234567890\tlost' |"
        " git mktree --missing); git update-ref refs/heads/l $(git commit-tree -m l $tree)",
    ],
)
@pytest.mark.few(2)
def test_x7_it_stays_while_something_is_in_it_alone(machine: Machine, script: str) -> None:
    machine.shell(COMMIT.format("one"))
    machine.bring_over()
    machine.shell(script)
    machine.bring_over()
    assert not cleared(machine)
    assert machine.store.exists


@pytest.mark.storm
def test_x7_without_a_look_a_store_is_cleared_too_early(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attack counts only if it works without the defence."""
    machine.shell(COMMIT.format("one") + "echo x >>one; git stash -q")
    machine.bring_over()
    assert not cleared(machine)
    monkeypatch.setattr(private_work, "find_private_work", lambda _: private_work.NOTHING)
    monkeypatch.setattr(private_work, "_is_plain", lambda *_: True)
    assert cleared(machine)
    assert machine.shell("git stash list") == ""


@pytest.mark.storm
def test_x7_a_stash_that_was_dropped_keeps_no_worktree(machine: Machine) -> None:
    machine.shell(COMMIT.format("one") + "echo x >>one; git stash -q; echo y >>one; git stash -q")
    machine.bring_over()
    newer = refs(machine)[f"{PIN}stash/0"]
    assert find_work(machine).names == ("stash/0", "stash/1")
    machine.shell("git stash drop -q")
    machine.bring_over()
    assert find_work(machine).names == ("stash/0",)
    machine.shell("git stash drop -q")
    machine.bring_over()
    assert find_work(machine) == private_work.NOTHING
    kept = refs(machine, "refs/bullpen/kept/amy.stash")
    assert newer in kept.values()
    assert len(kept) == 2
    assert cleared(machine)


@pytest.mark.storm
def test_x7_it_stays_while_a_sandbox_runs(machine: Machine) -> None:
    child = machine.start(machine.wrap(["sh", "-c", "echo ready; read line"], machine.policy()))
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    try:
        wait_until(lambda: is_in_use(machine.store))
        machine.bring_over()
        assert not load_state(machine.store).is_final
        assert not cleared(machine)
    finally:
        child.communicate(b"\n", timeout=60)
    wait_until(lambda: not is_in_use(machine.store))
    machine.bring_over()
    # One that is about to begin has no lock yet.
    machine.inside(lambda _: begin_use(machine.store))
    assert not cleared(machine)
    machine.bring_over()
    assert cleared(machine)


@pytest.mark.storm
def test_x7_state_of_before_is_carried_over(machine: Machine) -> None:
    """An agent that an older hub started wrote into the repository's own directories."""
    machine.write("home/worktrees/amy/staged", "staged")
    machine.own()
    machine.git("add", "staged", cwd=machine.cwd)
    machine.git("-c", "commit.gpgsign=false", "commit", "-qm", "Before", cwd=machine.cwd)
    machine.write("home/worktrees/amy/more", "more")
    machine.own()
    machine.git("add", "more", cwd=machine.cwd)
    said = machine.shell("git status --porcelain -uno; git log --format=%s; git reflog -1")
    assert said.splitlines()[:3] == ["A  more", "Before", "Start"]
    assert "Before" in said.splitlines()[3]
    machine.shell("git commit -qm More")
    machine.bring_over()
    assert subjects(machine, "amy") == ["More", "Before", "Start"]


def test_x7_a_sandbox_of_the_store_shows_nothing_of_the_person(machine: Machine) -> None:
    machine.shell("true")
    paths = (
        machine.person,
        machine.home,
        machine.cwd,
        machine.root / "elsewhere",
        machine.common / "bullpen",
    )
    script = f"ls -d {' '.join(map(str, paths))} 2>/dev/null; cat /proc/net/dev | wc -l; echo end"
    said = machine.inside(lambda inside: inside.run(script)).text
    assert said == "3\nend\n"  # two lines of headings, and the loopback
