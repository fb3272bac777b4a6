"""Half-done rebases: which of them would run a command."""

from pathlib import Path

import pytest

from bullpen.worktrees.git import Repository
from bullpen.worktrees.unfinished import MOST_BYTES, set_aside_commands


@pytest.mark.parametrize(
    ("name", "text", "is_taken"),
    [
        ("rebase-merge/git-rebase-todo", "pick 1234 One\nexec make\n", True),
        ("rebase-merge/git-rebase-todo", "pick 1234 One\n  x\tmake\n", True),
        ("rebase-merge/git-rebase-todo", "pick 1234 x make\nbreak\nfixup 12\n", False),
        ("rebase-merge/git-rebase-todo", "#" * (MOST_BYTES + 1), True),
        ("rebase-merge/strategy", "ort\n", False),
        ("rebase-merge/strategy", "evil\n", True),
        ("sequencer/todo", "pick 1234 One\n", False),
        ("sequencer/opts", "[options]\n\tstrategy = evil\n", True),
        ("rebase-apply/0001", "exec make\n", False),
        ("MERGE_MSG", "exec make\n", False),
    ],
)
def test_x5_only_what_would_run_a_command_is_set_aside(
    tmp_path: Path, name: str, text: str, is_taken: bool
) -> None:
    admin = tmp_path / "git" / "worktrees" / "amy"
    file = admin / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    moved = set_aside_commands(Repository(admin, tmp_path / "git", None), admin)
    assert (len(moved), file.exists()) == ((1, False) if is_taken else (0, True))
    for path in moved:
        assert (path / file.name).read_text() == text
        assert path.is_relative_to(tmp_path / "git" / "bullpen" / "aside")


def test_x5_what_cannot_be_read_is_set_aside(tmp_path: Path) -> None:
    admin = tmp_path / "git" / "worktrees" / "amy"
    (admin / "rebase-merge" / "git-rebase-todo").mkdir(parents=True)
    assert set_aside_commands(Repository(admin, tmp_path / "git", None), admin)
