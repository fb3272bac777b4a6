"""Moves the branch of a sandboxed agent on: by git inside its sandbox, then brought over.

Such an agent has a git of its own, which nobody outside writes to. What was built outside is read
there through its alternates. Git itself refuses what would overwrite the agent's changes, ignored
files too. Killed between the two steps, the next bring-over does the second.
"""

import re
from typing import Protocol

from bullpen import proc
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import resolve
from bullpen.worktrees.landing.checked_out import InTheWayError
from bullpen.worktrees.landing.fast_forward import TargetMovedError
from bullpen.worktrees.landing.landed import is_ancestor
from bullpen.worktrees.private.bring_over import bring_over
from bullpen.worktrees.private.store import Inside, PrivateStore

DONE, MOVED = "landing: done", "landing: moved"
# `$1` the branch's ref, `$2` where it has to be, `$3` where it goes.
SCRIPT = f"""
if [ "$(git symbolic-ref -q HEAD)" != "$1" ] || [ "$(git rev-parse -q --verify HEAD)" != "$2" ]
then echo '{MOVED}'; exit; fi
git merge --ff-only --no-overwrite-ignore --no-stat --no-autostash --no-verify-signatures "$3" 2>&1
if [ "$(git rev-parse -q --verify HEAD)" = "$3" ]; then echo '{DONE}'; fi
"""


class InsideWithFiles(Inside, Protocol):
    """Such a sandbox that shows the agent's files as well."""

    def run_in_files(self, script: str, *words: str) -> proc.Done:
        """A shell script in the worktree itself."""
        ...


def move_inside(store: PrivateStore, inside: InsideWithFiles, ref: str, old: str, new: str) -> None:
    """Fast-forward the agent's branch with its files, and bring it over."""
    bring_over(store, inside)
    if resolve(store.repo, [ref])[ref] != old:
        raise TargetMovedError(ref)
    lines = inside.run_in_files(SCRIPT, ref, old, new).text.splitlines()
    last = lines[-1] if lines else ""
    if last == MOVED:
        raise TargetMovedError(ref)
    if last != DONE:
        raise _refusal(store, ref, lines)
    bring_over(store, inside)
    now = resolve(store.repo, [ref])[ref]
    if not now or not is_ancestor(store.repo, new, now):
        raise WorktreeError(
            Code.GIT_FAILED, f"{ref} was moved in its sandbox, and could not be brought over"
        )


def _refusal(store: PrivateStore, ref: str, lines: list[str]) -> WorktreeError:
    branch = ref.removeprefix("refs/heads/")
    # Git names the files that it would overwrite, each behind a tab.
    files = tuple(line[1:] for line in lines if re.match(r"\t\S", line))
    if files:
        named = ", ".join(files[:3]) + (", …" if len(files) > 3 else "")
        return InTheWayError(
            f"{branch} is checked out in {store.root} with changes in {named}",
            store.root,
            files,
            hint="commit them there, and land again",
        )
    text = " ".join(lines)[-300:]
    return InTheWayError(f"{branch} cannot be moved in {store.root}: {text}", store.root)
