"""Two machines: lead works on h1, in a worktree of its own, and starts children on h2.

with made_kin() as kin:
    child = kin.spawn("csv")  # its name on h2
    kin.commit(child, "a.txt")
    kin.report(child, "done")
    kin.h1.wait("lead")
"""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fleet.machines import Machines, made_machines
from tests.fleet.mail import rows
from tests.hub.pen import Pen
from tests.hub.tree.support import PROGRAM, Grove
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git

WORKTREE = {"enabled": True}


class Kin:
    """See the module."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.h1 = Grove(machines.hosts["h1"])
        self.h2 = Grove.of(machines.hosts["h2"], Path("/nowhere"))
        self.h1.pen.role("boss", **PROGRAM, may_grant="coder", worktree=WORKTREE)
        self.h2.pen.role("coder", **PROGRAM, worktree=WORKTREE)

    def lead(self, role: str = "boss", **fields: Any) -> str:
        """One of a test's own; its name."""
        name = f"lead-{secrets.token_hex(3)}"
        self.h1.run(name, role, **fields)
        return name

    def ask(self, parent: str, name: str = "csv", **fields: Any) -> dict[str, Any]:
        """What the tool answers; ToolError if it refuses."""
        given = {"task": "x", "role": "coder", "where": "h2", **fields}
        answer: dict[str, Any] = self.h1.call(parent, "spawn_subtree", branch_name=name, **given)
        return answer

    def spawn(self, parent: str, name: str = "csv", **fields: Any) -> str:
        """On h2; its name there."""
        answer = self.ask(parent, name, **fields)
        host, _, child = answer["name"].partition("/")
        assert host == "h2", answer
        return str(child)

    def tree(self, child: str) -> Path:
        return Path(self.h2.pen.agents()[child]["worktree"]["path"])

    def commit(self, child: str, file: str, text: str = "text\n") -> str:
        """As the child would; the commit."""
        commit(self.tree(child), file, text)
        return git(self.tree(child), "rev-parse", "HEAD")

    def report(self, child: str, message: str, status: str = "success", **fields: Any) -> None:
        answer = self.h2.call(child, "notify_parent", status=status, message=message, **fields)
        assert answer["ack"] is True

    def children_of(self, lead: str) -> set[str]:
        """That h2 has."""
        agents = self.h2.pen.agents()
        return {name for name, each in agents.items() if each["parent"] == f"h1/{lead}"}

    def heard(self, name: str) -> list[tuple[str, str, Any]]:
        """What is in the queue of an agent of h1, with every doubled one."""
        return [
            (event["from"], event["kind"], event["data"].get("message"))
            for event in self.h1.queue(name)
        ]

    def branch(self, name: str) -> str:
        """Its commit in the repository of h1; empty if there is none."""
        found = git(self.h1.repo, "for-each-ref", "--format=%(objectname)", f"refs/heads/{name}")
        return found.strip()

    def in_clones(self, *words: str) -> list[str]:
        """Of git, in the repositories that h2 has of h1's."""
        clones = (self.h2.pen.root / "projects").glob("fleet-h1.*")
        return [line for clone in clones for line in git(clone, *words).splitlines()]

    def end_all(self) -> None:
        """A home has so many agents at most."""
        for pen in (self.h1.pen, self.h2.pen):
            for name, agent in pen.agents().items():
                if agent["running"]:
                    pen.stop(name)

    def is_cleaned_up(self, child: str) -> bool:
        """Whether nothing is left of it on either machine."""
        left = [line for line in self.in_clones("for-each-ref") if child in line]
        taken = rows(self.h2.pen, "SELECT 1 FROM fleet_children WHERE data LIKE ?", f"%{child}%")
        asked = rows(self.h1.pen, "SELECT 1 FROM fleet_asked WHERE data LIKE ?", f"%{child}%")
        is_there = child in self.h2.pen.agents() or self.branch(child) != ""
        return not (left or taken or asked or is_there)

    def start(self, pen: Pen) -> None:
        """Again, and it is one of the fleet again."""
        pen.start()
        name = next(name for name, each in self.machines.hosts.items() if each is pen)
        wait_until(lambda: self.machines.shown(name)["link"] == "connected")

    def nothing_waits(self) -> bool:
        """Neither a letter nor anything to be told."""
        counts = [
            rows(pen, f"SELECT COUNT(*) FROM {table}")[0][0]
            for pen in (self.h1.pen, self.h2.pen)
            for table in ("fleet_outbox", "fleet_told")
        ]
        return not any(counts)


@contextlib.contextmanager
def made_kin(*more: str, **given: Any) -> Iterator[Kin]:
    """h1 and h2, and others of these names."""
    with made_machines("h1", "h2", *more, **given) as machines:
        yield Kin(machines)
