"""What a director of a forge does, one class for each. Pure values.

Each is safe to do twice: a comment carries the action's key and is looked for first, a task has a
request, a branch is compared, a pull is looked for by its branch.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bullpen.directors.failures import Verdict
from bullpen.directors.forge.nouns import Check, Comment
from bullpen.directors.forge.work import Purpose, Reaction, Work
from bullpen.directors.memory import Action

NEW_LINE = "\n"
PURPOSES: dict[Purpose, str] = {
    "work": "the issue",
    "review": "to look at its own work",
    "comment": "what was commented",
    "ci_failed": "the red checks",
    "changes_requested": "what reviewers ask for",
    "conflict": "the conflict with the default branch",
}


class Freeze(Action):
    """Keep an issue's text. Touches nothing outside of the memory."""

    kind: Literal["freeze"] = "freeze"
    work: Work

    @property
    def words(self) -> str:
        return f'takes it on: "{self.work.title}", by {self.work.author}'


class Claim(Action):
    """Assign it, react, and say so."""

    kind: Literal["claim"] = "claim"
    number: int

    @property
    def words(self) -> str:
        return "assigns it to itself, reacts with 👀, and comments that it works on it"


class GiveTask(Action):
    """Have an agent work on it."""

    kind: Literal["give_task"] = "give_task"
    number: int
    purpose: Purpose
    prompt: str
    session_id: str
    news: tuple[Comment, ...] = ()
    seen_comment: int = 0
    seen_pull_comment: int = 0
    seen_review: int = 0
    seen_line: int = 0
    report: str = ""
    fault: str = ""

    @property
    def words(self) -> str:
        return f"gives an agent a task: {PURPOSES[self.purpose]}"


class Collect(Action):
    """Take over what a task that is over has brought."""

    kind: Literal["collect"] = "collect"
    number: int
    purpose: Purpose
    task_id: str

    @property
    def words(self) -> str:
        return f"takes over what task {self.task_id} has brought"


class Push(Action):
    """Bring the branch to the forge. `expected` is the commit that it has there now; approvals of
    `pull` up to then are of that one."""

    kind: Literal["push"] = "push"
    number: int
    commit: str
    expected: str
    is_draft: bool
    pull: int = 0

    @property
    def words(self) -> str:
        return f"pushes {self.commit[:12]}, its branch"


class OpenPull(Action):
    """Ask for the branch to be taken."""

    kind: Literal["open_pull"] = "open_pull"
    number: int
    commit: str = ""  # unknown of one that an earlier version had begun
    title: str
    body: str
    is_draft: bool

    @property
    def words(self) -> str:
        draft = "as a draft " if self.is_draft else ""
        return f'proposes its branch {draft}as "{self.title}"'


class Inspect(Action):
    """Read what red checks have to say. Changes nothing."""

    kind: Literal["inspect"] = "inspect"
    number: int
    fault: str
    checks: tuple[Check, ...]

    @property
    def words(self) -> str:
        return f"reads the logs of {', '.join(check.name for check in self.checks)}"


class Say(Action):
    """A comment at the issue, or at its pull. `reaction`: what is done about that fault;
    `is_left`: nothing more is."""

    kind: Literal["say"] = "say"
    number: int
    at: int
    of_pull: bool
    text: str
    reaction: Reaction | None = None
    fault: str = ""
    is_left: bool = False

    @property
    def words(self) -> str:
        where = f"at its proposal {self.at}" if self.of_pull else "at it"
        return f"comments {where}: {self.text.partition(NEW_LINE)[0]}"


class Escalate(Action):
    """Ask a person in the inbox what to do about a fault."""

    kind: Literal["escalate"] = "escalate"
    number: int
    reaction: Reaction
    fault: str
    what: str
    about: dict[str, str]

    @property
    def words(self) -> str:
        return f"asks you in the inbox: {self.what}"


class Heed(Action):
    """Do as the person said. Touches nothing outside of the memory."""

    kind: Literal["heed"] = "heed"
    number: int
    reaction: Reaction
    answer: Literal["again", "leave", "gone"]

    @property
    def words(self) -> str:
        return f"heeds your answer about {self.reaction}: {self.answer}"


class Withdraw(Action):
    """Nobody has to decide about these any more."""

    kind: Literal["withdraw"] = "withdraw"
    number: int
    reactions: tuple[Reaction, ...]
    questions: tuple[str, ...]

    @property
    def words(self) -> str:
        return "takes its questions out of the inbox"


class Finish(Action):
    """Nothing more is done about the issue. Before that a comment (`text`), and a label at the
    pull, if there are any; a task that runs is cancelled, and questions are withdrawn."""

    kind: Literal["finish"] = "finish"
    number: int
    how: str
    at: int = 0
    of_pull: bool = False
    text: str = ""
    label: str = ""
    task_id: str = ""
    reason: str = ""
    questions: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        comment = f", comments: {self.text.partition(NEW_LINE)[0]}" if self.text else ""
        label = f", labels it {self.label}" if self.label else ""
        return f"is done with it ({self.how}){comment}{label}"


class Stumble(Action):
    """Fail: an issue that is worked on could not be looked at, and not because of the forge. So it
    is held up and given up as one whose action failed, and the others go on. Without a number it
    says what a person has to see to."""

    is_deed: ClassVar[bool] = False
    kind: Literal["stumble"] = "stumble"
    number: int = 0
    verdict: Verdict
    reason: str
    hint: str = ""

    @property
    def words(self) -> str:
        return " · ".join(filter(None, (f"is held up: {self.reason}", self.hint)))


class ShowStatus(Action):
    """Write the status issue."""

    kind: Literal["show_status"] = "show_status"
    number: int
    text: str

    @property
    def words(self) -> str:
        return (
            f"updates its status issue {self.number}" if self.number else "opens its status issue"
        )


AnyAction = Annotated[
    Freeze
    | Claim
    | GiveTask
    | Collect
    | Push
    | OpenPull
    | Inspect
    | Say
    | Escalate
    | Heed
    | Withdraw
    | Finish
    | Stumble
    | ShowStatus,
    Field(discriminator="kind"),
]
