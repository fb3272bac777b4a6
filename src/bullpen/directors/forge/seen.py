"""What a director of a forge has seen: one look at forge and hub, from which `plan` decides."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from bullpen.directors.failures import ActionError
from bullpen.directors.forge.inbox import Answer
from bullpen.directors.forge.nouns import Comment, Issue, Pull
from bullpen.directors.forge.reactions import Sight
from bullpen.directors.forge.work import ForgeMemory

V = TypeVar("V")


@dataclass(frozen=True)
class News:
    """Comments since the last look: those that count, and the ids of the newest of all. `reviews`
    are those at the code, where changes that are requested are reacted to."""

    comments: tuple[Comment, ...] = ()
    reviews: tuple[Comment, ...] = ()
    newest: int = 0
    newest_of_pull: int = 0
    newest_review: int = 0
    newest_line: int = 0


@dataclass(frozen=True)
class Seen:
    """One look at forge and hub."""

    now: float
    me: str
    candidates: tuple[tuple[Issue, tuple[Comment, ...], int], ...] = ()
    issues: dict[int, Issue] = field(default_factory=dict)  # that are worked on
    over: set[str] = field(default_factory=set)  # tasks that are
    untaken: dict[int, float] = field(default_factory=dict)  # issues whose task no agent has, since
    at_work: dict[int, str] = field(default_factory=dict)  # and who has the others
    claimed_by_other: int = 0  # an issue that another director of the same name has taken on
    is_file_changed: bool = False  # since the director's start
    pulls: dict[int, Pull] = field(default_factory=dict)  # by issue
    approvers: dict[int, tuple[str, ...]] = field(default_factory=dict)  # that count, by issue
    news: dict[int, News] = field(default_factory=dict)
    sights: dict[int, Sight] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)  # in the inbox, by their names there
    unseen: dict[int, ActionError] = field(default_factory=dict)  # why an issue could not be
    is_status_shown: bool = True  # since the director's start

    def without(self, numbers: Collection[int], now: float) -> "Seen":
        """As if these issues had not been looked at. Nothing of it is shared."""

        def others(by_number: Mapping[int, V]) -> dict[int, V]:
            return {number: each for number, each in by_number.items() if number not in numbers}

        return replace(
            self,
            now=now,
            issues=others(self.issues),
            over={*self.over},
            untaken=others(self.untaken),
            at_work=others(self.at_work),
            pulls=others(self.pulls),
            approvers=others(self.approvers),
            news=others(self.news),
            sights=others(self.sights),
            answers={**self.answers},
            unseen=others(self.unseen),
        )


@dataclass(frozen=True)
class Look:
    """A look that succeeded. `at`: when all was looked at; parts of it may be newer."""

    seen: Seen
    memory: ForgeMemory
    at: float

    def holds(self, memory: ForgeMemory, now: float, interval_seconds: float) -> bool:
        """Whether looking at a part again is enough. Not once anything was done: what was seen
        before would be done again."""
        return memory is self.memory and 0 <= now - self.at < interval_seconds
