"""Worlds for `tests/directors/replay`: a director of a forge, which may be killed at any step."""

import contextlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bullpen.directors.forge.github import GitHubForge
from bullpen.directors.loop import Loop
from tests.forge.office import LGTM, Answer, Office
from tests.forge.server import Forge, git, served_github
from tests.forge.world import World

FAULT = re.compile(r"\b[0-9a-f]{40}( [0-9a-f]{16})?")


class Life:
    """A world for `replay`: an issue becomes a pull, somebody comments, somebody approves."""

    def __init__(
        self, stack: contextlib.ExitStack, served: Any = served_github, adapter: Any = GitHubForge
    ) -> None:
        self._stack = stack
        self._served = served
        self._adapter = adapter
        self._offices: dict[Path, Office] = {}
        self.changes: Sequence[Callable[[Path], None]] = (self._comment, self._approve)

    def make(self, directory: Path) -> None:
        world = World("acme/shop", {"ann": "admin", "bot": "write"})
        (directory / "forge").mkdir()
        forge = self._stack.enter_context(self._served(directory / "forge", world))
        quiet = {"status_issue": False}
        office = Office(directory / "office", forge, adapter=self._adapter, settings=quiet)
        number = world.open_issue("ann", "[robo] Greet", "Say hello")
        office.script(number, Answer(commit="greet"), LGTM, Answer(commit="louder"), LGTM)
        self._offices[directory] = office

    def loop(self, directory: Path) -> Loop[Any, Any, Any, Any]:
        return self._offices[directory].loop()

    def is_quiet(self, loop: Loop[Any, Any, Any, Any], tried: int) -> bool:
        return tried == 0

    def picture(self, directory: Path) -> object:
        office = self._offices[directory]
        assert office.forge.faults == []
        return office.picture()

    def _comment(self, directory: Path) -> None:
        world = self._offices[directory].forge.world
        world.comment(world.pulls[0].number, "ann", "louder")

    def _approve(self, directory: Path) -> None:
        world = self._offices[directory].forge.world
        world.react(world.pulls[0].number, "ann", "+1")  # the fake of GitLab calls it thumbsup


class Reacting(Life):
    """A pull with red checks, a conflict, a review; then the checks stay red: a person is asked,
    wants another try, and closes the issue at last."""

    def __init__(
        self, stack: contextlib.ExitStack, served: Any = served_github, adapter: Any = GitHubForge
    ) -> None:
        super().__init__(stack, served, adapter)
        self.changes = (
            self._fail,
            self._move,
            self._review,
            self._fail,
            self._fail,
            self._try_again,
            self._fail,
            self._close,
        )

    def make(self, directory: Path) -> None:
        world = World("acme/shop", {"ann": "admin", "bot": "write"})
        (directory / "forge").mkdir()
        forge = self._stack.enter_context(self._served(directory / "forge", world))
        office = Office(
            directory / "office",
            forge,
            adapter=self._adapter,
            settings={"status_issue": False, "max_reviews": 0},
            reactions={"ci_failed": {"retries": 1}, "conflict": {}, "changes_requested": {}},
        )
        number = world.open_issue("ann", "[robo] Greet", "Say hello")
        merged = Answer(commit="greet", content="both\n", onto="merge")
        more = [Answer(commit=name) for name in ("greet", "red", "merge", "asked", "again", "more")]
        more[2] = merged
        office.script(number, *more)
        self._offices[directory] = office

    def picture(self, directory: Path) -> object:
        """Commits have other ids each time, and faults are called by them."""
        picture: Any = super().picture(directory)
        for issue in picture["issues"].values():
            issue["comments"] = [(who, FAULT.sub("FAULT", text)) for who, text in issue["comments"]]
        for question in picture["inbox"]:
            question["about"]["pull_request"] = ""  # with the port of this forge
        return picture

    def _fail(self, directory: Path) -> None:
        forge = self._offices[directory].forge
        forge.world.check(forge.branches()["claude/issue-1"], "tests", "failure", "no\n")

    def _move(self, directory: Path) -> None:
        move_base(self._offices[directory].forge)

    def _try_again(self, directory: Path) -> None:
        self._offices[directory].inbox.answer("again")

    def _close(self, directory: Path) -> None:
        world = self._offices[directory].forge.world
        world.edit(1, state="closed")

    def _review(self, directory: Path) -> None:
        world = self._offices[directory].forge.world
        world.review(world.pulls[0].number, "ann", "CHANGES_REQUESTED", "", ("a.py", 3, "why?"))


def move_base(forge: Forge, content: str = "the other side's\n") -> None:
    """So that what a pull does to `greet.txt` cannot be merged."""
    seed = forge.bare.parent / "seed"
    (seed / "greet.txt").write_text(content)
    git(seed, "add", ".")
    git(seed, "commit", "-q", "-m", "Move")
    git(seed, "push", "-q", str(forge.bare), "main")


def check_reacting(picture: Any) -> None:
    """What the undisturbed run itself has to be."""
    messages = picture["branches"]["claude/issue-1"]
    assert messages == ["greet", "red", "greet", "asked", "again", "more"]
    assert len(picture["tasks"]) == 6
    pull = next(each for each in picture["issues"].values() if each["draft"] is not None)
    assert len(pull["comments"]) == 5
    assert [each["state"] for each in picture["inbox"]] == ["again", "withdrawn"]


class Quiet(Life):
    """One without issues: there is but the status to show."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        super().__init__(stack)
        self.changes = ()

    def make(self, directory: Path) -> None:
        (directory / "forge").mkdir()
        world = World("acme/shop", {"bot": "write"})
        forge = self._stack.enter_context(served_github(directory / "forge", world))
        self._offices[directory] = Office(directory / "office", forge)


def check(picture: Any) -> None:
    """What the undisturbed run itself has to be."""
    issue, pull = (
        picture["issues"][1],
        next(each for each in picture["issues"].values() if each["draft"] is not None),
    )
    assert picture["branches"] == {"claude/issue-1": ["greet", "louder"]}
    assert len(picture["tasks"]) == 4
    assert [who for who, _ in issue["comments"]] == ["bot"]
    assert [who for who, _ in pull["comments"]] == ["ann", "bot", "bot"]
    assert pull["labels"] == ["approved"]
