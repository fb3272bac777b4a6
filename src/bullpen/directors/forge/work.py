"""How far the work on an issue is: a type for each stage, and the memory of a director. Pure.

    Frozen → AtWork → Answered → AtWork (a review round) → … → Answered → Pushed → Waiting
    Waiting → AtWork (somebody commented, or a check failed …) → … → Waiting → over

Moves are in `remember`, decisions in `plan`.
"""

from typing import Annotated, Literal

from pydantic import Field

from bullpen.directors.forge.nouns import Comment, Issue
from bullpen.directors.history import HistoryRow
from bullpen.model.value import Value

Reaction = Literal["ci_failed", "changes_requested", "conflict", "stale"]
Purpose = Literal["work", "review", "comment", "ci_failed", "changes_requested", "conflict"]


class Frozen(Value):
    """Its text is kept as it is now; nobody knows yet that we are on it."""

    stage: Literal["frozen"] = "frozen"


class Claimed(Value):
    """Everybody can see that we are on it. `due`: a failed task is given again then."""

    stage: Literal["claimed"] = "claimed"
    due: float = 0.0


class AtWork(Value):
    """An agent works on it."""

    stage: Literal["asked"] = "asked"
    purpose: Purpose
    task_id: str


class Answered(Value):
    """The agent has answered. `commit`: the head of its branch, empty if it has no commits;
    `is_uncommitted`: then there are changes all the same."""

    stage: Literal["answered"] = "answered"
    purpose: Purpose
    output: str
    commit: str
    is_uncommitted: bool = False


class Pushed(Value):
    """The forge has the branch. `is_draft`: the reviews found no end."""

    stage: Literal["pushed"] = "pushed"
    purpose: Purpose
    output: str
    is_draft: bool = False


class Waiting(Value):
    """There is a pull, and people have their say."""

    stage: Literal["waiting"] = "waiting"


class Hopeless(Value):
    """Given up; that is still to be said. `public`: in these words, if the reason is not for
    everybody."""

    stage: Literal["hopeless"] = "hopeless"
    reason: str
    public: str = ""


Stage = Annotated[
    Frozen | Claimed | AtWork | Answered | Pushed | Waiting | Hopeless, Field(discriminator="stage")
]


class Tried(Value):
    """What was done about one kind of fault of a pull since a person had their say. `about` is the
    fault of the last try, `left` the one that is left to a person; `question` is what that is
    called in the inbox while it waits there. `is_granted`: they want it tried once more."""

    count: int = 0
    about: str = ""
    left: str = ""
    question: str = ""
    is_granted: bool = False
    at: float = 0.0  # when something was said of it


class Work(Value):
    """An issue that was taken on. Title, body and comments are as they were then, for ever."""

    number: int
    title: str
    body: str
    author: str
    comments: tuple[Comment, ...] = ()
    since: float = 0.0
    stage: Stage = Frozen()
    session_id: str = ""  # the conversation of all its tasks
    last_task: str = ""
    round: int = 0  # counts its tasks
    reviews: int = 0  # of the present change
    failures: int = 0  # of tasks, in a row
    again: Purpose = "work"  # what a failed task was for
    summary: str = ""  # what the agent said of its work
    news: tuple[Comment, ...] = ()  # comments that the next task is about
    report: str = ""  # or what is wrong with the pull
    fault: str = ""  # and which fault that is
    tries: dict[Reaction, Tried] = Field(default_factory=dict)
    questions: int = 0  # counts those in the inbox
    seen_comment: int = 0  # the newest of the issue that was looked at
    seen_pull_comment: int = 0
    seen_review: int = 0
    seen_line: int = 0  # the newest comment at a line
    seen_approval: int = 0  # the newest that is of an earlier commit
    pull: int = 0
    pull_url: str = ""
    pushed: str = ""  # the commit that the forge has

    @property
    def open_questions(self) -> tuple[str, ...]:
        """What waits in the inbox, by its names there."""
        return tuple(each.question for each in self.tries.values() if each.question)

    @property
    def is_busy(self) -> bool:
        """Whether it counts for how many are worked on at once."""
        return not isinstance(self.stage, Waiting)


class ForgeMemory(Value):
    """All that a director of a forge remembers."""

    origin: str = ""  # whose issues these are
    works: dict[int, Work] = Field(default_factory=dict)
    over: dict[int, str] = Field(default_factory=dict)  # issues that are done with, and how
    history: tuple[HistoryRow, ...] = ()
    status_issue: int = 0
    status_text: str = ""  # what was written there last

    def with_work(self, work: Work) -> "ForgeMemory":
        return self.model_copy(update={"works": {**self.works, work.number: work}})


def freeze(issue: Issue, comments: tuple[Comment, ...], newest: int, now: float) -> Work:
    """The beginning. `comments` are those that count, `newest` is the last of all."""
    return Work(
        number=issue.number,
        title=issue.title,
        body=issue.body,
        author=issue.author,
        comments=comments,
        since=now,
        seen_comment=newest,
    )
