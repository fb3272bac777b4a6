"""Files like `.env`, which git does not track and a project's programs need: finds them, and has
the starter roles bring them into worktrees. Called by `bullpen init`.

The roles deny agents to read them all the same: the programs that agents run need what is in
them, a model does not.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from bullpen import proc
from bullpen.files import write_atomically
from bullpen.home.paths import Home
from bullpen.home.roles import list_roles, load_role

EXAMPLES = (".example", ".sample", ".template", ".dist")
WORKTREE = "\nworktree:\n  enabled: true\n"
DENIED = "    - Read(**/.env)\n"
AFTER = "  branch_from: HEAD\n"
WHY = """\
  # Files that git does not track and the project's programs need. The rules above keep the
  # agent itself from reading them.
"""


def find_local_files(top: Path) -> list[str]:
    """Those at the top of a repository; none outside of one."""
    if proc.find_program("git") is None or not (top / ".git").exists():
        return []
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = proc.run(["git", "ls-files", "-z", "--", ".env*"], cwd=top, env=env, timeout=20)
    tracked = set(done.text.split("\0"))
    names = (path.name for path in top.glob(".env*") if path.is_file() and not path.is_symlink())
    return sorted(n for n in names if n not in tracked and not n.endswith(EXAMPLES))


def copy_in_roles(home: Home, names: Sequence[str]) -> None:
    """Write it into the starter roles that have a worktree and may not read such files. Rules of
    Codex and Gemini CLI cannot say that: there it is the person's to write."""
    line = f"  copy: {json.dumps(list(names), ensure_ascii=False)}\n"
    for file in list_roles(home.roles):
        text = file.path.read_text(encoding="utf-8")
        if WORKTREE in text and DENIED in text and "\n  copy:" not in text:
            write_atomically(file.path, text.replace(AFTER, AFTER + WHY + line, 1))
            load_role(file)  # raises if it is none any more
