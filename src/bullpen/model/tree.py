"""The tree of agents: who descends from whom, how children are called, how many there may be, who
hears of whose end, and what becomes of children whose parent ends. Pure.

The person at the top is `root`; agents that a person started have no parent. Called by `hub/tree`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from bullpen.errors import BullpenError, Kind
from bullpen.model import names
from bullpen.model.agent import Agent
from bullpen.model.message import ROOT
from bullpen.model.role import OrphansRule
from bullpen.model.state import Exited, Idle, Interrupted, Lost, Unknown, View

ChildKind = Literal["agent", "subtree", "worker"]
WORKER = ".w."


class Family:
    """All agents of one moment, by name, and who is whose child."""

    def __init__(self, agents: Iterable[Agent]) -> None:
        self.by_name: Mapping[str, Agent] = {agent.name: agent for agent in agents}
        self._parents: dict[str, str] = {}
        for name in sorted(self.by_name):
            above = self.by_name[name].parent
            is_circle = name in (above, self._top(above))
            is_there = above in self.by_name or is_elsewhere(above)
            self._parents[name] = ROOT if is_circle or not is_there else above

    def parent(self, name: str) -> str:
        """Who hears of its end: its parent, which may be on another machine; `root` if that is not
        there."""
        return self._parents.get(name, ROOT)

    def line(self, name: str) -> list[str]:
        """Its ancestors on this machine, the nearest first, without `root`; each once, whatever
        records say."""
        return self._line(self.parent(name))

    def _top(self, name: str) -> str:
        """Where the line that is known so far ends; while it has no circle it does."""
        while name in self._parents:
            name = self._parents[name]
        return name

    def _line(self, above: str) -> list[str]:
        line: list[str] = []
        while above in self._parents:
            line.append(above)
            above = self._parents[above]
        return line

    def depth(self, name: str) -> int:
        """0: a person started it."""
        line = self.line(name)
        top = self.by_name.get(line[-1] if line else name)
        return len(line) + (top.levels_above if top else 0)

    def children(self, name: str) -> list[str]:
        """In the order of names. `root` has those that a person started, or an agent of another
        machine."""
        return sorted(
            child
            for child in self.by_name
            if self.parent(child) == name or (name == ROOT and is_elsewhere(self.parent(child)))
        )

    def under(self, name: str) -> list[str]:
        """All that descend from it, leaves first: children stand before their parents."""
        descendants: list[str] = []
        for child in self.children(name):
            descendants += [*self.under(child), child]
        return descendants

    def is_above(self, one: str, other: str) -> bool:
        """Whether `other` descends from `one`."""
        return one == ROOT or one in self.line(other)


def is_elsewhere(name: str) -> bool:
    """Whether it is an agent's of another machine."""
    return "/" in name


# ── names ────────────────────────────────────────────────────────────────────


def kind_of(agent: Agent) -> ChildKind:
    """What it is to its parent."""
    if not agent.parent:
        return "agent"
    return "subtree" if agent.worktree is not None else "worker"


def subtree_branch(prefix: str, wanted: str) -> str:
    """`main` and `Feature A` -> `main.feature-a`. The agent is called as its branch is."""
    branch = f"{prefix}.{names.slug(wanted)}"
    names.subtree_name(branch)  # refuses what is too long
    return branch


def worker_name(parent: str, wanted: str) -> str:
    """`main.csv` and `docs` -> `main.csv.w.docs`."""
    name = f"{parent}{WORKER}{names.slug(wanted)}"
    if len(name.encode()) > names.SUBTREE_BYTES:
        raise BullpenError(
            f"the name {name!r} is longer than {names.SUBTREE_BYTES} bytes",
            hint="choose a shorter name for the worker",
        )
    return names.check_worktree_name(name)


# ── limits ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Limits:
    """Settings of the home."""

    depth: int
    children: int
    agents: int


def refuse_too_many(
    family: Family,
    running: Iterable[str],
    parent: str,
    count: int,
    limits: Limits,
    elsewhere: int = 0,
) -> None:
    """Raises if `parent`, who has so many on other machines, may not start so many more here."""
    alive = set(running)
    refuse_children(family, alive, parent, count, limits, elsewhere)
    refuse_agents(alive, count, limits)


def refuse_children(
    family: Family,
    running: Collection[str],
    parent: str,
    count: int,
    limits: Limits,
    elsewhere: int = 0,
) -> None:
    """Raises if `parent` may not have so many more, here or elsewhere."""
    depth = family.depth(parent) + 1
    if depth > limits.depth:
        raise BullpenError(
            f"{parent} is {depth - 1} levels below a person, and agents may go {limits.depth} deep",
            hint="do this part yourself, or report to your parent that it is too big",
            kind=Kind.DENIED,
        )
    children = elsewhere + sum(name in running for name in family.children(parent))
    if children + count > limits.children:
        raise BullpenError(
            f"{parent} has {children} running children and wants {count} more:"
            f" at most {limits.children} are allowed (max_children)",
            hint="wait for one to end with wait_for_event, or give it more to do with send_message",
            kind=Kind.DENIED,
        )


def refuse_agents(running: Collection[str], count: int, limits: Limits) -> None:
    """Raises if so many more may not run in this home."""
    if len(running) + count > limits.agents:
        raise BullpenError(
            f"{len(running)} agents run in this home and {count} more would be too many:"
            f" at most {limits.agents} are allowed (max_agents)",
            hint="wait for others to end, or do it yourself",
            kind=Kind.DENIED,
        )


# ── ends ─────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class StopChildren:
    """These, in this order: leaves first."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class AdoptChildren:
    """They report to that one from now on, and what waits for their old parent goes along."""

    names: tuple[str, ...]
    to: str


def plan_orphans(
    family: Family, running: Iterable[str], parent: str, rule: OrphansRule
) -> StopChildren | AdoptChildren | None:
    """What happens to the living children of an agent that has ended; None: nothing."""
    alive = set(running)
    living = tuple(name for name in family.children(parent) if name in alive)
    match rule:
        case "keep":
            return None
        case "stop":
            all_under = tuple(name for name in family.under(parent) if name in alive)
            return StopChildren(all_under) if all_under else None
        case "adopt":
            heir = next((name for name in family.line(parent) if name in alive), ROOT)
            return AdoptChildren(living, heir) if living else None


Outcome = Literal["working", "idle", "blocked", "finished", "failed", "gone"]
OVER: frozenset[Outcome] = frozenset({"idle", "blocked", "finished", "failed", "gone"})


def is_without_turns(view: View) -> bool:
    """Whether it is a program that says nothing of itself: its report alone tells that it is
    done."""
    return isinstance(view.state, Unknown) and not view.has_reported


def outcome_of(view: View, report: str = "", *, has_mail: bool = False) -> Outcome:
    """What somebody who waits for it is told. `report`: `success` or `failure`, if it reported
    and was given nothing to do since. `has_mail`: a message that is not delivered begins a turn.
    """
    state = view.state
    match state:
        case Idle() if view.is_prompt_due or has_mail:
            pass  # it is about to work
        case Exited(code=0):
            return "failed" if report == "failure" else "finished"
        case Exited() | Lost() | Interrupted():
            return "finished" if report == "success" else "failed" if report else "gone"
        case Idle(failed=why) if why:
            return "failed"
        case Idle():
            return {"success": "finished", "failure": "failed"}.get(report, "idle")  # type: ignore[return-value]
        case Unknown() if report and is_without_turns(view):
            return "finished" if report == "success" else "failed"
    return "blocked" if state.state in ("blocked", "error") else "working"
