"""How worktrees look to people: states, ages, and what a removal or clean-up did."""

from datetime import datetime
from pathlib import Path

from bullpen import clock
from bullpen.cli import output
from bullpen.paths import shown
from bullpen.worktrees import Cleaned, Info, Removed


def row(name: str, found: Info | str) -> list[str]:
    """A line of the list; a broken worktree says what is wrong with it."""
    if isinstance(found, str):
        return [name, "", f"broken: {found}", "", "", ""]
    branch = found.branch or f"({found.head[:10]})"
    age = age_of(found.created_at)
    return [name, branch, state_of(found), str(found.ahead), str(found.behind), age]


def state_of(found: Info) -> str:
    """`clean, unmerged`, `dirty (2 files), locked: agent at work`."""
    if found.dirty:
        count = len(found.changes)
        text = f"dirty ({count} file{'s' * (count != 1)})"
    else:
        text = "clean, unmerged" if found.ahead else "clean"
    if found.locked is not None:
        text += f", locked: {found.locked}" if found.locked else ", locked"
    return text


def age_of(moment: datetime | None) -> str:
    """`2h`, `3d`; nothing when it is not known."""
    if moment is None:
        return ""
    seconds = max(int((clock.now() - moment).total_seconds()), 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def write_removed(result: Removed, keep_branch: bool) -> None:
    """What went, what stayed and why, and how to get it back."""
    if not result.existed:
        output.write(f"{result.name} is not there · nothing to do")
        return
    text = f"removed {result.name}"
    if result.branch:
        text += f" and branch {result.branch}"
    output.write(text)
    if result.branch_left and not keep_branch:
        count = result.unique_commits
        commits = "1 commit exists" if count == 1 else f"{count} commits exist"
        output.write(
            f"kept branch {result.branch_left}: {commits} nowhere else"
            f" · to drop it: git branch -D {result.branch_left}"
        )
    if result.kept:
        output.write(f"what it dropped is kept for 30 days: bullpen worktree restore {result.name}")
    if result.aside:
        output.write(f"its files stay 30 days at {show_path(result.aside)}")


def write_cleaned(cleaned: Cleaned, dry_run: bool) -> None:
    """The same for a clean-up."""
    done = "would remove" if dry_run else "removed"
    for word, items in (("worktree", cleaned.worktrees), ("branch", cleaned.branches)):
        for name in items:
            output.write(f"{done}  {word} {name}")
    for name, reason in cleaned.left.items():
        output.write(f"kept     {name}: {output.printable(reason)}")
    for count, text in (
        (cleaned.pruned, "git's records of worktrees that are gone"),
        (cleaned.recovered, "what interrupted commands had begun"),
        (cleaned.expired, "safety copies past their 30 days"),
    ):
        if count:
            output.write(f"{done}  {text} ({count})")
    if cleaned == Cleaned():
        output.write("nothing to clean up")


def show_path(path: Path) -> str:
    """With `~`, and safe to print."""
    return output.printable(shown(path))
