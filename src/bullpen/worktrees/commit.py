"""Commits all that is changed in a worktree, for a person who says so.

By an index of ours, so that what the agent's own calls unchanged is committed, too, and no hook of
it runs. The worktree's index first, then the branch: killed between the two, everything is staged.
"""

from bullpen.worktrees.errors import Code, WorktreeError, reported
from bullpen.worktrees.git import git
from bullpen.worktrees.landing.signature import find_person
from bullpen.worktrees.own_index import look_at, second_index
from bullpen.worktrees.private.store import store_of
from bullpen.worktrees.repo_lock import locked
from bullpen.worktrees.site import Site
from bullpen.worktrees.state import changed_names, get_checkout

SECONDS = 600.0


def commit_all(site: Site, name: str, message: str) -> str:
    """The new commit; empty if nothing was changed. Nobody may work there meanwhile."""
    repo = site.repo
    with reported(f"cannot commit in {name}"), locked(repo) as lock:
        checkout = get_checkout(site, name)
        if store_of(repo.common_dir, checkout.admin, checkout.path).exists:
            raise WorktreeError(
                Code.LOCKED,
                f"{name} has a git of its own, which holds what is not brought over",
                hint=f"bullpen explain {name} says what",
            )
        person = find_person(repo)
        with look_at(repo, checkout, seconds=SECONDS) as look, second_index(look) as index:
            if not changed_names(look):
                return ""
            if not look.head:
                raise WorktreeError(Code.INVALID, f"{name} is on a branch without a commit")
            env = {"GIT_INDEX_FILE": str(index)}
            look.git("add", "--all", "--sparse", "--", ".", env=env, fds=[lock.fd])
            tree = look.git("write-tree", env=env).text.strip()
            head = look.head
        if tree == git(repo, "rev-parse", f"{head}^{{tree}}").text.strip():
            return ""  # only staged, and taken back in the files
        words = ("commit-tree", "-p", head, "-F", "-", tree)
        commit = git(repo, *words, stdin=message.encode(), env=person.environment()).text.strip()
        git(repo, "read-tree", commit, at=checkout, fds=[lock.fd])
        git(repo, "update-ref", "-m", "commit by bullpen", "HEAD", commit, head, at=checkout)
        return commit
