"""A pod template: which agents start together. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Strict,
    ValidationInfo,
    field_validator,
)

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
    for key, setting in value.items():
        plain = str(setting).lower() if isinstance(setting, bool) else str(setting)
        problem = key_problem(key)
        if not problem and not isinstance(setting, str | bool | int | float):
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
    land: bool = False

    @field_validator("land")
    @classmethod
    def _at_an_end(cls, land: bool, info: ValidationInfo) -> bool:
        if land and info.data.get("workflow") == "parallel":
            raise ValueError("only with workflow: sequence · parallel agents have no last one")
        return land

    def members(self) -> list[Member]:
        """All agents of the pod, counts written out, in the order in which they start."""
        return [member for entry in self.agents for member in entry.members()]


def members_of(template: PodTemplate, pod: str, pods: Mapping[str, str]) -> list[Member]:
    """The members under the names that they have in that pod: the template's, or with the pod's in
    front if an agent of another pod has one of these. `pods` says which pod each agent is in."""
    members = template.members()
    own_names = {member.name: f"{pod}.{member.name}" for member in members}
    is_second = any(pods.get(name, "") not in ("", pod) for name in own_names)
    was_second = any(pods.get(name) == pod for name in own_names.values())
    if not (is_second or was_second):
        return members
    called = ", ".join(f"{name} is {own_name}" for name, own_name in own_names.items())
    return [
        replace(
            member,
            name=check_name("agent", own_names[member.name]),
            prompt=f"{member.prompt.rstrip()}\n\nIn this pod {called}." if member.prompt else None,
        )
        for member in members
    ]
