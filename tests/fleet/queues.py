"""Machines that do each other's tasks: h1 asks, h2's agent works, and what became of each task."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bullpen.files import write_atomically
from bullpen.fleet import bundles
from bullpen.hub.agents import sessions
from tests.fleet.machines import Machines, made_machines
from tests.hub.pen import Pen, change_hub
from tests.hub.tasks.desk import Desk, made_desk
from tests.waiting import wait_until
from tests.worktrees.repos import git, make_repo

# Writes down that it runs, waits until it may go on, commits if it is in a repository.
PROGRAM = """
import subprocess
prompt = prompt.splitlines()[-1]
work = {work!r}
with open(work + "/runs", "a") as file:
    file.write(prompt + "\\n")
while not os.path.exists(work + "/go"):
    time.sleep(0.02)
if os.path.exists("file0.txt"):
    open("new.txt", "w").write(prompt)
    who = ["-c", "user.name=Tim", "-c", "user.email=tim@example.com"]
    subprocess.run(["git", "add", "new.txt"], check=True)
    subprocess.run(["git", *who, "commit", "-qm", "Do " + prompt], check=True)
say("done")
result("did " + prompt)
"""


class Queues:
    """See the module."""

    def __init__(self, machines: Machines, desk: Desk, work: Path) -> None:
        self.machines = machines
        self.desk = desk
        self.work = work
        self.h1: Pen = machines.hosts["h1"]
        self.h2 = desk.pen
        self.repo = make_repo(self.h1.root.parent / "shop")

    def may_go(self, may: bool = True) -> None:
        """Whether what runs may come to its end."""
        if may:
            (self.work / "go").touch()
        else:
            (self.work / "go").unlink(missing_ok=True)

    def runs(self, prompt: str) -> int:
        """How often it was begun."""
        file = self.work / "runs"
        return file.read_text().splitlines().count(prompt) if file.exists() else 0

    def ask(self, prompt: str, **fields: Any) -> str:
        """Asked on h1; the id there."""
        body = {"prompt": prompt, "fleet": True, **fields}
        return str(self.h1.client().post("tasks", body=body, again="request" in fields)["task_id"])

    def ask_on_repo(self, prompt: str, **fields: Any) -> str:
        return self.ask(prompt, repo=str(self.repo), worktree=prompt, **fields)

    def task(self, id: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.h1.client().get("task", id)
        return shown

    def wait(self, id: str, *states: str, seconds: float = 120) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def reached() -> bool:
            found.update(self.task(id))
            return found["state"] in states

        try:
            wait_until(reached, seconds)
        except AssertionError as error:
            logs = [pen.logged()[-15:] for pen in self.machines.hosts.values()]
            raise AssertionError(json.dumps([found, logs], indent=1)) from error
        return found

    def over(self, id: str) -> dict[str, Any]:
        return self.wait(id, "completed", "failed", "cancelled")

    def ends(self, id: str) -> list[str]:
        """Every end that h1 has recorded of it."""
        events = self.h1.events("", "task.state")
        states = [event["state"] for event in events if event["task"] == id]
        return [state for state in states if state in ("completed", "failed", "cancelled")]

    def checkouts(self, id: str) -> list[str]:
        """What h2 has of it, a worktree or a branch."""
        listed = [*self._in_clones("worktree", "list"), *self._in_clones("branch", "--list")]
        return [line for line in listed if f"{id}-" in line]

    def was_fetched(self, id: str) -> bool:
        """Whether h2 has had its commit."""
        return any(id in line for line in self._in_clones("for-each-ref", bundles.PINNED))

    def _in_clones(self, *words: str) -> list[str]:
        clones = (self.h2.root / "projects").glob("fleet-*")
        return [line for clone in clones for line in git(clone, *words).splitlines()]

    @contextlib.contextmanager
    def logged_out(self) -> Iterator[None]:
        """Meanwhile the agent of h2 has no login."""
        file = self.h2.home.session("tim") / sessions.ENVIRONMENT
        text = file.read_text()
        assert "ANTHROPIC_" in text
        write_atomically(file, text.replace("ANTHROPIC_", "NO_"), mode=0o600)
        try:
            yield
        finally:
            write_atomically(file, text, mode=0o600)

    def start(self, pen: Pen) -> None:
        """Again, and it is one of the fleet again."""
        pen.start()
        name = next(name for name, each in self.machines.hosts.items() if each is pen)
        wait_until(lambda: self.machines.shown(name)["link"] == "connected")


def changed_program(desk: Desk, work: Path) -> None:
    desk.program(PROGRAM.format(work=str(work)))


@contextlib.contextmanager
def made_queues(root: Path, changes: str = "", **given: Pen) -> Iterator[Queues]:
    """h1, and h2 whose agent tim takes tasks; its hub runs `changes` first."""
    with contextlib.ExitStack() as stack:
        desk = stack.enter_context(made_desk(root))
        if changes:
            change_hub(desk.pen, changes)
        made = stack.enter_context(made_machines("h1", h2=desk.pen, **given))
        work = root / "runs"
        work.mkdir()
        changed_program(desk, work)
        desk.agent("tim", walls=False)
        yield Queues(made, desk, work)
