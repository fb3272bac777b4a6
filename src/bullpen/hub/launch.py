"""From what a person asked to a launch plan: a value that says everything a start needs.

Reads roles and settings, decides, touches nothing. `start` carries plans out.
"""

import sys
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import bullpen
from bullpen import clock, credentials, trust, worktrees
from bullpen.agent_files import load_agent_file, session_directory
from bullpen.client.hook_line import ask_line, hook_line
from bullpen.engines import Engine, Prepared, Start, engine_of, get_engine
from bullpen.errors import BullpenError
from bullpen.hub.doors import DIRECTORY
from bullpen.hub.environment import agent_environment
from bullpen.hub.rules import load_rules
from bullpen.hub.sessions import Settled
from bullpen.hub.tokens import hash_of, new_token
from bullpen.hub.trees import Tree, open_site, plan_tree
from bullpen.model import names
from bullpen.model.agent import Agent, Place
from bullpen.model.agent_file import AgentFile
from bullpen.model.launch import Launch
from bullpen.model.role import Budget, Role
from bullpen.overrides import apply_overrides
from bullpen.paths import Home
from bullpen.roles import RoleFile, find_role, load_role, resolve_root_dir
from bullpen.settings import Settings
from bullpen.worktrees import Spec


@dataclass(frozen=True)
class Plan:
    """Everything a start needs."""

    agent: Agent
    settled: Settled
    engine: Engine
    start: Start
    prepared: Prepared
    tree: Tree | None = None


@dataclass(frozen=True)
class Ground:
    """What all plans of one hub stand on."""

    home: Home
    settings: Settings
    port: int
    person: Path


def wanted_name(asked: Launch) -> str:
    """The name that the agent gets, or that a number is added to."""
    if asked.name is not None:
        return names.check_name("agent", asked.name)
    if asked.role is not None:
        return names.check_name("agent", asked.role)
    if asked.words:
        return names.check_name("agent", names.slug(Path(asked.words[0]).name))
    raise BullpenError(
        "neither a role nor a program to run",
        hint="bullpen run --role ROLE · bullpen run -- PROGRAM",
    )


def plan_launch(
    ground: Ground, asked: Launch, name: str, last: Agent | None, branch: str = ""
) -> Plan:
    """The plan for an agent of that name; `last` is what ran under it before."""
    if asked.resume and (last is None or not last.engine_session):
        raise BullpenError(f"{name} has no conversation to resume", hint="leave --resume out")
    if asked.role is None and asked.overrides:
        raise BullpenError("overrides change a role, and none is given", hint="--role ROLE")
    if asked.pod:
        names.check_name("pod", asked.pod)
    home, directory = ground.home, _directory(asked.cwd)
    role, file = None, None
    if asked.role is not None:
        role, file = _role(home, asked.role, asked.pod or "", asked.overrides)
        directory = resolve_root_dir(role, directory, home.root)
    engine = get_engine(role.agent_type) if role else engine_of(asked.words)
    token = new_token()
    tree = _tree(ground, role, file, name, branch, directory) if role else None
    cwd, place = directory, None
    if tree is not None:
        # The same sub-directory, in the agent's own checkout.
        root = worktrees.path_for(tree.site, name)
        cwd = root / directory.relative_to(tree.site.repo.root or directory)
        place = Place(name=name, repo=str(tree.site.repo.common_dir), path=str(root))
    agent = Agent(
        name=name,
        run=asked.run or uuid.uuid4().hex,
        role=role.name if role else "",
        pod=asked.pod or "",
        engine=engine.name,
        model=(role.model or "") if role else "",
        engine_session=last.engine_session if last and asked.resume else "",
        birth_branch=tree.spec.birth_branch if tree else "",
        cwd=str(cwd),
        is_trusted=trust.is_trusted(home, directory),
        worktree=place,
        command=asked.words or ("-",),
        added=asked.words,
        overrides=asked.overrides,
        created=last.created if last else clock.to_exact_text(clock.now()),
        token_hash=hash_of(token),
    )
    env = agent_environment(
        asked.env,
        {},
        own_variables(home, agent, token),
        str(home.sockets / "ssh-agent"),
    )
    settled = Settled(env=env, umask=asked.umask, rows=asked.rows, cols=asked.cols)
    # What was allowed for good was allowed to an agent of that role.
    is_same = last is not None and last.role == agent.role
    rules = load_rules(home.session(name)) if is_same else ()
    return _prepared(ground, agent, settled, role, asked.prompt, tree, rules)


def plan_headless(ground: Ground, asked: Launch, name: str, last: Agent | None) -> Plan:
    """An agent that takes tasks. Each task is planned when it runs, so nothing is started now: what
    is wrong with its role or its file is told before anybody gives it one."""
    home = ground.home
    if asked.words or asked.prompt or asked.resume:
        raise BullpenError(
            "an agent that takes tasks is started without a program, a prompt or a conversation",
            hint=f'bullpen task {name} "…"',
        )
    if asked.role is None:
        file = load_agent_file(home, name)
    else:
        file = AgentFile(role=names.check_name("role", asked.role))
    role = file.apply_to(load_role_of(home, file.role, "", asked.overrides))
    token = new_token()
    directory = session_directory(home, name, file)
    agent = Agent(
        name=name,
        run=asked.run or uuid.uuid4().hex,
        kind="headless",
        role=file.role,
        labels=role.labels,
        engine=role.agent_type,
        model=role.model or "",
        cwd=str(directory),
        is_sandboxed=role.sandbox.enabled is not False,
        command=("-",),
        overrides=asked.overrides,
        budget=role.budget,
        created=last.created if last else clock.to_exact_text(clock.now()),
        token_hash=hash_of(token),
    )
    own = own_variables(home, agent, token)
    env = agent_environment(asked.env, {}, own, str(home.sockets / "ssh-agent"))
    settled = Settled(env=env, umask=asked.umask, rows=asked.rows, cols=asked.cols)
    start = Start(role=role, words=(), agent=name, session=home.session(name), home=home.root)
    return Plan(agent, settled, get_engine(agent.engine), start, Prepared(("-",)))


def plan_restart(ground: Ground, last: Agent, settled: Settled) -> Plan:
    """The same agent once more: same identity and environment, the role as it is now, the
    conversation continued; a new run."""
    agent = last.model_copy(update={"run": uuid.uuid4().hex})
    role = _role(ground.home, last.role, last.pod, last.overrides)[0] if last.role else None
    tree = None
    if last.worktree is not None:
        site = open_site(ground.home, ground.settings, Path(last.worktree.repo))
        branch = last.birth_branch
        tree = plan_tree(site, Spec(last.name, branch=branch, detached=not branch, role=last.role))
    rules = load_rules(ground.home.session(last.name))
    return _prepared(ground, agent, settled, role, "", tree, rules)


def load_role_of(home: Home, name: str, pod: str, overrides: tuple[str, ...]) -> Role:
    """The role as it is now, changed as asked."""
    file = find_role(name, home.roles, home.pod_roles if pod else None)
    return apply_overrides(load_role(file), overrides)


def _role(
    home: Home, name: str, pod: str, overrides: tuple[str, ...]
) -> tuple[Role, RoleFile | None]:
    file = find_role(name, home.roles, home.pod_roles if pod else None)
    return apply_overrides(load_role(file), overrides), file


def _prepared(
    ground: Ground,
    agent: Agent,
    settled: Settled,
    role: Role | None,
    prompt: str,
    tree: Tree | None,
    rules: tuple[str, ...],
) -> Plan:
    """The plan, with what the engine makes of it. `agent.engine_session` is to be continued."""
    engine, home = get_engine(agent.engine), ground.home
    is_sandboxed = role is not None and role.sandbox.enabled is True
    keys = credentials.engine_variables(home, engine.name)
    given = role.env if role else {}
    package = str(Path(bullpen.__file__).parents[1])
    start = Start(
        role=role,
        words=agent.added or (() if role else agent.command),
        prompt=prompt,
        agent=agent.name,
        cwd=agent.cwd,
        session=home.session(agent.name),
        home=home.root,
        person=ground.person,
        env={**settled.env, **keys, **given},
        url=f"http://127.0.0.1:{ground.port}",
        hook=tuple(hook_line(sys.executable, package, agent.name)),
        ask=tuple(ask_line(sys.executable, package, agent.name)),
        socket=_message_socket(home, agent.name, is_sandboxed=is_sandboxed),
        conversation=agent.engine_session,
        is_trusted=agent.is_trusted,
        is_sandboxed=is_sandboxed,
        rules=rules,
    )
    prepared = engine.prepare(start)
    has_network = role is None or role.sandbox.allow_network
    settled = replace(settled, added={**keys, **prepared.env, **given})
    agent = agent.model_copy(
        update={
            "command": prepared.argv,
            "engine_session": prepared.conversation,
            "state_files": prepared.state_files,
            "message_socket": prepared.message_socket,
            "deliver": (role.deliver or "") if role else "",
            "heartbeat": role.heartbeat if role and role.heartbeat.idle_timeout else None,
            "budget": role.budget if role else Budget(),
            "labels": role.labels if role else {},
            "is_sandboxed": is_sandboxed,
            "tunnel": engine.hosts(start) if is_sandboxed and not has_network else (),
        }
    )
    return Plan(agent, settled, engine, start, prepared, tree)


def _message_socket(home: Home, name: str, *, is_sandboxed: bool) -> Path:
    """Where its program listens for messages. Of the home a sandbox sees only its own doors."""
    if not is_sandboxed:
        return home.message_socket(name)
    return home.session(name) / DIRECTORY / "message.sock"


def own_variables(home: Home, agent: Agent, token: str) -> dict[str, str]:
    """What makes a `bullpen` inside the agent act as that agent."""
    return {
        "BULLPEN_DIR": str(home.root),
        "BULLPEN_ACTOR": agent.name,
        "BULLPEN_ROLE": agent.role,
        "BULLPEN_POD": agent.pod,
        "BULLPEN_SESSION_DIR": str(home.session(agent.name)),
        "BULLPEN_PARENT": agent.parent,
        "BULLPEN_TOKEN": token,
    }


def _tree(
    ground: Ground,
    role: Role,
    file: RoleFile | None,
    name: str,
    branch: str,
    directory: Path,
) -> Tree | None:
    if not role.worktree.enabled:
        return None
    wanted = role.worktree
    spec = Spec(
        name,
        branch=branch,
        base=wanted.branch_from or "",
        detached=wanted.use_detached_head,
        role=role.name,
        persona=file.persona if file else None,
        copy=wanted.copy_globs,
        setup=wanted.setup or "",
    )
    return plan_tree(open_site(ground.home, ground.settings, directory), spec)


def _directory(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute() or not path.is_dir():
        raise BullpenError(f"no directory to start in: {text}", hint="start it from another")
    return path
