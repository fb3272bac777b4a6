"""What a forge has, in words that hold for all of them, and what a director asks of one. No I/O.

Parsed by an adapter. What is written there comes from strangers.
"""

from typing import Literal, Protocol

from bullpen.model.value import Value

APPROVAL = "+1"  # the reaction that approves
SEEN = "eyes"  # and the one that says that somebody is on it


class Repository(Value):
    """The one that a director works for."""

    default_branch: str
    clone_url: str


class Issue(Value):
    """An issue, as it is now."""

    number: int
    title: str
    body: str
    author: str
    is_open: bool
    assignees: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


class Comment(Value):
    """One comment. Later ones have higher ids. `path`: it stands at that line of that file."""

    id: int
    author: str
    body: str
    path: str = ""
    line: int = 0


class Reviews(Value):
    """What reviewers say at the code: the texts of their reviews, and what they wrote at lines."""

    texts: tuple[Comment, ...] = ()
    at_lines: tuple[Comment, ...] = ()


class Pull(Value):
    """A pull or merge request. `head`: the commit that it proposes, or proposed at last."""

    number: int
    url: str
    is_open: bool
    is_merged: bool = False
    head: str = ""


class Health(Value):
    """How a pull stands. `head`: the commit that this is said of; `is_conflicting` is None while
    the forge does not know; `updated`: when anything happened to it, in seconds since 1970."""

    head: str
    base: str  # the branch that it is proposed for
    is_conflicting: bool | None
    updated: float


class Check(Value):
    """What one check says of a commit. `log` is where to ask for its log, empty if it has none."""

    id: str
    name: str
    state: Literal["running", "passed", "failed"]
    summary: str = ""
    log: str = ""


class Approval(Value):
    """A reaction to a pull that approves it. Later ones have higher ids."""

    id: int
    person: str


class Rights(Value):
    """What a token may do, as far as the forge tells. `scopes`: None where tokens have none;
    `lacks`: what a director needs besides, in words."""

    login: str = ""
    scopes: tuple[str, ...] | None = None
    lacks: tuple[str, ...] = ()


class Forge(Protocol):
    """One repository of a forge, with one token. Every call may raise `failures.ActionError`."""

    async def rights(self) -> Rights | None:
        """What the token may do; None: the forge does not know it. Without a repository ("") what
        can be told without one."""

    async def login(self) -> str:
        """Whose token it is."""

    async def repository(self) -> Repository: ...

    async def may_write(self, person: str) -> bool:
        """Whether that person may change the repository."""

    async def open_issues(self, label: str) -> list[Issue]:
        """No pulls. With that label, unless it is empty."""

    async def issue(self, number: int) -> Issue: ...

    async def comments(self, number: int, *, of_pull: bool = False) -> list[Comment]:
        """Of an issue, or of a pull; oldest first."""

    async def comment(self, number: int, text: str, *, of_pull: bool = False) -> int:
        """Its id."""

    async def assign(self, number: int, person: str) -> None: ...

    async def react(self, number: int, content: str) -> None:
        """To an issue; a second time changes nothing."""

    async def approvals(self, pull: int) -> list[Approval]:
        """The reactions to the pull with `APPROVAL`."""

    async def label(self, pull: int, name: str) -> None: ...

    async def find_pull(self, branch: str) -> Pull | None:
        """The newest of that branch."""

    async def open_pull(
        self, branch: str, base: str, title: str, body: str, *, is_draft: bool
    ) -> Pull: ...

    async def reviews(self, pull: int) -> Reviews:
        """Those that ask for something. Where they are comments like all others: none."""

    async def health(self, pull: int) -> Health: ...

    async def checks(self, commit: str) -> list[Check]: ...

    async def log_tail(self, check: Check) -> str:
        """The end of its log; empty if there is none any more."""

    async def open_issue(self, title: str, body: str) -> int:
        """Its number."""

    async def edit_issue(self, number: int, body: str, *, is_open: bool) -> bool:
        """False: it is gone."""
