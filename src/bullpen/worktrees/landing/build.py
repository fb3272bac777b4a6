"""Builds what a target would be with a branch landed on it: new objects, nothing else.

No checkout is needed for that: trees are merged by `git merge-tree`, and commits are written by
`git commit-tree`. So nobody's files, index or refs are touched, and no hook can run.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from bullpen.worktrees.conflicts import Merged, merge_pairs
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import IDENTITY, Repository, git, resolve
from bullpen.worktrees.landing.landed import check_landed, is_ancestor, refs_of
from bullpen.worktrees.landing.signature import Person, signing, unsigned

MOST_COMMITS = 1000  # that a rebase makes anew
MOST_SUBJECTS = 50
LOG_SECONDS = 600.0
# A branch must not name objects that a power cut has taken: git leaves loose ones to the system.
DURABLE = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.fsync",
    "GIT_CONFIG_VALUE_0": "committed",
}


@dataclass(frozen=True)
class Work:
    """A branch that is to land: whose, and which commit of it."""

    name: str
    branch: str
    tip: str
    strategy: str  # merge, squash or rebase


@dataclass(frozen=True)
class Built:
    """What became of it: the commit that the target would be at, or the files that conflict."""

    commit: str = ""
    is_there: bool = False  # the target has the work already: no commit was made
    conflicts: tuple[str, ...] = ()


def build(
    repo: Repository, work: Work, base: str, target: str, person: Callable[[], Person]
) -> Built:
    """The work on top of `base`, which is the target or something that is to become it. `person` is
    asked for when a commit is to be made."""
    before = _look(repo, work, base, target)
    if work.tip in before.forks:
        return Built(base, is_there=True)
    if not before.forks:
        raise WorktreeError(
            Code.INVALID,
            f"{work.branch} has no commit in common with {target}: it cannot land there",
        )
    landed = check_landed(repo, *before.landed, work.tip, base)
    if work.strategy == "rebase":
        return _rebase(repo, work, base, landed, person())
    merged = (
        _merge_from(repo, landed, base, work.tip)
        if landed
        else merge_pairs(repo, [(base, work.tip)], env=DURABLE)[0]
    )
    if merged.conflicts:
        return Built(conflicts=merged.conflicts)
    if merged.tree == before.tree:
        return Built(base, is_there=True)
    if work.strategy == "squash":
        commits = _list_commits(repo, f"{landed or base}..{work.tip}", f"^{base}")
        return Built(_squash(repo, work, merged.tree, base, commits, person()))
    message = f"Merge branch '{work.branch}'" + (
        "" if target in ("main", "master") else f" into {target}"
    )
    return Built(_commit(repo, merged.tree, (base, work.tip), os.fsencode(message), person(), {}))


@dataclass(frozen=True)
class _Before:
    """What is to be known of a target and a branch before they are merged."""

    tree: str  # of the target
    forks: tuple[str, ...]  # where the two parted
    landed: tuple[str, str]  # the tip and the commit that are remembered; empty: none


def _look(repo: Repository, work: Work, base: str, target: str) -> _Before:
    """By one process: `rev-parse` says what it was asked in that order, and nothing of refs that
    are not there."""
    tip_ref, _ = refs_of(work.branch, target)
    remembered = f"--glob={tip_ref.rpartition('/')[0]}"  # both, by name: the commit first
    revisions = (f"{base}^{{tree}}", f"{base}...{work.tip}", remembered)
    tree, _, _, *rest = git(repo, "rev-parse", *revisions, timeout=LOG_SECONDS).text.split()
    forks = tuple(line[1:] for line in rest if line.startswith("^"))
    landed = rest[len(forks) :]
    return _Before(tree, forks, (landed[1], landed[0]) if len(landed) == 2 else ("", ""))


# ── merge and squash ──


def _merge_from(repo: Repository, start: str, ours: str, theirs: str) -> Merged:
    """What `theirs` has changed since `start`, on top of `ours`. By commits made for it, because
    `merge-tree --merge-base` needs git 2.40."""
    root = _stand_in(repo, _tree_of(repo, start))
    pair = tuple(_stand_in(repo, _tree_of(repo, commit), root) for commit in (ours, theirs))
    return merge_pairs(repo, [(pair[0], pair[1])], env=DURABLE)[0]


def _stand_in(repo: Repository, tree: str, *parents: str) -> str:
    """The same tree is always the same commit: it has no time of its own."""
    env = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "@0 +0000")
    words = [word for parent in parents for word in ("-p", parent)]
    return git(repo, "commit-tree", tree, *words, "-m", "stand-in", env=env).text.strip()


@dataclass(frozen=True)
class _Made:
    """A commit of the branch, as far as a squash tells of it."""

    author: str
    email: str
    subject: str


def _list_commits(repo: Repository, *span: str) -> list[_Made]:
    """The oldest first."""
    form = "--format=%an%n%ae%n%s"
    words = ("log", "-z", "--reverse", "--encoding=UTF-8", "--no-merges", form, *span)
    entries = git(repo, *words, timeout=LOG_SECONDS).text.split("\0")
    return [_Made(*entry.split("\n", 2)) for entry in entries if entry.count("\n") >= 2]


def _squash(
    repo: Repository, work: Work, tree: str, base: str, commits: list[_Made], person: Person
) -> str:
    authors = dict.fromkeys((made.author, made.email) for made in commits)
    only = next(iter(authors)) if len(authors) == 1 else ("", "")
    if not _is_name(only[0]):
        only = ("", "")
    author, email = only if only[0] else (work.name, IDENTITY["GIT_AUTHOR_EMAIL"])
    message = squash_message(work, commits, [] if only[0] else list(authors))
    env = person.environment(author, email)
    return _commit(repo, tree, (base,), os.fsencode(message), person, env)


def squash_message(work: Work, commits: list[_Made], authors: list[tuple[str, str]]) -> str:
    """One commit keeps its subject; of several each is a line. Pure."""
    subjects = [made.subject for made in commits]
    if len(subjects) == 1:
        text = subjects[0]
    else:
        lines = [f"* {subject}" for subject in subjects[:MOST_SUBJECTS]]
        if len(subjects) > MOST_SUBJECTS:
            lines.append(f"* and {len(subjects) - MOST_SUBJECTS} more")
        text = "\n".join([f"Land {work.branch}", "", *lines]).rstrip()
    trailers = [f"Co-authored-by: {name} <{email}>" for name, email in authors if _is_name(name)]
    return "\n".join([text, *(["", *trailers] if trailers else [])]) + "\n"


def _is_name(name: str) -> bool:
    """Whether git takes it as an author."""
    return re.search(r"\w", name) is not None


# ── rebase ──


def _rebase(repo: Repository, work: Work, base: str, landed: str, person: Person) -> Built:
    if not landed and is_ancestor(repo, base, work.tip):
        _refuse_merges(repo, work, f"{base}..{work.tip}")
        return Built(work.tip)
    span = (f"{landed or base}..{work.tip}", f"^{base}")
    _refuse_merges(repo, work, *span)
    listed = git(repo, "rev-list", "--reverse", "--topo-order", *span, timeout=LOG_SECONDS)
    commits = listed.text.split()
    if len(commits) > MOST_COMMITS:
        raise WorktreeError(
            Code.INVALID,
            f"{work.branch} has {len(commits)} commits: at most {MOST_COMMITS} are rebased",
            hint="land it with --strategy merge or squash",
        )
    top = base
    for commit in commits:
        merged = _merge_from(repo, f"{commit}^", top, commit)
        if merged.conflicts:
            return Built(conflicts=merged.conflicts)
        if merged.tree != _tree_of(repo, top):
            top = _copy(repo, work, commit, merged.tree, top, person)
    return Built(top, is_there=top == base)


def _refuse_merges(repo: Repository, work: Work, *span: str) -> None:
    if git(repo, "rev-list", "-n1", "--merges", *span, timeout=LOG_SECONDS).out:
        raise WorktreeError(
            Code.INVALID,
            f"{work.branch} has merges in it, which a rebase would lose",
            hint="land it with --strategy merge or squash",
        )


def _copy(repo: Repository, work: Work, commit: str, tree: str, parent: str, person: Person) -> str:
    """The same commit with another parent: its author, its date, its message."""
    form = "--format=%an%n%ae%n%ad%n%B"
    words = ("show", "-s", "--encoding=UTF-8", "--date=raw", form, commit)
    name, email, date, message = git(repo, *words).text.split("\n", 3)
    author, mail = (name, email) if _is_name(name) else (work.name, IDENTITY["GIT_AUTHOR_EMAIL"])
    env = person.environment(author, mail, f"@{date}")
    return _commit(repo, tree, (parent,), os.fsencode(message), person, env)


# ── objects ──


def _tree_of(repo: Repository, commit: str) -> str:
    revision = f"{commit}^{{tree}}"
    tree = resolve(repo, [revision])[revision]
    if tree is None:
        raise WorktreeError(Code.REF_NOT_FOUND, f"there is no commit {commit}")
    return tree


def _commit(
    repo: Repository,
    tree: str,
    parents: tuple[str, ...],
    message: bytes,
    person: Person,
    env: dict[str, str],
) -> str:
    words = [word for parent in parents for word in ("-p", parent)]
    with signing(person) as (before, after, variables):
        try:
            done = git(
                repo,
                *before,
                "commit-tree",
                *after,
                *words,
                *("-F", "-"),
                tree,
                stdin=message if message.strip() else b"(no message)\n",
                env={**DURABLE, **person.environment(), **env, **variables},
            )
        except WorktreeError as error:
            raise (unsigned(error) if person.signs else error) from error
    return done.text.strip()
