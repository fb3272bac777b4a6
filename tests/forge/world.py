"""What the fake knows: one repository with its people, issues, comments, reactions and pulls.

world = World("acme/shop", {"ann": "admin", "bot": "write", "eve": "read"})
number = world.open_issue("ann", "[robo] Greet", "Add a greeting")     # as that person would
world.comment(number, "ann", "Shorter, please")
"""

import itertools
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 5, 9, tzinfo=UTC)


@dataclass
class Comment:
    id: int
    author: str
    body: str
    when: str
    path: str = ""
    line: int = 0


@dataclass
class Review:
    """Of a pull. `state` in GitHub's words; GitLab knows the comments at lines alone."""

    id: int
    author: str
    state: str
    body: str
    when: str
    lines: list[Comment]


@dataclass
class Check:
    """What a machine says of a commit. `state`: running, success, failure. `is_status`: as before
    there were checks."""

    id: int
    name: str
    state: str
    log: str
    is_status: bool
    when: str


@dataclass
class Reaction:
    id: int
    author: str
    content: str
    when: str


@dataclass
class Issue:
    """Also what a pull request has of one: they share numbers and conversation."""

    number: int
    author: str
    title: str
    body: str
    when: str
    updated: str
    state: str = "open"
    assignees: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    reactions: list[Reaction] = field(default_factory=list)
    reviews: list[Review] = field(default_factory=list)
    pull: "Pull | None" = None


@dataclass
class Pull:
    branch: str
    base: str
    draft: bool
    merged: bool = False


class World:
    """See the module. Its lock is held by who reads or changes it."""

    def __init__(self, repository: str, people: dict[str, str]) -> None:
        self.repository = repository
        self.people = people  # login -> permission: admin, write, read, none
        self.issues: dict[int, Issue] = {}
        self.checks: dict[str, list[Check]] = {}  # by commit
        self.lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._ids = itertools.count(1000)
        self._seconds = itertools.count()

    def now(self) -> str:
        """A clock that moves by a second whenever it is looked at."""
        with self.lock:
            return (START + timedelta(seconds=next(self._seconds))).strftime("%Y-%m-%dT%H:%M:%SZ")

    def id_of(self, login: str) -> int:
        return 1 + sorted(self.people).index(login)

    def can_write(self, login: str) -> bool:
        return self.people.get(login) in ("admin", "write")

    def open_issue(
        self, author: str, title: str, body: str = "", labels: tuple[str, ...] = ()
    ) -> int:
        with self.lock:
            number, when = next(self._numbers), self.now()
            issue = Issue(number, author, title, body, when, when, labels=list(labels))
            self.issues[number] = issue
            return number

    def comment(self, number: int, author: str, body: str) -> Comment:
        with self.lock:
            made = Comment(next(self._ids), author, body, self.now())
            self.issues[number].comments.append(made)
            self.touch(number)
            return made

    def react(self, number: int, author: str, content: str) -> tuple[Reaction, bool]:
        """The reaction, and whether it is new: GitHub has one of a kind from a person."""
        with self.lock:
            issue = self.issues[number]
            for old in issue.reactions:
                if (old.author, old.content) == (author, content):
                    return old, False
            made = Reaction(next(self._ids), author, content, self.now())
            issue.reactions.append(made)  # as on GitHub: `updated_at` stays
            return made, True

    def review(
        self, number: int, author: str, state: str, body: str, *lines: tuple[str, int, str]
    ) -> None:
        """With comments at lines: path, line, text."""
        with self.lock:
            made = [
                Comment(next(self._ids), author, text, self.now(), path, line)
                for path, line, text in lines
            ]
            review = Review(next(self._ids), author, state, body, self.now(), made)
            self.issues[number].reviews.append(review)
            self.touch(number)

    def check(
        self, commit: str, name: str, state: str, log: str = "", *, is_status: bool = False
    ) -> None:
        """One more, or another result of the one with that name."""
        with self.lock:
            checks = self.checks.setdefault(commit, [])
            checks[:] = [each for each in checks if each.name != name]
            checks.append(Check(next(self._ids), name, state, log, is_status, self.now()))

    def find_log(self, id: int) -> str | None:
        with self.lock:
            found = [each for some in self.checks.values() for each in some if each.id == id]
            return found[0].log if found and found[0].log else None

    def edit(self, number: int, **fields: object) -> None:
        with self.lock:
            for name, value in fields.items():
                setattr(self.issues[number], name, value)
            self.touch(number)

    def touch(self, number: int) -> None:
        self.issues[number].updated = self.now()

    def open_pull(
        self, author: str, title: str, body: str, branch: str, base: str, draft: bool
    ) -> int:
        with self.lock:
            number = self.open_issue(author, title, body)
            self.issues[number].pull = Pull(branch, base, draft)
            return number

    # ── what tests ask ──

    @property
    def pulls(self) -> list[Issue]:
        with self.lock:
            return [issue for issue in self.issues.values() if issue.pull]

    def said(self, number: int, author: str) -> list[str]:
        """The comments of that person, in order."""
        with self.lock:
            return [c.body for c in self.issues[number].comments if c.author == author]
