"""A home whose agents have worktrees in a person's repository, and work that is to land."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.hub.pen import Pen, made_pen
from tests.hub.pods.support import write_role
from tests.hub.programs import SLEEP
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git, make_repo

TREE = "worktree: {enabled: true, branch_from: main}"
OPEN = "sandbox: {enabled: false}"


class Yard:
    """One home, one repository on main, which the person has checked out."""

    def __init__(self, pen: Pen, repo: Path) -> None:
        self.pen = pen
        self.repo = repo

    def agent(self, name: str, role: str = "worker", **files: str) -> Path:
        """A running agent with a commit for each file; where it works."""
        ran = self.pen.cli("run", "--role", role, "--name", name, "-d", cwd=self.repo)
        assert ran.code == 0, ran
        for file, text in files.items():
            commit(self.tree(name), file.replace("_", "."), text)
        return self.tree(name)

    def tree(self, name: str) -> Path:
        return self.pen.root / "worktrees" / name

    def head(self, ref: str = "main") -> str:
        return git(self.repo, "rev-parse", ref)

    def land(self, *names: str, **fields: Any) -> list[dict[str, Any]]:
        """Put into the queue, over HTTP."""
        status, answer = self.pen.ask("POST", "/landings", {"names": names, **fields})
        assert status == 200, answer
        found: list[dict[str, Any]] = answer["landings"]
        return found

    def landing(self, id: str) -> dict[str, Any]:
        status, answer = self.pen.ask("GET", f"/landings/{id}")
        assert status == 200, answer
        return answer

    def rested(self, id: str, seconds: float = 180.0) -> dict[str, Any]:
        """The entry, once nothing more happens to it by itself."""
        found: dict[str, Any] = {}

        def rests() -> bool:
            found.update(self.landing(id))
            return found["status"]["state"] in ("landed", "refused", "came_back", "cancelled")

        wait_until(rests, seconds)
        return found

    def landed(self, *names: str, **fields: Any) -> list[dict[str, Any]]:
        """All of them, once they rest."""
        return [self.rested(each["id"]) for each in self.land(*names, **fields)]

    def messages(self, name: str) -> list[str]:
        return [
            each["text"] for each in self.pen.client().get("agents", name, "messages")["messages"]
        ]


@contextlib.contextmanager
def made_yard() -> Iterator[Yard]:
    with made_pen() as pen:
        person = Path(pen.env["HOME"])
        (person / ".gitconfig").write_text("[user]\n\tname = Ann\n\temail = ann@example.com\n")
        repo = make_repo(pen.root.parent / "repo")
        write_role(pen, "worker", list(SLEEP), TREE, OPEN)
        write_role(pen, "boxed", list(SLEEP), TREE)
        yield Yard(pen, repo)
