"""Whether the work on a branch exists anywhere else. Decides what may be deleted."""

from dataclasses import dataclass

from bullpen.worktrees.git import Repository, git, resolve
from bullpen.worktrees.landing.landed import is_landed


@dataclass(frozen=True)
class Standing:
    """How many commits only this branch holds, and whether a squash merge holds their content."""

    unique_commits: int
    squashed: bool

    @property
    def may_go(self) -> bool:
        """Nothing would be lost with the branch."""
        return self.unique_commits == 0 or self.squashed


def standing(repo: Repository, branch: str, tip: str, bases: list[str]) -> Standing:
    """Compare `tip` with every other branch, tag and remote branch.

    `branch` is left out of the comparison; empty when the head is detached. `bases`
    are the refs that a squash merge would have gone to.
    """
    exclude = [f"--exclude={branch}"] if branch else []
    done = git(
        repo,
        *("rev-list", "--count", tip, "--not", *exclude, "--branches", "--tags", "--remotes"),
        timeout=600,
    )
    unique = int(done.text)
    if unique == 0:
        return Standing(0, squashed=False)
    commits = resolve(repo, [f"{base}^{{commit}}" for base in bases if base])
    targets = dict.fromkeys(commit for commit in commits.values() if commit)
    squashed = is_landed(repo, tip) or any(_is_squashed(repo, tip, target) for target in targets)
    return Standing(unique, squashed)


def _is_squashed(repo: Repository, tip: str, target: str) -> bool:
    """Whether one commit on `target` carries the whole difference of the branch.

    The branch is written as one commit, and `git cherry` looks for a commit of the same
    patch. A branch whose difference is empty (work done and reverted) has no patch to find.
    """
    fork = git(repo, "merge-base", tip, target, accept=(0, 1)).text.strip()
    if not fork or fork == tip:
        return False
    one = git(repo, "commit-tree", f"{tip}^{{tree}}", "-p", fork, "-m", "squashed").text.strip()
    return git(repo, "cherry", target, one, timeout=600).text.startswith("-")
