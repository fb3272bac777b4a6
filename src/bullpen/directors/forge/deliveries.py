"""What a forge's delivery (a webhook) names, and whom of a director's works that concerns. Pure.

Parsed by `github_deliveries` and `gitlab_deliveries`; used by `webhook` and `rules`. A delivery is
a hint where to look: nothing that it says of an issue or a pull is kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bullpen.directors.forge.work import ForgeMemory


@dataclass(frozen=True)
class Delivery:
    """What one is about: numbers of issues and pulls, and commits, of one repository."""

    repo: str
    issues: tuple[int, ...] = ()
    pulls: tuple[int, ...] = ()
    commits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Deliveries:
    """How one forge sends them. `may_be_genuine`: whether headers (their names in small letters)
    leave that open, before a body is read; `is_genuine`: whether who sent headers and body knows
    the secret; `parse`: what a payload names."""

    may_be_genuine: Callable[[str, Mapping[str, str]], bool]
    is_genuine: Callable[[str, Mapping[str, str], bytes], bool]
    parse: Callable[[Mapping[str, object]], Delivery]


@dataclass(frozen=True)
class Wanted:
    """Where to look: at these issues that are worked on; `is_new`: for others to take on."""

    works: frozenset[int] = frozenset()
    is_new: bool = False

    def __bool__(self) -> bool:
        return bool(self.works) or self.is_new

    def __or__(self, other: "Wanted") -> "Wanted":
        return Wanted(self.works | other.works, self.is_new or other.is_new)


NOWHERE = Wanted()


def plan_look(delivery: Delivery, repo: str, memory: ForgeMemory) -> Wanted:
    """Where a director of that repository has to look. What it is done with is no matter any more;
    so there are never more works to look at than it has."""
    if delivery.repo.casefold() != repo.casefold():
        return NOWHERE
    works = {
        work.number
        for work in memory.works.values()
        if work.number in delivery.issues
        or (work.pull and work.pull in delivery.pulls)
        or (work.pushed and work.pushed in delivery.commits)
    }
    known = {*memory.works, *memory.over, memory.status_issue}
    return Wanted(frozenset(works), any(number not in known for number in delivery.issues))


def dig(payload: object, *path: str) -> object:
    """The value at that path, or None: the sender decides what is there."""
    for name in path:
        if not isinstance(payload, Mapping):
            return None
        payload = payload.get(name)
    return payload


def numbers(*values: object) -> tuple[int, ...]:
    """Those that are numbers."""
    return tuple(each for each in values if isinstance(each, int) and not isinstance(each, bool))


def words(*values: object) -> tuple[str, ...]:
    """Those that are text."""
    return tuple(each for each in values if isinstance(each, str) and each)
