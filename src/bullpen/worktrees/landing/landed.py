"""Remembers what of a branch has landed in a target by a squash, which leaves no trace in history.

Two refs per branch and target: the tip that landed, and the commit that it became. They are written
in the transaction that moves the target. They count only as long as the target has that commit: who
sets the target back lands all of it again.
"""

import hashlib
import os

from bullpen.worktrees.git import Repository, git, resolve

PREFIX = "refs/bullpen/landed/"


def refs_of(branch: str, target: str) -> tuple[str, str]:
    """Where the tip and the commit are remembered. A hash: `a` and `a/b` are both branches."""
    key = hashlib.sha256(os.fsencode(f"{target}\0{branch}")).hexdigest()[:24]
    return f"{PREFIX}{key}/tip", f"{PREFIX}{key}/commit"


def remember_lines(branch: str, target: str, tip: str, commit: str) -> list[str]:
    """For `git update-ref --stdin`."""
    tip_ref, commit_ref = refs_of(branch, target)
    return [f"update {tip_ref} {tip}\n", f"update {commit_ref} {commit}\n"]


def check_landed(repo: Repository, old: str, commit: str, tip: str, base: str) -> str:
    """The commit of the branch up to which `base`, a state of the target, has it by a squash;
    empty: nothing. `old` and `commit` are what is remembered, if anything, `tip` is the branch
    now."""
    if old and commit and is_ancestor(repo, old, tip) and is_ancestor(repo, commit, base):
        return old
    return ""


def is_landed(repo: Repository, tip: str) -> bool:
    """Whether that very commit has landed somewhere by a squash, and still is there."""
    done = git(repo, "for-each-ref", "--format=%(refname)", f"--points-at={tip}", PREFIX)
    for ref in filter(None, done.text.split("\n")):
        if ref.endswith("/tip"):
            commit = f"{ref.removesuffix('tip')}commit"
            words = ("for-each-ref", "--count=1", f"--contains={commit}", "refs/heads")
            if resolve(repo, [commit])[commit] and git(repo, *words, timeout=600).out:
                return True
    return False


def forget(repo: Repository, tip: str) -> None:
    """The branch with that tip is gone: there is no next landing of it."""
    done = git(repo, "for-each-ref", "--format=%(refname)", f"--points-at={tip}", PREFIX)
    tips = [ref for ref in done.text.split("\n") if ref.endswith("/tip")]
    pairs = [(ref, f"{ref.removesuffix('tip')}commit") for ref in tips]
    lines = "".join(f"delete {ref}\n" for pair in pairs for ref in pair)
    if lines:
        git(repo, "update-ref", "--stdin", stdin=os.fsencode(lines), accept=(0, 128))


def is_ancestor(repo: Repository, old: str, new: str) -> bool:
    """Whether `new` has `old`."""
    words = ("merge-base", "--is-ancestor", old, new)
    return git(repo, *words, accept=(0, 1), timeout=600).code == 0
