"""From what a person asked to a launch plan: a value that says everything a start needs.

Reads roles and settings, decides, touches nothing. `start` carries plans out.
"""

import os
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from bullpen import clock, worktrees
from bullpen.engines import Engine, Prepared, Start, engine_of, get_engine
from bullpen.engines.programs import path_roots
from bullpen.engines.trusted import find_untrusted, is_trusted
from bullpen.errors import BullpenError, Kind
from bullpen.home import credentials
from bullpen.home.agent_files import load_agent_file, session_directory
from bullpen.home.overrides import load_changed_role
from bullpen.home.paths import Home
from bullpen.home.roles import resolve_root_dir
from bullpen.hub.agents.birth import Birth, child_trusts, refuse_beyond
from bullpen.hub.agents.environment import make_environment
from bullpen.hub.agents.program import (
    check_login,
    make_start,
    refuse_lost,
    resolve_conversation,
)
from bullpen.hub.agents.rules import load_rules
from bullpen.hub.agents.sessions import LaunchEnv
from bullpen.hub.agents.tokens import hash_of, new_token
from bullpen.hub.agents.worktrees import (
    Tree,
    base_of,
    open_site,
    plan_tree,
    refuse_other_branch,
    site_of,
)
from bullpen.hub.context import HubContext
from bullpen.model import names
from bullpen.model.agent import Agent, WorktreeRef
from bullpen.model.agent_file import AgentFile
from bullpen.model.launch import Launch
from bullpen.model.rights import limited, not_given
from bullpen.model.role import Budget, Role
from bullpen.sandboxes.setup import SetupSandbox
from bullpen.worktrees import Spec


@dataclass(frozen=True)
class Plan:
    """What every start needs."""

    agent: Agent
    launch_env: LaunchEnv


@dataclass(frozen=True)
class TerminalPlan(Plan):
    """And what the start of a program in a terminal needs."""

    engine: Engine
    start: Start
    prepared: Prepared
    tree: Tree | None = None


def wanted_name(request: Launch) -> str:
    """The name that the agent gets, or that a number is added to."""
    if request.name is not None:
        return names.check_new_agent_name(request.name)
    if request.role is not None:
        return names.check_new_agent_name(request.role)
    if request.words:
        return names.check_new_agent_name(names.slug(Path(request.words[0]).name))
    raise BullpenError(
        "neither a role nor a program to run",
        hint="bullpen run --role ROLE · bullpen run -- PROGRAM",
    )


def plan_launch(
    context: HubContext,
    request: Launch,
    name: str,
    last: Agent | None,
    branch: str = "",
    birth: Birth | None = None,
) -> TerminalPlan:
    """The plan for an agent of that name; `last` is what ran under it before. `birth`: another
    agent starts it."""
    conversation = request.conversation or (last.conversation if last else "")
    if request.resume and not conversation:
        raise BullpenError(f"{name} has no conversation to resume", hint="leave --resume out")
    if request.role is None:
        _refuse_without_role(request)
    if request.pod:
        names.check_name("pod", request.pod)
    home, directory = context.home, _directory(request.cwd)
    role, not_granted = None, list[str]()
    if request.role is not None:
        role = load_changed_role(home, request.role, request.pod or "", request.overrides)
        if birth is not None:
            refuse_beyond(role, birth)
            not_granted = not_given(role, birth.ceiling)
            role = limited(role, birth.ceiling)
        directory = directory if birth else resolve_root_dir(role, directory, home.root)
    engine = get_engine(role.agent_type) if role else engine_of(request.words)
    repository = (engine, home, context.person, request.env, directory)
    token = new_token()
    tree = None
    if role is not None:
        wanted = branch or request.branch
        tree = (
            _tree_of_child(context, role, name, birth)
            if birth
            else tree_for(context, role, name, last, wanted, directory)
        )
    if request.branch and tree is None:
        raise BullpenError(
            f"{name} has no worktree, and so no branch of its own",
            hint="--role ROLE --override worktree.enabled=true",
        )
    cwd, worktree = directory, None
    if tree is not None:
        # The same sub-directory, in the agent's own checkout.
        root = worktrees.path_for(tree.site, name)
        below = (
            Path(birth.below) if birth else directory.relative_to(tree.site.repo.root or directory)
        )
        cwd = root / below
        worktree = WorktreeRef(name=name, repo=str(tree.site.repo.common_dir), path=str(root))
    elif birth is None:
        _refuse_beside_tree(context, name, last, directory)
    trusts = is_trusted(*repository) if birth is None else child_trusts(repository, birth)
    agent = Agent(
        name=name,
        run=request.run or uuid.uuid4().hex,
        role=role.name if role else "",
        pod=request.pod or "",
        parent=birth.parent.name if birth else "",
        ceiling=birth.ceiling if birth else None,
        engine=engine.name,
        model=(role.model or "") if role else "",
        conversation=conversation if request.resume else "",
        birth_branch=tree.spec.birth_branch if tree else "",
        cwd=str(cwd),
        real_cwd="" if tree else os.path.realpath(cwd),
        is_trusted=trusts,
        not_used=find_untrusted(*repository) if role and not (birth and trusts) else (),
        not_granted=tuple(not_granted),
        worktree=worktree,
        command=request.words,
        added=request.words,
        overrides=request.overrides,
        created=last.created if last else clock.to_exact_text(clock.now()),
        token_hash=hash_of(token),
    )
    launch_env = _launch_env(home, request, agent, token)
    # What was allowed for good was allowed to an agent of that role.
    is_same = last is not None and last.role == agent.role
    rules = load_rules(home.session(name)) if is_same else ()
    plan = _prepared(context, agent, launch_env, role, request.prompt, tree, rules)
    refuse_lost(plan.start, agent.conversation, "leave --resume out: a new one begins")
    return plan


def _refuse_without_role(request: Launch) -> None:
    """A program without a role is started as it is: nothing else can be given to it."""
    if request.overrides:
        raise BullpenError("overrides change a role, and none is given", hint="--role ROLE")
    if request.prompt:
        raise BullpenError("a prompt needs a role, and none is given", hint="--role ROLE")


def plan_headless(context: HubContext, request: Launch, name: str, last: Agent | None) -> Plan:
    """An agent that takes tasks. Each task is planned when it runs, so nothing is started now: what
    is wrong with its role or its file is told before anybody gives it one."""
    home = context.home
    if request.words or request.prompt or request.branch or request.resume or request.conversation:
        raise BullpenError(
            "an agent that takes tasks is started without a program, a prompt, a branch or a"
            " conversation",
            hint=f'bullpen task {name} "…"',
        )
    if request.role is None:
        file = load_agent_file(home, name)
    else:
        file = AgentFile(role=names.check_name("role", request.role))
    pod = request.pod or ""
    role = file.apply_to(load_changed_role(home, file.role, pod, request.overrides))
    token = new_token()
    directory = session_directory(home, name, file)
    agent = Agent(
        name=name,
        run=request.run or uuid.uuid4().hex,
        kind="headless",
        role=file.role,
        pod=pod,
        labels=role.labels,
        engine=role.agent_type,
        model=role.model or "",
        cwd=str(directory),
        is_sandboxed=role.sandbox.enabled is not False,
        overrides=request.overrides,
        budget=role.budget,
        created=last.created if last else clock.to_exact_text(clock.now()),
        token_hash=hash_of(token),
    )
    launch_env = _launch_env(home, request, agent, token)
    check_login(context, agent, role, launch_env.env)
    return Plan(agent, launch_env)


def plan_restart(context: HubContext, last: Agent, launch_env: LaunchEnv) -> TerminalPlan:
    """The same agent once more: same identity and environment, the role as it is now, the
    conversation continued; a new run."""
    agent = last.model_copy(update={"run": uuid.uuid4().hex})
    role = None
    if last.role:
        role = load_changed_role(context.home, last.role, last.pod, last.overrides)
        role = limited(role, last.ceiling)
    tree = None
    if last.worktree is not None:
        site = site_of(context.home, context.settings, last.worktree)
        branch, ports = last.birth_branch, role.worktree.ports if role else 0
        spec = Spec(last.name, branch=branch, detached=not branch, role=last.role, ports=ports)
        tree = plan_tree(site, spec)
    rules = load_rules(context.home.session(last.name))
    return _prepared(context, agent, launch_env, role, "", tree, rules)


def _prepared(
    context: HubContext,
    agent: Agent,
    launch_env: LaunchEnv,
    role: Role | None,
    prompt: str,
    tree: Tree | None,
    rules: tuple[str, ...],
) -> TerminalPlan:
    """The plan, with what the engine makes of it. `agent.conversation` is to be continued."""
    engine, home = get_engine(agent.engine), context.home
    is_sandboxed = role is not None and role.sandbox.enabled is True
    keys = credentials.engine_variables(home, engine.name)
    role_env = role.env if role else {}
    env = {**launch_env.env, **keys, **role_env}
    start = replace(
        make_start(context, agent, role, env, is_sandboxed=is_sandboxed),
        words=agent.added or (() if role else agent.command),
        prompt=prompt,
        rules=rules,
    )
    start = resolve_conversation(engine, start, agent.conversation)
    prepared = engine.prepare(start)
    has_network = role is None or role.sandbox.allow_network
    launch_env = replace(launch_env, added={**keys, **prepared.env, **role_env})
    agent = agent.model_copy(
        update={
            "command": prepared.argv,
            "conversation": prepared.conversation,
            "state_files": engine.state_files(start),
            "message_socket": prepared.message_socket,
            "deliver": (role.deliver or "") if role else "",
            "heartbeat": role.heartbeat if role and role.heartbeat.idle_timeout else None,
            "restart": role.restart if role else "never",
            "orphans": role.orphans if role else "adopt",
            "budget": role.budget if role else Budget(),
            "labels": role.labels if role else {},
            "is_sandboxed": is_sandboxed,
            "tunnel": engine.hosts(start) if is_sandboxed and not has_network else (),
        }
    )
    return TerminalPlan(agent, launch_env, engine, start, prepared, tree)


def _launch_env(home: Home, request: Launch, agent: Agent, token: str) -> LaunchEnv:
    env = make_environment(request.env, home, agent, token)
    return LaunchEnv(env=env, umask=request.umask, rows=request.rows, cols=request.cols)


def tree_for(
    context: HubContext,
    role: Role,
    name: str,
    last: Agent | None,
    branch: str,
    directory: Path,
) -> Tree | None:
    """The worktree that the role wants; None if it wants none."""
    if not role.worktree.enabled:
        return None
    wanted = role.worktree
    spec = Spec(
        name,
        branch=branch,
        base=wanted.branch_from or "",
        detached=wanted.use_detached_head,
        role=role.name,
        copy=wanted.copy_globs,
        setup=wanted.setup or "",
        setup_sandbox=_setup_sandbox(context, role) if wanted.setup else None,
        ports=wanted.ports,
    )
    site = open_site(context.home, context.settings, directory)
    there = last.worktree if last else None
    is_there = there is not None and Path(there.path).is_dir()
    if there and is_there and there.repo == str(site.repo.common_dir):
        site = site_of(context.home, context.settings, there)
    if branch:
        refuse_other_branch(site, spec)
    return plan_tree(site, spec)


def _tree_of_child(context: HubContext, role: Role, name: str, birth: Birth) -> Tree | None:
    """The worktree of a subtree, from its parent's commit; None for a worker."""
    if birth.site is None:
        return None
    wanted = role.worktree
    spec = Spec(
        name,
        branch=birth.branch,
        base=birth.base,
        lands_in=birth.lands_in,
        role=role.name,
        parent=birth.parent.name,
        depth=birth.depth,
        copy=wanted.copy_globs,
        setup=wanted.setup or "",
        setup_sandbox=_setup_sandbox(context, role) if wanted.setup else None,
        ports=wanted.ports,
    )
    refuse_other_branch(birth.site, spec)
    return plan_tree(birth.site, spec)


def _refuse_beside_tree(
    context: HubContext, name: str, last: Agent | None, directory: Path
) -> None:
    """Who has a worktree of that name works there, not in the person's own checkout."""
    trees = [base_of(context.home, context.settings) / name]
    if last is not None and last.worktree is not None:
        trees.append(Path(last.worktree.path))  # of before `worktrees.base` was changed
    for tree in trees:
        if tree.is_dir() and not directory.is_relative_to(tree):
            raise BullpenError(
                f"{name} has a worktree, {tree}, and this start would not use it:"
                " worktree.enabled is not true for it",
                hint=f"--override worktree.enabled=true · or another --name · or, if it is not"
                f" needed: bullpen worktree remove {name}",
                kind=Kind.CONFLICT,
            )


def _setup_sandbox(context: HubContext, role: Role) -> SetupSandbox | None:
    """What the set-up runs came out of the repository, whoever wrote that. A role that says that
    it needs no sandbox means its set-up, too."""
    if role.sandbox.enabled is False:
        return None
    return SetupSandbox(
        home=context.home.root,
        person=context.person,
        programs=tuple(path_roots(os.environ.get("PATH", ""), context.person, ())),
        rules=role.sandbox,
        variables=role.env,
    )


def _directory(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute() or not path.is_dir():
        raise BullpenError(f"no directory to start in: {text}", hint="start it from another")
    return path
