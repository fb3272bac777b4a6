"""What is wrong with a pull, and whether it is still tried to mend it. Pure.

Called by `plan`. A fault has a name (`about`): as long as that is the same, it is the same fault.
What an agent has worked on and left as it was is tried no more, and nothing is tried more often
than the file says, until a person has had their say: so every loop ends.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bullpen.directors.forge import texts
from bullpen.directors.forge.config import Reactions, Reacts
from bullpen.directors.forge.nouns import Check, Comment, Health
from bullpen.directors.forge.work import Reaction, Tried, Work


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong. `what`: for people; `base`: the branch that a conflict is with."""

    reaction: Reaction
    about: str
    what: str = ""
    base: str = ""
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class Sight:
    """A pull, as far as its faults are concerned."""

    health: Health | None = None
    checks: tuple[Check, ...] = ()  # of the commit that was pushed


def find_faults(work: Work, sight: Sight, reactions: Reactions, now: float) -> Iterator[Fault]:
    """Those that the file names, the gravest first."""
    health = sight.health
    # What a forge says of another commit is old, or of somebody else's.
    if reactions.conflict and health and health.head == work.pushed and health.is_conflicting:
        yield Fault("conflict", work.pushed, base=health.base)
    red = tuple(check for check in sight.checks if check.state == "failed")
    is_running = any(check.state == "running" for check in sight.checks)
    if reactions.ci_failed and red and not is_running:
        ids = _digest(sorted(check.id for check in red))
        names = ", ".join(sorted({check.name for check in red}))
        yield Fault("ci_failed", f"{work.pushed} {ids}", what=names, checks=red)
    if reactions.stale and health:
        # By our clock as well: that of the forge may be another.
        last = max(health.updated, work.tries.get("stale", Tried()).at)
        if now - last >= reactions.stale.after.total_seconds():
            yield Fault("stale", str(work.round))


def asked_fault(reviews: Sequence[Comment]) -> Fault:
    """That of reviewers who want something else."""
    people = ", ".join(sorted({each.author for each in reviews}))
    return Fault("changes_requested", _digest([str(each.id) for each in reviews]), what=people)


def evidence(work: Work, fault: Fault, reviews: Sequence[Comment]) -> dict[str, str]:
    """What a person needs who is to decide about it."""
    is_red = fault.reaction == "ci_failed"
    report = texts.comments_text(reviews) or texts.checks_text((each, "") for each in fault.checks)
    return {
        "issue": f"#{work.number} {texts.one_line(work.title)}",
        "pull_request": work.pull_url,
        "details": report or fault.base,
        "log": work.report if is_red else "",
        "agent_said": work.summary if tries_of(work, fault) else "",
    }


def reacts_to(reactions: Reactions, fault: Fault) -> Reacts:
    """What the file says of such a fault, which it names."""
    reaction = getattr(reactions, fault.reaction)
    assert isinstance(reaction, Reacts)
    return reaction


def is_left(work: Work, fault: Fault, retries: int) -> bool:
    """Whether a person has been told: of this one, or that nothing more is tried about any."""
    tried = work.tries.get(fault.reaction, Tried())
    return tried.left == fault.about or (tried.left != "" and tried.count >= retries)


def is_spent(work: Work, fault: Fault, retries: int) -> bool:
    """Whether nothing more is tried."""
    tried = work.tries.get(fault.reaction, Tried())
    if tried.is_granted:
        return False
    if fault.reaction == "stale":  # the same silence is broken several times
        return (tried.count if tried.about == fault.about else 0) >= retries
    return tried.count >= retries or tried.about == fault.about


def find_mended(work: Work, sight: Sight, faults: Sequence[Fault]) -> tuple[Reaction, ...]:
    """The reactions of before that are needed no more, as far as that is certain."""
    present = {fault.reaction for fault in faults}
    health, checks = sight.health, sight.checks
    is_known = health is not None and health.head == work.pushed
    certain: dict[Reaction, bool] = {
        "ci_failed": bool(checks) and all(check.state == "passed" for check in checks),
        "changes_requested": True,
        "conflict": is_known and health is not None and health.is_conflicting is False,
        "stale": health is not None,
    }
    return tuple(
        name
        for name, tried in work.tries.items()
        if name not in present and certain[name] and (tried.question or name == "conflict")
    )


def tries_of(work: Work, fault: Fault) -> int:
    """How often it was tried to mend such a fault."""
    return work.tries.get(fault.reaction, Tried()).count


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
