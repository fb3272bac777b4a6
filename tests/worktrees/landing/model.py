"""What a target holds after commits and landings, as dictionaries: the model of property tests.

Files of one line, so that two sides that changed one conflict.
"""

from dataclasses import dataclass, field

FILES = ("file0.txt", "file1.txt", "new.txt")
NAMES = ("amy", "bob")


@dataclass
class Branch:
    """What an agent has written, since what of it landed last."""

    files: dict[str, str]
    base: dict[str, str]
    commits: list[tuple[str, str | None, str]] = field(default_factory=list)  # file, old, new


class Model:
    """The target, its branches, and what the person has not committed."""

    def __init__(self, files: dict[str, str]) -> None:
        self.target = dict(files)
        self.branches = {name: Branch(dict(files), dict(files)) for name in NAMES}
        self.edits: dict[str, str] = {}

    def merged(self, name: str, strategy: str) -> dict[str, str] | None:
        """The target with that branch landed; None if they conflict."""
        branch, result = self.branches[name], dict(self.target)
        if strategy == "rebase":
            for file, old, new in branch.commits:
                if result.get(file) not in (old, new):
                    return None
                result[file] = new
            return result
        for file in FILES:
            base, ours, theirs = (d.get(file) for d in (branch.base, self.target, branch.files))
            if theirs in (base, ours):
                continue
            if ours != base:
                return None
            assert theirs is not None
            result[file] = theirs
        return result

    def landed(self, name: str, result: dict[str, str]) -> None:
        branch = self.branches[name]
        self.target, branch.base, branch.commits = result, dict(branch.files), []
