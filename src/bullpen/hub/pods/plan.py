"""From a template to the plan of a pod: its members' plans, and the record of what is to be done.

Reads roles and settings, decides, touches nothing. `launch` carries plans out.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bullpen import worktrees
from bullpen.errors import BullpenError
from bullpen.hub.agents.intent import Intent, MemberStart, NewTree
from bullpen.hub.agents.plan import TerminalPlan, plan_launch
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.agents.worktrees import Tree
from bullpen.hub.context import HubContext
from bullpen.model.launch import Launch, PodLaunch
from bullpen.model.pod import Member, PodTemplate


@dataclass(frozen=True)
class PodPlan:
    """Everything a pod's start needs."""

    id: str
    pod: str
    members: tuple[TerminalPlan, ...]
    before: tuple[LiveAgent | None, ...]  # who had the member's name, in the same order

    @property
    def names(self) -> list[str]:
        return [plan.agent.name for plan in self.members]

    @property
    def new_trees(self) -> list[tuple[TerminalPlan, Tree]]:
        """Of members whose worktree is not there yet."""
        return [
            (plan, plan.tree)
            for plan in self.members
            if plan.tree is not None and not worktrees.exists(plan.tree.site, plan.agent.name)
        ]


def plan_members(
    context: HubContext,
    request: PodLaunch,
    template: PodTemplate,
    pod: str,
    members: Sequence[Member],
    before: Sequence[LiveAgent | None],
    runs: dict[str, str],
) -> list[TerminalPlan]:
    """A plan for each; what is wrong with one is told with its name."""
    plans = []
    caller = request.model_dump(include={"cwd", "env", "umask", "rows", "cols"})
    branches = branches_of(context, request, template, members)
    for member, live in zip(members, before, strict=True):
        launch = Launch(
            **caller,
            run=runs[member.name],
            role=member.role,
            name=member.name,
            pod=pod,
            overrides=member.overrides,
            prompt=joined_prompt(member.prompt, request.prompt),
        )
        last = live.agent if live else None
        with named(member.name):
            plan = plan_launch(context, launch, member.name, last, branches[member.name])
            agent = plan.agent.model_copy(update={"pod_budget": template.budget})
            plan = replace(plan, agent=agent)
        plans.append(plan)
    return plans


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """What is wrong with a member is told with its name."""
    try:
        yield
    except BullpenError as error:
        raise BullpenError(
            f"{name}: {error.message}", hint=error.hint, kind=error.kind, details=error.details
        ) from error


def branches_of(
    context: HubContext, request: PodLaunch, template: PodTemplate, members: Sequence[Member]
) -> dict[str, str]:
    """The branch of each by its name; empty: that is its name."""
    prefix = template.branch_prefix
    if request.session is not None:
        roles = {member.name: member.role for member in members}
        prefix = prefix or context.settings.worktrees.branch_prefix
        return worktrees.swarm_branches(roles, request.session, prefix)
    return {member.name: f"{prefix}/{member.name}" if prefix else "" for member in members}


def joined_prompt(own: str | None, given: str) -> str:
    """What a member is told first: what the template has for it, then what all are told."""
    return "\n\n".join(part.strip("\n") for part in (own or "", given) if part.strip())


def intent_of(plan: PodPlan) -> Intent:
    """What is put on record before it is carried out."""
    return Intent(
        id=plan.id,
        pod=plan.pod,
        members=tuple(
            MemberStart(
                name=each.agent.name, run=each.agent.run, before=live.view if live else None
            )
            for each, live in zip(plan.members, plan.before, strict=True)
        ),
        new_trees=tuple(
            NewTree(
                name=each.agent.name,
                repo=str(tree.site.repo.common_dir),
                run=each.agent.run,
                new_branch=tree.new_branch,
                path=str(worktrees.path_for(tree.site, each.agent.name)),
            )
            for each, tree in plan.new_trees
        ),
    )
