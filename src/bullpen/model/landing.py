"""A landing: an entry of the queue of one target branch, its states, and how it moves. Pure.

An entry names the commit that it lands: the tip of the branch when somebody asked. It waits, is
built on the target, verified, and the target is moved; or it comes back to its author and waits for
a newer commit. `landed` is said when the target has the work, never before. It is about one life of
a name: when its worktree is removed, it is cancelled, and no other of that name goes on with it.
"""

import fnmatch
import hashlib
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bullpen.model.landing_rules import TIMEOUT, LandingRules, LandingSettings, Strategy
from bullpen.model.rights import Rights
from bullpen.model.value import Value

SHORT = 7  # characters of a commit, for people
MOST_FILES = 20  # that a message names


# ── states ──


class Waiting(Value):
    """It is its turn next, or another is at it."""

    state: Literal["waiting"] = "waiting"


class Building(Value):
    """It is merged with the target."""

    state: Literal["building"] = "building"


class Verifying(Value):
    """The command that verifies runs on it."""

    state: Literal["verifying"] = "verifying"
    base: str
    commit: str


class Moving(Value):
    """The target is about to be moved to it. After a crash the target says whether it was."""

    state: Literal["moving"] = "moving"
    base: str
    commit: str


class CameBack(Value):
    """Its author was told what is wrong, if that is an agent. A newer commit takes its place."""

    state: Literal["came_back"] = "came_back"
    why: Literal["conflict", "verify"]
    base: str  # what the target was
    files: tuple[str, ...] = ()  # that conflict
    problem: str = ""  # how the command ended
    output: str = ""  # its last lines
    is_agent_told: bool = True  # else no agent has that name: the commit is the person's to make
    is_agent_running: bool = True  # else what it was told waits until it is started again
    at: float


class Landed(Value):
    """The target has the work."""

    state: Literal["landed"] = "landed"
    commit: str
    base: str
    is_there: bool = False  # it had it already: no commit was made
    verified_seconds: float | None = None
    checkout: str = ""  # that was fast-forwarded with the target
    at: float


class Refused(Value):
    """It could not land, and nobody but the person can change that. Of a task's work that an agent
    asked for also what else comes back: `why`, and what the target was."""

    state: Literal["refused"] = "refused"
    message: str
    hint: str = ""
    files: tuple[str, ...] = ()  # that stand in the way, or conflict
    why: Literal["", "conflict", "verify"] = ""
    base: str = ""
    at: float


class Cancelled(Value):
    """Somebody took it out of the queue, or what was to land was removed."""

    state: Literal["cancelled"] = "cancelled"
    reason: str = ""  # empty: the person asked for that
    at: float


Status = Annotated[
    Waiting | Building | Verifying | Moving | CameBack | Landed | Refused | Cancelled,
    Field(discriminator="state"),
]
Final = Landed | Refused | Cancelled

MOVES: dict[type[Any], tuple[type[Any], ...]] = {
    Waiting: (Waiting, Building, Cancelled),
    Building: (Waiting, Verifying, Moving, CameBack, Refused, Cancelled),
    Verifying: (Waiting, Verifying, Moving, CameBack, Refused, Cancelled),
    Moving: (Waiting, Landed, Refused),
    CameBack: (Waiting, Cancelled),
    Landed: (),
    Refused: (),
    Cancelled: (),
}


class Landing(Value):
    """One entry of the queue."""

    id: str
    name: str = Field(description="the agent or worktree whose work it is")
    repo: str = Field(description="the common git directory")
    base_dir: str = Field(description="where its worktrees lie")
    branch: str
    birth: str = Field(
        default="",
        description="of its worktree's record: tells one life of a name from the next; empty: an"
        " earlier version did not know it",
    )
    has_worktree: bool = Field(
        default=True, description="else it had only a branch left when it was asked for"
    )
    is_of_agent: bool = Field(default=False, description="else no agent had that worktree")
    target: str
    tip: str = Field(description="the commit that lands")
    strategy: Strategy
    verify: str = ""
    is_verify_given: bool = Field(
        default=False, description="whoever asked named the command; else it is of the settings"
    )
    timeout_seconds: float = TIMEOUT.total_seconds()
    role: str = ""
    pod: str = ""
    overrides: tuple[str, ...] = ()
    ceiling: Rights | None = Field(default=None, description="of its author, at most")
    network: bool = Field(default=True, description="whether its author had one, and so verify")
    by: str = Field(default="", description="the agent that asked; empty: the person")
    task: str = Field(default="", description="whose work it is, if the agent that asked gave it")
    goal: str = Field(default="", description="the task of that agent in which it did")
    cleans_up: bool = Field(default=False, description="worktree and branch go when it has landed")
    is_cleaned: bool = False
    is_for_one_commit: bool = Field(
        default=False, description="a person allowed this commit: a newer one is asked for again"
    )
    created: float
    status: Status = Waiting()

    @property
    def is_over(self) -> bool:
        return isinstance(self.status, Final)

    @property
    def is_open(self) -> bool:
        """Whether the next hub has something to do for it."""
        return not self.is_over or (
            isinstance(self.status, Landed) and self.cleans_up and not self.is_cleaned
        )

    @property
    def is_resting(self) -> bool:
        """Whether nothing happens to it before somebody else acts."""
        return self.is_over or isinstance(self.status, CameBack)

    @property
    def queue(self) -> tuple[str, str]:
        return self.repo, self.target


class LandingList(Value):
    """The oldest first."""

    landings: tuple[Landing, ...]


class LandingOutput(Value):
    """What the command that verifies an entry has written so far, or wrote the last time."""

    output: str


class LandingRequest(BaseModel):
    """What is to land. Asked twice, it is one entry."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    names: Annotated[tuple[str, ...], Field(min_length=1, max_length=100)]
    into: Annotated[str, Field(max_length=250)] | None = None
    strategy: Strategy | None = None
    verify: Annotated[str, Field(max_length=10_000)] | None = None


# ── moves ──


def move(landing: Landing, status: Any) -> Landing:
    """The entry in its next state; raises for a move that does not exist."""
    if type(status) not in MOVES[type(landing.status)]:
        raise ValueError(f"a landing does not go from {landing.status.state} to {status.state}")
    return landing.model_copy(update={"status": status})


def begin_again(landing: Landing, *, has_landed: bool, at: float) -> Landing:
    """As a hub finds it that comes after one that was killed."""
    match landing.status:
        case Moving(base=base, commit=commit) if has_landed:
            return move(landing, Landed(commit=commit, base=base, at=at))
        case Building() | Verifying() | Moving():
            return move(landing, Waiting())
        case _:
            return landing


def take_newer(landing: Landing, tip: str) -> Landing:
    """Its author has answered with a newer commit. Only one that came back takes it."""
    is_taken = isinstance(landing.status, CameBack) and not landing.is_for_one_commit
    if not is_taken or tip == landing.tip:
        return landing
    return move(landing, Waiting()).model_copy(update={"tip": tip})


def ask_again(landing: Landing, wanted: Landing) -> Landing | None:
    """Somebody asks for what is in the queue already: as it is asked for now. A command that was
    named to verify it stays until another is named: else what failed would land unverified. None if
    another is at it just now with another commit: that is an entry of its own."""
    if isinstance(landing.status, Waiting | CameBack):
        again = move(landing, Waiting())
        how = ("strategy", "timeout_seconds", "by", "task", "goal", "cleans_up")
        whose = ("birth", "is_of_agent", "role", "pod", "overrides", "ceiling", "network")
        is_verify_kept = landing.is_verify_given and not wanted.is_verify_given
        verify = () if is_verify_kept else ("verify", "is_verify_given")
        taken = ("tip", "is_for_one_commit", *how, *verify, *whose)
        return again.model_copy(update={key: getattr(wanted, key) for key in taken})
    return landing if landing.tip == wanted.tip else None


def refusal_of(landing: Landing, back: CameBack) -> Refused:
    """How a task's work ends that comes back: the agent that gave the task is answered, nobody else
    is told, and it asks again when there is more."""
    where = f"{landing.target} (now at {back.base[:SHORT]})"
    own = f"{landing.branch} ({landing.tip[:SHORT]})"
    message = f"{own} conflicts with {where}"
    if back.why == "verify":
        message = (
            f"`{landing.verify}` failed on {own} in {where}: {back.problem}. Its last lines:\n"
            f"{back.output}"
        )
    return Refused(message=message, files=back.files, why=back.why, base=back.base, at=back.at)


def is_about_same(landing: Landing, wanted: Landing) -> bool:
    """Whether somebody asks for what that entry lands: the same life of that name, into the same
    branch."""
    is_same_life = landing.birth in ("", wanted.birth)
    where = (landing.name, landing.has_worktree, *landing.queue)
    return is_same_life and where == (wanted.name, wanted.has_worktree, *wanted.queue)


def is_removed(landing: Landing, birth: str, *, has_worktree: bool) -> bool:
    """Whether what was asked to land is gone, or another has its name; `birth` and `has_worktree`
    are what that name has now. One that had only a branch ends when another gets that branch."""
    is_another = bool(landing.birth) and landing.birth != birth
    return is_another or (landing.has_worktree and not has_worktree)


def cancel_removed(landing: Landing, *, has_agent: bool, at: float) -> Landing:
    """What was to land was removed; `has_agent`: there is an agent of that name now."""
    what = "agent" if landing.is_of_agent and not has_agent else "worktree"
    return move(landing, Cancelled(reason=f"its {what} was removed", at=at))


# ── several at once ──


def next_batch(landings: Sequence[Landing]) -> list[Landing]:
    """Those of one queue that are tried together: all that wait and are verified in the same way
    as the first of them."""
    waiting = [landing for landing in landings if isinstance(landing.status, Waiting)]
    if not waiting:
        return []
    return [landing for landing in waiting if _way(landing) == _way(waiting[0])]


def _way(landing: Landing) -> tuple[str, float, bool]:
    return landing.verify, landing.timeout_seconds, landing.network


def order_by_conflicts(count: int, clashes: Collection[tuple[int, int]]) -> list[int]:
    """Numbers from 0, those that clash with the fewest others first; else as they came."""
    weight = [sum(number in pair for pair in clashes) for number in range(count)]
    return sorted(range(count), key=lambda number: (weight[number], number))


def next_probe(good: int, bad: int) -> int | None:
    """How many of the first entries to verify next, when so many are known to be good and so many
    to be bad; None when the one that breaks it is known: the last of the bad."""
    return None if bad - good <= 1 else (good + bad) // 2


def is_protected(target: str, patterns: Collection[str]) -> bool:
    """Whether a setting says that nothing lands there."""
    return any(fnmatch.fnmatchcase(target, pattern) for pattern in patterns)


def combine(settings: LandingSettings, project: LandingRules | None) -> LandingSettings:
    """The project counts where it says something; what is protected by either is."""
    if project is None:
        return settings
    return LandingSettings(
        verify=project.verify or settings.verify,
        strategy=project.strategy or settings.strategy,
        protected=tuple(dict.fromkeys((*settings.protected, *project.protected))),
        timeout=project.timeout or settings.timeout,
    )


# ── words ──


def note_of(landing: Landing) -> str:
    """For the row of an agent in a list; empty if it waits for nothing."""
    match landing.status:
        case Waiting():
            return f"waits for {landing.target}"
        case Building() | Moving():
            return f"lands on {landing.target}"
        case Verifying():
            return "is verified"
        case CameBack(why="conflict", files=files):
            return f"conflict with {landing.target}: {_some(files, 1)}"
        case CameBack(problem=problem):
            return f"verify failed: {problem}"
        case _:
            return ""


def message_to_author(landing: Landing, back: CameBack) -> str:
    """What its author is told."""
    where = f"{landing.target} (now at {back.base[:SHORT]})"
    again = f"Commit on {landing.branch}, and it is tried again by itself."
    if landing.is_for_one_commit:
        ask = f"bullpen land {landing.name} --into {landing.target}"
        again = (
            "It is not tried again by itself: this commit was allowed and no other. A newer one"
            f" lands when the person asks for it: {ask}"
        )
    again += f" (landing {landing.id})"
    if back.why == "conflict":
        files = "\n".join(f"- {file}" for file in back.files[:MOST_FILES])
        more = len(back.files) - MOST_FILES
        rest = f"\n- and {more} more" if more > 0 else ""
        return (
            f"Your branch {landing.branch} ({landing.tip[:SHORT]}) does not land on {where}:"
            f" it conflicts in\n{files}{rest}\n"
            f"Merge or rebase onto {landing.target} and solve that. {again}"
        )
    return (
        f"Your branch {landing.branch} ({landing.tip[:SHORT]}) does not land on {where}:"
        f" `{landing.verify}` failed there ({back.problem}). Its last lines:\n{back.output}\n"
        f"{again}"
    )


def message_id(landing: Landing, back: CameBack) -> str:
    """The same for the same news: it is told once, whoever was killed meanwhile."""
    news = back.files or (landing.verify, back.problem, back.output)
    key = repr((landing.id, landing.tip, back.base, back.why, news))
    return f"m-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _some(names: Sequence[str], most: int) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
