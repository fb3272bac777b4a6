"""A pod template: which agents start together, and how they follow each other. Pure."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Strict

from bullpen.errors import BullpenError
from bullpen.model.fields import AgentName, Block, Branch, PodName, RoleName, Text, refuse
from bullpen.model.names import check_name
from bullpen.model.override import key_problem, parse_override
from bullpen.model.role import Budget

MAX_COUNT = 100


@dataclass(frozen=True)
class Member:
    """One agent to start."""

    name: str
    role: str
    overrides: tuple[str, ...] = ()
    prompt: str | None = None


def _as_overrides(value: Any) -> Any:
    """`{worktree.enabled: true}` as the words that `--override` takes."""
    if not isinstance(value, dict):
        raise ValueError("is no block of `key: value` lines · e.g. model: opus")
    words, problems = [], []
    for key, given in value.items():
        plain = str(given).lower() if isinstance(given, bool) else str(given)
        problem = key_problem(key)
        if not problem and not isinstance(given, str | bool | int | float):
            problem = "needs one plain value"
        if not problem:
            try:
                parse_override(f"{key}={plain}")
            except BullpenError as error:
                problem = error.message.removeprefix(f"{key}: ")
        problems += [((key,), problem)] if problem else []
        words.append(f"{key}={plain}")
    refuse(problems)
    return words


class AgentEntry(Block):
    """One entry of `agents`; with a count it stands for several members."""

    role: RoleName
    name: AgentName | None = None
    count: Annotated[int, Field(ge=1, le=MAX_COUNT)] | None = None
    overrides: Annotated[tuple[str, ...], BeforeValidator(_as_overrides), Strict(False)] = ()
    prompt: Text | None = None

    def members(self) -> list[Member]:
        name = self.name or self.role
        names = [name] if self.count is None else [f"{name}-{n + 1}" for n in range(self.count)]
        return [Member(each, self.role, self.overrides, self.prompt) for each in names]


def _check_members(entries: tuple[AgentEntry, ...]) -> tuple[AgentEntry, ...]:
    if not entries:
        raise ValueError("needs at least one agent")
    taken: set[str] = set()
    problems = []
    for number, entry in enumerate(entries):
        names = {member.name for member in entry.members()}
        problems += [((number,), f"a second agent called {name}") for name in sorted(names & taken)]
        taken |= names
    refuse(problems)
    for entry in entries:
        for member in entry.members():
            try:
                check_name("agent", member.name)
            except BullpenError as error:
                raise ValueError(f"{error.message} · {error.hint}") from error
    return entries


class PodTemplate(Block):
    """One template file."""

    pod_name: PodName
    agents: Annotated[tuple[AgentEntry, ...], Strict(False), AfterValidator(_check_members)]
    workflow: Literal["parallel", "sequence"] = "parallel"
    branch_prefix: Branch | None = None
    budget: Budget = Budget()

    def members(self) -> list[Member]:
        """All agents of the pod, counts written out, in the order in which they start."""
        return [member for entry in self.agents for member in entry.members()]
