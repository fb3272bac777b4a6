"""What a removal, a clean-up or a comparison of worktrees says to people."""

from collections.abc import Mapping
from pathlib import Path

from bullpen.cli import output
from bullpen.home.paths import short_path
from bullpen.worktrees import Cleaned, Conflicts, Removed


def write_removed(result: Removed, keep_branch: bool, dry_run: bool) -> None:
    """What went, what stayed and why, and how to get it back."""
    done, kept = ("would remove", "would keep") if dry_run else ("removed", "kept")
    if not result.existed:
        output.write(f"{result.name} is not there · nothing to do")
        return
    text = f"{done} {result.name}"
    if result.branch:
        text += f" and branch {result.branch}"
    output.write(text)
    if result.branch_left and not keep_branch:
        count = result.unique_commits
        commits = "1 commit exists" if count == 1 else f"{count} commits exist"
        output.write(
            f"{kept} branch {result.branch_left}: {commits} nowhere else"
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


def write_conflicts(results: Mapping[tuple[str, str], Conflicts], as_json: bool) -> None:
    """Which pairs conflict, file by file."""
    if as_json:
        pairs = [
            {"a": one, "b": other, "files": each.files} for (one, other), each in results.items()
        ]
        output.write_json({"pairs": pairs})
        return
    clashes = {pair: result for pair, result in results.items() if result}
    for (one, other), result in clashes.items():
        output.write(f"{output.colour('conflict', 'warn')}  {one} · {other}")
        for file in result.files:
            output.write(f"  {output.printable(file)}")
    if not clashes:
        output.write(f"no conflicts ({len(results)} compared)")


def show_path(path: Path) -> str:
    """With `~`, and safe to print."""
    return output.printable(short_path(path))
