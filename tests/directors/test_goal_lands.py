"""A goal in a repository is led on a branch of its own, and what its tasks did lands there (D5).

A real director, hub and sandbox. Who leads is a plain program whose goal is a shell script; the
test calls its tools over its own socket, as its engine would.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.directors.running import RunningDirector
from tests.hub.tree.support import PROGRAM, Grove, made_grove
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git

pytestmark = pytest.mark.slow

SHELL = {**PROGRAM, "command": ["sh"]}
LEADER = {
    "capabilities": ["delegate"],
    "may_grant": "coder",
    "permissions": {"deny": ["Edit", "Write", "NotebookEdit"]},
    "sandbox": {"enabled": True, "read_only_paths": ["."]},
}
ATTACKS = (
    "echo mine > mine.txt",
    "git commit --allow-empty -qm mine",
    "git update-ref refs/heads/main HEAD~1",
    "git update-ref refs/heads/mine HEAD",
)


class Lead:
    """A home with a director of the leading role in a repository on main, and its tools."""

    def __init__(self, grove: Grove, director: RunningDirector) -> None:
        self.grove, self.director, self.repo = grove, director, grove.repo

    def give(self, goal: str, **fields: str) -> str:
        """A goal that is being led; its id."""
        body = {"prompt": goal, **fields}
        id = str(self.director.ask("POST", "/task", body)["task_id"])
        wait_until(lambda: self.goal(id)["state"] != "queued")
        return id

    def goal(self, id: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.director.ask("GET", f"/task/{id}")
        return shown

    def over(self, id: str) -> dict[str, Any]:
        wait_until(lambda: self.goal(id)["state"] in ("completed", "failed", "cancelled"))
        return self.goal(id)


@pytest.fixture
def lead() -> Iterator[Lead]:
    with made_grove() as grove:
        for name, fields in (("leader", LEADER), ("coder", {})):
            grove.pen.role(name, **SHELL, **fields)
        commit(grove.repo, "file.txt", "main\n")
        director = RunningDirector(grove.pen, "lead")
        fields = {"type": "claude", "role": "leader", "port": grove.pen.free_port()}
        director.file.write_text(json.dumps({**fields, "workdir": str(grove.repo)}))
        director.start()
        try:
            yield Lead(grove, director)
        finally:
            with contextlib.suppress(AssertionError):
                director.cli("director", "stop", "lead")


def test_d5_a_goal_is_led_on_a_branch_of_its_own_where_its_leader_cannot_write(lead: Lead) -> None:
    tried = "; ".join(f"({attack}) 2>/dev/null && echo DONE" for attack in ATTACKS)
    id = lead.give(f"git branch --show-current; cat file.txt; {tried}; true")
    assert lead.over(id)["report"].split() == [f"lead-{id}", "main"]
    main = git(lead.repo, "rev-parse", "main")
    assert git(lead.repo, "rev-parse", f"lead-{id}") == main
    assert lead.grove.branches() == {"main", f"lead-{id}"}
    assert git(lead.repo, "status", "--porcelain") == ""
