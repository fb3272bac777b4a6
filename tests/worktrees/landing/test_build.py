"""N3: what is built on a target, by each strategy, with real git."""

import os
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Site, Spec
from bullpen.worktrees.conflicts import Merged, find_conflicts, merge_pairs, parse_merges
from bullpen.worktrees.landing.build import build
from bullpen.worktrees.landing.signature import find_person
from bullpen.worktrees.merged import standing
from tests.worktrees.landing.works import ANN, built, head_of, land, make_person, tree_of, work_of
from tests.worktrees.repos import assert_healthy, commit, git, refs


def log_of(repo: Path, form: str, span: str) -> list[str]:
    return git(repo, "log", f"--format={form}", span).splitlines()


def test_n3_a_merge_keeps_both_parents_and_is_the_persons(site: Site, repo: Path) -> None:
    tree_of(site, "amy", a_txt="a\n")
    old = head_of(site, "main")
    result = built(site, "amy")
    assert git(repo, "rev-parse", "main") == old, "nothing has moved yet"
    assert git(repo, "rev-parse", f"{result.commit}^1", f"{result.commit}^2").split() == [
        old,
        head_of(site, "amy"),
    ]
    assert log_of(repo, "%an %cn %s", f"{result.commit}^!") == ["Ann Ann Merge branch 'amy'"]
    assert git(repo, "show", f"{result.commit}:a.txt") == "a"


def test_n3_a_merge_does_not_fast_forward(site: Site, repo: Path) -> None:
    tree_of(site, "amy", a_txt="a\n")
    result, _ = land(site, "amy")
    assert result.commit != head_of(site, "amy")
    assert len(git(repo, "rev-list", "--parents", "-n1", "main").split()) == 3


def test_n3_a_squash_of_one_author_is_that_authors_and_the_person_commits(
    site: Site, repo: Path
) -> None:
    tree_of(site, "amy", a_txt="a\n", b_txt="b\n")
    result = built(site, "amy", "squash")
    assert log_of(repo, "%an <%ae> · %cn", f"{result.commit}^!") == [
        "Tess <tess@example.com> · Ann"
    ]
    message = git(repo, "log", "-1", "--format=%B", result.commit)
    assert message.splitlines() == ["Land amy", "", "* Add a.txt", "* Add b.txt"]
    assert len(git(repo, "rev-list", "--parents", "-n1", result.commit).split()) == 2


def test_n3_a_squash_of_several_authors_is_the_agents_and_names_them(
    site: Site, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tree_of(site, "amy", a_txt="a\n")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Bea")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "bea@example.com")
    commit(path, "b.txt")
    result = built(site, "amy", "squash")
    assert log_of(repo, "%an", f"{result.commit}^!") == ["amy"]
    assert git(repo, "log", "-1", "--format=%(trailers:only)", result.commit).splitlines() == [
        "Co-authored-by: Tess <tess@example.com>",
        "Co-authored-by: Bea <bea@example.com>",
    ]


def test_n3_a_squash_of_one_commit_keeps_its_subject(site: Site, repo: Path) -> None:
    tree_of(site, "amy", a_txt="a\n")
    assert log_of(repo, "%s", f"{built(site, 'amy', 'squash').commit}^!") == ["Add a.txt"]


def test_n3_a_rebase_keeps_authors_dates_and_messages(site: Site, repo: Path) -> None:
    path = tree_of(site, "amy")
    (path / "a.txt").write_text("a\n")
    git(path, "add", "a.txt")
    git(path, "commit", "-qm", "One\n\nwith a body", "--date=2001-02-03T04:05:06+0200")
    commit(path, "b.txt")
    commit(repo, "main.txt")
    result = built(site, "amy", "rebase")
    assert log_of(repo, "%an %cn %aI %s", f"main..{result.commit}")[1] == (
        "Tess Ann 2001-02-03T04:05:06+02:00 One"
    )
    assert "with a body" in git(repo, "log", "-1", "--format=%B", f"{result.commit}~1")
    assert git(repo, "rev-parse", f"{result.commit}~2") == head_of(site, "main")


def test_n3_a_rebase_on_a_target_that_has_not_moved_is_the_branch_itself(site: Site) -> None:
    tree_of(site, "amy", a_txt="a\n")
    assert built(site, "amy", "rebase").commit == head_of(site, "amy")


def test_n3_a_rebase_of_a_branch_with_merges_is_refused(site: Site, repo: Path, failing) -> None:
    path = tree_of(site, "amy", a_txt="a\n")
    commit(repo, "main.txt")
    git(path, "merge", "-q", "--no-ff", "-m", "Merge main", "main")
    error = failing("INVALID", built, site, "amy", "rebase")
    assert "merges" in error.message
    assert built(site, "amy", "squash").commit


@pytest.mark.parametrize("strategy", ["merge", "squash", "rebase"])
def test_n3_conflicts_are_named_and_nothing_moves(site: Site, repo: Path, strategy: str) -> None:
    tree_of(site, "amy", file0_txt="amy\n", deep__x_txt="amy\n")
    commit(repo, "file0.txt", "main\n")
    commit(repo, "deep/x.txt", "main\n")
    before = git(repo, "for-each-ref")
    assert "file0.txt" in built(site, "amy", strategy).conflicts
    assert git(repo, "for-each-ref") == before


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["merge", "squash", "rebase"])
def test_n3_what_is_there_already_makes_no_commit(site: Site, repo: Path, strategy: str) -> None:
    tree_of(site, "amy")
    result = built(site, "amy", strategy)
    assert (result.is_there, result.commit) == (True, head_of(site, "main"))
    tree_of(site, "amy", a_txt="a\n")
    land(site, "amy", strategy)
    again = built(site, "amy", strategy)
    assert (again.is_there, again.commit) == (True, head_of(site, "main"))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["merge", "squash", "rebase"])
@pytest.mark.parametrize("first", ["squash", "rebase"])
@pytest.mark.few(2)
def test_n3_after_a_squash_only_what_came_later_lands(
    site: Site, repo: Path, first: str, strategy: str
) -> None:
    """Without the remembered tip this conflicts: both sides changed the same line since."""
    path = tree_of(site, "amy", file0_txt="amy\n")
    commit(repo, "other.txt")
    land(site, "amy", first)
    commit(repo, "file0.txt", "amy, then main\n")
    commit(path, "later.txt")
    result, _ = land(site, "amy", strategy)
    assert git(repo, "show", "main:file0.txt") == "amy, then main"
    assert git(repo, "show", "main:later.txt") == "text"
    if strategy != "merge":
        assert log_of(repo, "%s", f"{result.commit}^!") == ["Add later.txt"]


@pytest.mark.slow
def test_n3_a_target_that_was_set_back_gets_all_of_it_again(site: Site, repo: Path) -> None:
    path = tree_of(site, "amy", a_txt="a\n")
    old = head_of(site, "main")
    land(site, "amy", "squash")
    git(repo, "reset", "-q", "--hard", old)
    commit(path, "later.txt")
    land(site, "amy", "squash")
    assert git(repo, "show", "main:a.txt") == "a"


@pytest.mark.slow
def test_n5_a_branch_that_landed_by_a_squash_may_go(site: Site, repo: Path) -> None:
    """Also in a branch that is not its base, and in two pieces: no commit has the same patch."""
    git(repo, "branch", "staging")
    path = tree_of(site, "amy", a_txt="a\n")
    land(site, "amy", "squash", "staging")
    commit(path, "b.txt")
    tip = head_of(site, "amy")
    assert not standing(site.repo, "amy", tip, ["main"]).may_go
    land(site, "amy", "squash", "staging")
    assert standing(site.repo, "amy", tip, ["main"]).may_go
    git(repo, "branch", "-f", "staging", "main")
    assert not standing(site.repo, "amy", tip, ["main"]).may_go, "the target lost it again"


@pytest.mark.slow
def test_n5_what_was_remembered_goes_with_the_branch(site: Site, repo: Path) -> None:
    tree_of(site, "amy", a_txt="a\n")
    land(site, "amy", "squash")
    assert len(refs(site, "refs/bullpen/landed")) == 2
    assert worktrees.remove(site, "amy").branch == "amy"
    assert refs(site, "refs/bullpen/landed") == set()
    assert_healthy(site)


def test_n3_an_unrelated_history_does_not_land(site: Site, repo: Path, failing) -> None:
    path = tree_of(site, "amy")
    git(path, "checkout", "-q", "--orphan", "fresh")
    git(path, "commit", "-qm", "Other")
    git(repo, "branch", "-f", "lost", "fresh")
    work = work_of(site, "lost")
    error = failing("INVALID", build, site.repo, work, head_of(site, "main"), "main", ANN)
    assert "no commit in common" in error.message


def test_n3_who_lands_is_the_person_of_the_configuration(repo: Path, failing, site: Site) -> None:
    error = failing("INVALID", find_person, site.repo)
    assert "git config --global user.name" in error.hint
    assert (make_person(repo).name, make_person(repo).email) == ("Ann", "ann@example.com")
    git(repo, "config", "committer.name", "Ann at work")
    assert find_person(site.repo).name == "Ann at work"


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["merge", "squash", "rebase"])
def test_n3_hooks_and_replaced_objects_do_not_count(
    site: Site, repo: Path, tmp_path: Path, strategy: str
) -> None:
    mark = tmp_path / "ran"
    hooks = repo / ".git" / "hooks"
    for name in ("pre-commit", "commit-msg", "post-merge", "reference-transaction", "post-commit"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (hooks / name).chmod(0o755)
    path = tree_of(site, "amy")
    mark.unlink(missing_ok=True)
    (path / "a.txt").write_text("a\n")
    git(path, "-c", "core.hooksPath=/dev/null", "add", "a.txt")
    git(path, "-c", "core.hooksPath=/dev/null", "commit", "-qm", "Add a")
    mark.unlink(missing_ok=True)
    land(site, "amy", strategy)
    assert not mark.exists()


@pytest.mark.slow
def test_n3_names_of_authors_that_git_does_not_take(site: Site, repo: Path) -> None:
    path = tree_of(site, "amy")
    (path / "a.txt").write_text("a\n")
    git(path, "add", "a.txt")
    tree = git(path, "write-tree")
    head = git(path, "rev-parse", "HEAD")
    raw = f"tree {tree}\nparent {head}\nauthor  <> 1 +0000\ncommitter  <> 1 +0000\n\nodd\n"
    odd = os.popen(
        f"cd {path} && printf '%s' '{raw}' | git hash-object -t commit -w --stdin"
    ).read()
    git(path, "reset", "-q", "--hard", odd.strip())
    for strategy in ("squash", "rebase"):
        commit(repo, f"{strategy}.txt")
        assert log_of(repo, "%an", f"{built(site, 'amy', strategy).commit}^!") == ["amy"]


def test_w10_merges_of_many_pairs_are_read() -> None:
    text = "0\0tree1\0a\0b\0\0" + "1\0tree2\0\0"
    assert parse_merges(text) == [Merged("tree1", ("a", "b")), Merged("tree2")]
    assert parse_merges("") == []


@pytest.mark.parametrize("word", ["", "main", "HEAD", "--quiet", "d" * 39, "d" * 40 + "\n"])
def test_w10_only_ids_of_commits_are_merged(site: Site, word: str, failing) -> None:
    commit_id = head_of(site, "main")
    for pair in ((commit_id, word), (word, commit_id)):
        failing("INVALID", merge_pairs, site.repo, [(commit_id, commit_id), pair])


@pytest.mark.slow
def test_w10_conflicts_of_many_ask_git_once(site: Site, repo: Path, monkeypatch) -> None:
    for number in range(6):
        tree_of(site, f"a{number}", file0_txt=f"{number % 2}\n")
    commits = {f"a{number}": head_of(site, f"a{number}") for number in range(6)}
    pairs = [(one, other) for one in commits for other in commits if one < other]
    calls: list[object] = []
    import bullpen.worktrees.conflicts as module

    real = module.git
    monkeypatch.setattr(module, "git", lambda *a, **k: calls.append(a) or real(*a, **k))
    found = find_conflicts(site.repo, commits, pairs)
    assert len(calls) == 1
    assert {pair: files for pair, files in found.items() if files} == {
        (one, other): ("file0.txt",) for one, other in pairs if int(one[1]) % 2 != int(other[1]) % 2
    }
    assert_healthy(site)


@pytest.mark.slow
def test_n3_a_signature_is_made_as_the_persons_git_says(
    site: Site, repo: Path, tmp_path: Path, failing
) -> None:
    """By ssh, whose key is in no agent: with a passphrase it would ask."""
    make_person(repo)
    tree_of(site, "amy", a_txt="a\n")
    key, locked = tmp_path / "key", tmp_path / "locked"
    os.system(
        f"ssh-keygen -q -t ed25519 -N '' -f {key}; ssh-keygen -q -t ed25519 -N pass -f {locked}"
    )
    for name, value in {"gpg.format": "ssh", "commit.gpgsign": "true"}.items():
        git(repo, "config", name, value)
    git(repo, "config", "user.signingkey", str(key))
    person = find_person(site.repo)
    assert person.signs
    for strategy in ("merge", "squash", "rebase"):
        commit(repo, f"{strategy}.txt")
        work = work_of(site, "amy", strategy)
        result = build(site.repo, work, head_of(site, "main"), "main", lambda: person)
        assert "BEGIN SSH SIGNATURE" in git(repo, "cat-file", "commit", result.commit)
    git(repo, "config", "user.signingkey", str(locked))
    error = failing(
        "GIT_FAILED",
        build,
        site.repo,
        work_of(site, "amy"),
        head_of(site, "main"),
        "main",
        lambda: find_person(site.repo),
    )
    assert "signs commits" in error.message


def test_n3_a_gpg_key_that_would_ask_is_refused(
    site: Site, repo: Path, tmp_path: Path, failing
) -> None:
    """A stand-in for gpg that would ask unless it is told not to."""
    make_person(repo)
    tree_of(site, "amy", a_txt="a\n")
    asked = tmp_path / "asked"
    program = tmp_path / "gpg"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *"--pinentry-mode error"*) echo locked >&2; exit 2;; esac\n'
        f"touch {asked}\n"
    )
    program.chmod(0o755)
    git(repo, "config", "commit.gpgsign", "true")
    git(repo, "config", "gpg.program", str(program))
    error = failing(
        "GIT_FAILED",
        build,
        site.repo,
        work_of(site, "amy"),
        head_of(site, "main"),
        "main",
        lambda: find_person(site.repo),
    )
    assert "signs commits" in error.message and not asked.exists()


@pytest.mark.slow
def test_n3_a_worktree_is_made_from_what_landed(site: Site) -> None:
    tree_of(site, "amy", a_txt="a\n")
    land(site, "amy")
    path = worktrees.create(site, Spec("bob", base="main"))
    assert (path / "a.txt").exists()
    assert_healthy(site)
