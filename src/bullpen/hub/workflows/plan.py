"""A sequence of members: what is put on record when it begins, and what each step follows from.

Reads roles, settings and the repository; touches nothing. `sequence` carries it out.
"""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bullpen import worktrees
from bullpen.engines import get_engine
from bullpen.errors import BullpenError, Kind
from bullpen.home.overrides import load_changed_role
from bullpen.home.workdirs import checked_directory
from bullpen.hub.agents.plan import Plan, plan_headless, tree_for
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.agents.worktrees import open_site
from bullpen.hub.context import HubContext
from bullpen.hub.landing.subjects import find_rules
from bullpen.hub.pods.plan import branches_of, joined_prompt, named
from bullpen.model.agent import Agent
from bullpen.model.landing import is_protected
from bullpen.model.launch import Launch, PodLaunch
from bullpen.model.names import subtree_name
from bullpen.model.pod import Member, PodTemplate
from bullpen.model.role import Role
from bullpen.model.value import Value
from bullpen.worktrees import Site

RESULT_CHARACTERS = 50_000  # of the one before, that the next is told


class SequenceStep(Value):
    """One member's turn: its agent, and the task that it is given when its turn comes."""

    name: str
    run: str  # of its agent
    branch: str
    prompt: str
    is_plain: bool = False  # its program is no model: it is told the prompt and nothing else


class SequenceRecord(Value):
    """One launch, as the event `pod.sequence` keeps it."""

    id: str
    pod: str
    repo: str  # where its worktrees come from
    base: str  # where the first of them begins
    target: str = ""  # where it lands at the end; empty: nowhere
    steps: tuple[SequenceStep, ...]

    def request(self, number: int) -> str:
        """The key of that step's task: asked for twice, it is one task."""
        return hashlib.sha256(f"{self.id}:{number}".encode()).hexdigest()[:32]

    @property
    def message_id(self) -> str:
        """Of what the person is told at the end, once."""
        return "m-" + hashlib.sha256(f"{self.id}:end".encode()).hexdigest()[:12]


@dataclass(frozen=True)
class SequencePlan:
    """The record, and the agents to start."""

    record: SequenceRecord
    agents: tuple[Plan, ...]


def plan_sequence(
    context: HubContext,
    request: PodLaunch,
    template: PodTemplate,
    id: str,
    pod: str,
    members: Sequence[Member],
    before: Mapping[str, LiveAgent],
) -> SequencePlan:
    """Everything that can be refused is refused here."""
    site = open_site(context.home, context.settings, Path(request.cwd))
    repo = site.repo.root
    if repo is None:
        raise BullpenError(f"{request.cwd} is in no checkout that a sequence could begin from")
    checked_directory(context.home, context.settings, context.person, str(repo))
    branches = branches_of(context, request, template, members)
    plans, steps, base = [], [], ""
    for member in members:
        branch = branches[member.name] or member.name
        _refuse_used(site, member.name, branch)
        last = before.get(member.name)
        plan = _plan_agent(context, request, template, pod, member, last.agent if last else None)
        plans.append(plan)
        branch_from = load_role(context, plan.agent).worktree.branch_from
        base = base or (branch_from if branch_from not in (None, "HEAD") else "") or _head(site)
        prompt = joined_prompt(member.prompt, request.prompt)
        if not prompt:
            raise BullpenError(
                f"{member.name} has nothing to do", hint="a prompt in the template, or --prompt"
            )
        steps.append(
            SequenceStep(
                name=member.name,
                run=plan.agent.run,
                branch=branch,
                prompt=prompt,
                is_plain=not get_engine(plan.agent.engine).is_model,
            )
        )
    record = SequenceRecord(
        id=id,
        pod=pod,
        repo=str(repo),
        base=base,
        target=_target(context, site, base) if template.land else "",
        steps=tuple(steps),
    )
    return SequencePlan(record, tuple(plans))


def _plan_agent(
    context: HubContext,
    request: PodLaunch,
    template: PodTemplate,
    pod: str,
    member: Member,
    last: Agent | None,
) -> Plan:
    caller = request.model_dump(include={"cwd", "env", "umask", "rows", "cols"})
    launch = Launch(
        **caller,
        kind="headless",
        run=uuid.uuid4().hex,
        role=member.role,
        name=member.name,
        pod=pod,
        overrides=member.overrides,
    )
    with named(member.name):
        plan = plan_headless(context, launch, member.name, last)
        if not load_role(context, plan.agent).worktree.enabled:
            raise BullpenError(
                f"role {member.role} has no worktree, and each of a sequence goes on from the"
                " branch of the one before",
                hint="overrides: {worktree.enabled: true} in the template",
            )
    return replace(plan, agent=plan.agent.model_copy(update={"pod_budget": template.budget}))


def load_role(context: HubContext, agent: Agent) -> Role:
    """As its file is now."""
    return load_changed_role(context.home, agent.role, agent.pod, agent.overrides)


def _refuse_used(site: Site, name: str, branch: str) -> None:
    """Each begins at the branch of the one before, not at what an earlier launch left."""
    is_there = worktrees.exists(site, subtree_name(branch))
    if is_there or worktrees.branch_exists(site.repo, branch):
        raise BullpenError(
            f"{name}: there is a {'worktree' if is_there else 'branch'} {branch} already",
            hint=f"--session ID, or --pod NAME for other branches, or bullpen worktree remove"
            f" {subtree_name(branch)}",
            kind=Kind.CONFLICT,
        )


def _target(context: HubContext, site: Site, base: str) -> str:
    """Where it lands at the end: in the branch that it begins from."""
    if not worktrees.branch_exists(site.repo, base):
        raise BullpenError(
            f"the template says land: true, and {base} is no local branch that it could land in",
            hint="check a branch out, or leave land out",
            kind=Kind.CONFLICT,
        )
    if is_protected(base, find_rules(context.home, context.settings, site).protected):
        raise BullpenError(
            f"the template says land: true, and {base} is protected: nothing lands there",
            hint="landing.protected in config.yaml or the project's file, or leave land out",
            kind=Kind.DENIED,
        )
    return base


def _head(site: Site) -> str:
    return worktrees.current_branch(site.repo) or "HEAD"


def make_tree(context: HubContext, agent: Agent, record: SequenceRecord, number: int) -> None:
    """The worktree of that step, from the branch of the one before. In a thread; any number of
    times."""
    branch = record.steps[number].branch
    role = load_role(context, agent)
    tree = tree_for(context, role, subtree_name(branch), None, branch, Path(record.repo))
    if tree is None:
        raise BullpenError(f"role {agent.role} has no worktree any more")
    base = record.steps[number - 1].branch if number else record.base
    # Work of all of them lands, if it does, where the first began.
    lands_in = record.base if number and record.base != "HEAD" else ""
    spec = replace(tree.spec, base=base, lands_in=lands_in, detached=False)
    worktrees.ensure(tree.site, spec)


def prompt_of(record: SequenceRecord, number: int, result: str) -> str:
    """What that step is to do, and for a model what came of the one before. Pure."""
    step = record.steps[number]
    if number == 0 or step.is_plain:
        return step.prompt
    before = record.steps[number - 1]
    cut = " (cut)" if len(result) > RESULT_CHARACTERS else ""
    return (
        f"{step.prompt}\n\nYour branch begins where {before.name} ended ({before.branch})."
        f" This is what {before.name} said at the end{cut}:\n\n{result[:RESULT_CHARACTERS]}"
    )
