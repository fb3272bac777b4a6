"""Safety copies: what a forced removal drops, kept for 30 days under `refs/bullpen/kept/`.

A copy is one commit. Its tree is the worktree as it was, with uncommitted and untracked files
(without ignored ones). Its parent is the worktree's head. Its message holds the record, so that
`restore` can bring everything back.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from bullpen import clock
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import Checkout, Repository, git
from bullpen.worktrees.own_index import look_at, second_index
from bullpen.worktrees.records import Record, from_json, to_json

KEEP_FOR = timedelta(days=30)
PREFIX = "refs/bullpen/kept/"
SNAPSHOT_SECONDS = 600.0
_STAMP = "%Y%m%dT%H%M%S"


@dataclass(frozen=True)
class SafetyCopy:
    """One safety copy."""

    ref: str
    commit: str
    name: str
    kept_at: datetime


def keep(
    repo: Repository,
    record: Record,
    commits: Sequence[str],
    files: Checkout | None,
    *,
    on: str = "",
    tip: str = "",
    skip: Sequence[str] = (),
    fds: Sequence[int] = (),
) -> str:
    """Save the commits (the head first) and, with a checkout, its files; returns the ref.

    `on` is the branch that the head is on, `tip` where the birth branch is: an agent may
    have left the branch it was born on.
    """
    tree = _snapshot(repo, files, skip, fds) if files else f"{commits[0]}^{{tree}}"
    heads = json.dumps({"on": on, "tip": tip})
    message = f"Kept by Bullpen: {record.name}\n\n{to_json(record)}\n{heads}\n"
    parents = [word for commit in commits for word in ("-p", commit)]
    commit = git(
        repo, "commit-tree", tree, *parents, "-F", "-", stdin=message.encode(), fds=fds
    ).text.strip()
    # ~ stands for / in a subtree's name and is not allowed in a ref
    where = PREFIX + record.name.replace("~", "/")
    stamp = clock.now().strftime(_STAMP)
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        ref = f"{where}/{stamp}{suffix}"
        zero = "0" * len(commit)
        done = git(repo, "update-ref", ref, commit, zero, fds=fds, accept=(0, 128))
        if done.code == 0:
            return ref
    raise WorktreeError(
        Code.GIT_FAILED,
        f"cannot keep a copy of {record.name}: {done.error_text}",
        details={"git": done.error_text},
    )


def stamped(name: str, now: datetime, key: str) -> str:
    """A ref of that name that expires as a copy does; `restore` does not take it for one of the
    worktree."""
    return f"{PREFIX}{name}/{now.strftime(_STAMP)}-{key}"


def list_safety_copies(repo: Repository) -> list[SafetyCopy]:
    """All safety copies, the newest first."""
    done = git(repo, "for-each-ref", "--format=%(objectname) %(refname)", PREFIX)
    copies = []
    for line in done.text.rstrip("\n").split("\n") if done.out else []:
        commit, ref = line.split(" ", 1)
        where, _, stamp = ref.removeprefix(PREFIX).rpartition("/")
        try:
            moment = datetime.strptime(stamp[:15], _STAMP).replace(tzinfo=UTC)
        except ValueError:
            continue  # not one of ours: agents can write refs
        copies.append(SafetyCopy(ref, commit, where.replace("/", "~"), moment))
    return sorted(copies, key=lambda copy: copy.ref.rpartition("/")[2], reverse=True)


def contents(repo: Repository, copy: SafetyCopy) -> tuple[Record, str, str]:
    """The record that was saved with it, `on` and `tip`."""
    body = git(repo, "show", "-s", "--format=%b", copy.commit).text
    try:
        first, second = body.strip().split("\n")
        record, heads = from_json(first), json.loads(second)
        on, tip = str(heads["on"]), str(heads["tip"])
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise WorktreeError(
            Code.WORKTREE_CORRUPT,
            f"{copy.ref} is no copy of a worktree",
            hint=f"git update-ref -d {copy.ref}",
        ) from error
    # Agents can write refs: where it goes is ours to say.
    return replace(record, name=copy.name, repo=str(repo.common_dir)), on, tip


def expire(repo: Repository, now: datetime) -> int:
    """Drop the copies that have had their 30 days."""
    old = [copy for copy in list_safety_copies(repo) if copy.kept_at + KEEP_FOR < now]
    for copy in old:
        git(repo, "update-ref", "-d", copy.ref, copy.commit)
    return len(old)


def _snapshot(repo: Repository, files: Checkout, skip: Sequence[str], fds: Sequence[int]) -> str:
    """The tree of everything in the worktree, made with an index of ours: what the agent's calls
    unchanged is saved, too. Only what changed is read."""
    without = [f":(exclude,top,literal){name.rstrip('/')}" for name in skip]
    with look_at(repo, files, seconds=SNAPSHOT_SECONDS) as look, second_index(look) as index:
        env = {"GIT_INDEX_FILE": str(index)}
        look.git("add", "--all", "--sparse", "--", ".", *without, env=env, fds=fds)
        return look.git("write-tree", env=env, fds=fds).text.strip()
