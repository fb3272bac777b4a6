"""Half-done rebases of agents that would run commands when a person types `git rebase --continue`.

Called by the hub when a sandboxed program has ended, after links and pipes were removed. Such a
rebase is moved to `<git>/bullpen/aside/`, where agents cannot reach it and a person can look at it.
One that only waits for a conflict to be solved stays: it runs nothing.
"""

import re
import secrets
from pathlib import Path

from bullpen.files import read_plain
from bullpen.worktrees.git import Repository

ASIDE = "aside"  # in Bullpen's own directory of the repository
# Where git keeps its steps: what is still to be done, and by which strategy files are merged.
STEPS = {"rebase-merge": "git-rebase-todo", "rebase-apply": "", "sequencer": "todo"}
# A strategy of another name is a program that git looks for on PATH.
STRATEGIES = {b"", b"ort", b"recursive", b"resolve", b"octopus", b"ours", b"subtree"}
COMMAND = re.compile(rb"^[ \t]*(?:exec|x)(?:[ \t]|$)", re.MULTILINE)
OPTION = re.compile(rb"^\s*strategy\s*=\s*\"?([\w.-]*)", re.MULTILINE | re.IGNORECASE)
MOST_BYTES = 1 << 20


def set_aside_commands(repo: Repository, admin: Path) -> list[Path]:
    """Take away what would run commands; where it lies now."""
    moved = []
    for name, steps in STEPS.items():
        directory = admin / name
        if directory.is_dir() and not directory.is_symlink() and _runs_something(directory, steps):
            target = repo.own_dir / ASIDE / f"{admin.name}.{secrets.token_hex(4)}" / name
            target.parent.mkdir(mode=0o700, parents=True)
            directory.rename(target)
            moved.append(target)
    return moved


def _runs_something(directory: Path, steps: str) -> bool:
    todo = _read(directory / steps) if steps else b""
    strategy, options = _read(directory / "strategy"), _read(directory / "opts")
    if todo is None or strategy is None or options is None:
        return True
    strategies = {strategy.strip(), *OPTION.findall(options)}
    return COMMAND.search(todo) is not None or not strategies <= STRATEGIES


def _read(path: Path) -> bytes | None:
    """None if it cannot be judged: it is too long, or no plain file."""
    try:
        text = read_plain(path, MOST_BYTES + 1)
    except FileNotFoundError:
        return b""
    except OSError:
        return None
    return text if len(text) <= MOST_BYTES else None
