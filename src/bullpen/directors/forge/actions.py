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


class Freeze(Action):
    """Keep an issue's text. Touches nothing outside of the memory."""

    kind: Literal["freeze"] = "freeze"
    work: Work


class Claim(Action):
    """Assign it, react, and say so."""

    kind: Literal["claim"] = "claim"
    number: int


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


class Collect(Action):
    """Take over what a task that is over has brought."""

    kind: Literal["collect"] = "collect"
    number: int
    purpose: Purpose
    task_id: str


class Push(Action):
    """Bring the branch to the forge. `expected` is the commit that it has there now; approvals of
    `pull` up to then are of that one."""

    kind: Literal["push"] = "push"
    number: int
    commit: str
    expected: str
    is_draft: bool
    pull: int = 0


class OpenPull(Action):
    """Ask for the branch to be taken."""

    kind: Literal["open_pull"] = "open_pull"
    number: int
    title: str
    body: str
    is_draft: bool


class Inspect(Action):
    """Read what red checks have to say. Changes nothing."""

    kind: Literal["inspect"] = "inspect"
    number: int
    fault: str
    checks: tuple[Check, ...]


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


class Escalate(Action):
    """Ask a person in the inbox what to do about a fault."""

    kind: Literal["escalate"] = "escalate"
    number: int
    reaction: Reaction
    fault: str
    what: str
    about: dict[str, str]


class Heed(Action):
    """Do as the person said. Touches nothing outside of the memory."""

    kind: Literal["heed"] = "heed"
    number: int
    reaction: Reaction
    answer: Literal["again", "leave", "gone"]


class Withdraw(Action):
    """Nobody has to decide about these any more."""

    kind: Literal["withdraw"] = "withdraw"
    number: int
    reactions: tuple[Reaction, ...]
    questions: tuple[str, ...]


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


class ShowStatus(Action):
    """Write the status issue."""

    kind: Literal["show_status"] = "show_status"
    number: int
    text: str


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
