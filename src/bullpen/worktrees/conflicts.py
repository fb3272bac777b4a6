"""Merges of commits without a checkout, as many as are wanted in one process.

`git merge-tree` writes objects and touches nothing else: no index, no files, no refs, no hooks.
Called by `landing` and by whoever wants to know what would conflict.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import Repository, git, resolve
from bullpen.worktrees.plain import COMMIT

SECONDS = 600.0
MERGE = (
    *("merge-tree", "--write-tree", "--stdin", "--name-only", "--no-messages"),
    "--allow-unrelated-histories",
)


@dataclass(frozen=True)
class Merged:
    """What a merge comes to: its tree, and the files that conflict."""

    tree: str
    conflicts: tuple[str, ...] = ()


def merge_pairs(
    repo: Repository, pairs: Sequence[tuple[str, str]], *, env: Mapping[str, str] | None = None
) -> list[Merged]:
    """Each pair of commits merged, in that order. All of them must be there: git gives up at the
    first that is not."""
    if not pairs:
        return []
    for commit in {commit for pair in pairs for commit in pair}:
        if not COMMIT.fullmatch(commit):  # git would take a name or an option for one, too
            raise WorktreeError(Code.INVALID, f"not the id of a commit: {commit!r}")
    lines = "".join(f"{ours} {theirs}\n" for ours, theirs in pairs)
    done = git(repo, *MERGE, stdin=lines.encode(), env=env, timeout=SECONDS)
    return parse_merges(done.text)


def parse_merges(text: str) -> list[Merged]:
    """Of each merge: 1 (clean) or 0, its tree, names of files, and an empty field. Pure."""
    fields = iter(text.split("\0"))
    merges = []
    for is_clean in fields:
        if is_clean not in ("0", "1"):
            break  # behind the last
        tree = next(fields)
        names = list(iter(fields.__next__, ""))
        merges.append(Merged(tree, () if is_clean == "1" else tuple(dict.fromkeys(names))))
    return merges


def find_conflicts(
    repo: Repository, commits: Mapping[str, str], pairs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """The files in which each pair of names conflicts. Names that stand for the same commits are
    merged once, and such that stand for one commit, or for none, not at all."""
    there = _those_there(repo, commits.values())
    wanted = {
        (commits[one], commits[other]): None
        for one, other in pairs
        if commits[one] != commits[other] and {commits[one], commits[other]} <= there
    }
    merges = dict(zip(wanted, merge_pairs(repo, list(wanted)), strict=True))
    nothing = Merged("")
    return {
        (one, other): merges.get((commits[one], commits[other]), nothing).conflicts
        for one, other in pairs
    }


def _those_there(repo: Repository, commits: Iterable[str]) -> set[str]:
    """Which are commits of the repository. A worktree may have none yet, and git may read its head
    from where an agent pointed it: one such must not keep the others from being compared."""
    names = {f"{commit}^{{commit}}": commit for commit in commits if COMMIT.fullmatch(commit)}
    return {names[text] for text, id in resolve(repo, list(names)).items() if id}
