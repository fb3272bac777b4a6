"""From a task to one run of its engine: a value that says everything the run needs.

Reads roles, settings and credentials, and decides; `write` is the one function here that writes,
and only into the directory of the run and the engine's own. `runs` carries it out.
"""

import json
import logging
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import bullpen
from bullpen import credentials, trust
from bullpen.agent_files import list_agent_files, load_agent_file, session_directory
from bullpen.client.hook_line import ask_line, hook_line
from bullpen.engines import Engine, Prepared, Start, get_engine
from bullpen.errors import BullpenError
from bullpen.files import make_directory, write_atomically
from bullpen.hub import prompts, walls
from bullpen.hub.launch import Ground, load_role_of
from bullpen.hub.rules import load_rules
from bullpen.hub.sessions import Settled, write_files
from bullpen.hub.task_rows import Session
from bullpen.hub.workspaces import checkout_of, project_of, unsure_of
from bullpen.model.agent import Agent
from bullpen.model.agent_file import AgentFile
from bullpen.model.role import Role
from bullpen.model.task import Context, Task
from bullpen.model.task_moves import spent_usd
from bullpen.paths import Home

VARIABLES = "task-env"  # in the home: a task in the queue is nobody's yet
TASKS = "tasks"
log = logging.getLogger("bullpen.hub")

LOG_BYTES = 1 << 30
LEAST_USD = 0.000001  # none at all would be no limit
NO_TERMINAL = {"TERM": "dumb"}


@dataclass(frozen=True)
class Worker:
    """An agent as it stands in its files at this moment."""

    file: AgentFile
    role: Role
    session_dir: Path

    @property
    def is_sandboxed(self) -> bool:
        """Tasks run behind walls unless somebody says otherwise."""
        return self.role.sandbox.enabled is not False


def load_worker(home: Home, agent: Agent) -> Worker:
    """Its file, if it has one, and its role; what is wrong with them is raised."""
    has_file = agent.name in list_agent_files(home)
    file = load_agent_file(home, agent.name) if has_file else AgentFile(role=agent.role)
    # Of another role it is after its next start: its engine and its conversations are of this one.
    role = file.apply_to(load_role_of(home, agent.role, "", agent.overrides))
    return Worker(file, role, session_directory(home, agent.name, file))


def load_worker_or_plain(home: Home, agent: Agent, last: Worker | None = None) -> Worker:
    """The same; for an agent whose files cannot be read, what they said last, or what it would be
    without them. A file that was broken meanwhile does not hurt what is under way."""
    try:
        return load_worker(home, agent)
    except BullpenError as error:
        log.warning("cannot read an agent's file", extra={"agent": agent.name, "why": str(error)})
    if last is not None:
        return last
    file = AgentFile(role=agent.role)
    role = Role(name=agent.role, agent_type=agent.engine)  # type: ignore[arg-type]
    return Worker(file, role, Path(agent.cwd))


@dataclass(frozen=True)
class RunPlan:
    """One run."""

    engine: Engine
    start: Start
    prepared: Prepared
    settled: Settled
    environment: Mapping[str, str]
    wall: walls.Wall | None


def task_directory(home: Home, agent: str, task: str) -> Path:
    """Everything of one task: its environment, and a directory for each run."""
    return home.session(agent) / TASKS / task


def run_directory(home: Home, task: Task, number: int) -> Path:
    """Of one run."""
    return task_directory(home, task.agent, task.id) / str(number)


def tag_of(task: Task, number: int) -> str:
    """What its holder is told apart by. It follows from the task: a hub that comes after a crash
    finds the same."""
    return f"{task.id}.{number}"


def plan_run(
    ground: Ground,
    agent: Agent,
    settled: Settled,
    task: Task,
    session: Session,
    number: int,
    messages: Sequence[str] = (),
) -> RunPlan:
    """The plan for that run of the task."""
    home, worker = ground.home, load_worker(ground.home, agent)
    role = worker.role
    if task.wish.model:
        role = role.model_copy(update={"model": task.wish.model})
    engine = get_engine(role.agent_type)
    run = run_directory(home, task, number)
    own = load_variables(home, task)
    given = {**role.env, **own}
    keys = credentials.engine_variables(home, engine.name)
    package = str(Path(bullpen.__file__).parents[1])
    budget = task.wish.budget
    start = Start(
        role=role,
        words=(),
        prompt=_prompt(home, task, messages, engine, is_first=True),
        agent=agent.name,
        cwd=session.directory,
        session=home.session(agent.name),
        run=run,
        home=home.root,
        person=ground.person,
        env={**settled.env, **NO_TERMINAL, **keys, **given},
        url=f"http://127.0.0.1:{ground.port}",
        hook=tuple(hook_line(sys.executable, package, agent.name)),
        ask=tuple(ask_line(sys.executable, package, agent.name)),
        conversation=session.conversation,
        is_trusted=trust.is_trusted(home, Path(session.directory)),
        is_sandboxed=worker.is_sandboxed,
        rules=load_rules(home.session(agent.name)),
        max_turns=worker.file.claude.max_turns,
        max_usd=max(budget.usd - spent_usd(task), LEAST_USD) if budget and budget.usd else 0.0,
    )
    prepared = engine.prepare_run(start)
    if session.conversation and prepared.conversation == session.conversation:
        # It goes on with one that knows its instructions.
        start = replace(start, prompt=_prompt(home, task, messages, engine, is_first=False))
        prepared = engine.prepare_run(start)
    environment = {**settled.env, **NO_TERMINAL, **keys, **prepared.env, **given}
    wall = None
    if worker.is_sandboxed:
        keep = (*role.env, *own)
        wall = walls.plan(
            ground.port,
            role,
            engine,
            start,
            checkout_of(session),
            unsure=unsure_of(session),
            keep=keep,
            is_terminal=False,
        )
    return RunPlan(engine, start, prepared, settled, environment, wall)


def write(home: Home, plan: RunPlan) -> dict[str, Any]:
    """Put everything in place that the run needs; what a factory is to be asked for, all but the
    socket and the tag. May be repeated."""
    plan.start.run.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_files(home, plan.start.agent, plan.prepared.files)
    for name, text in plan.prepared.run_files.items():
        write_atomically(plan.start.run / name, text, mode=0o600)
    plan.engine.make_ready(plan.start, plan.prepared)
    argv, env = plan.prepared.argv, plan.environment
    if plan.wall is not None:
        wrapped = walls.raise_wall(plan.wall, argv, env)
        argv, env = wrapped.argv, wrapped.env
    return {
        "name": plan.start.agent,
        "session": str(plan.start.run),
        "argv": list(argv),
        "env": dict(env),
        "cwd": plan.start.cwd,
        "mode": "pipe",
        "umask": plan.settled.umask,
        "log_bytes": LOG_BYTES,
    }


# ── the task's own variables: in a private file until it ends ──


def keep_variables(home: Home, task: str, variables: Mapping[str, str]) -> None:
    """On disk before the task is acknowledged."""
    place = home.root / VARIABLES
    make_directory(place, 0o700)
    write_atomically(place / task, json.dumps(dict(variables)), mode=0o600)


def load_variables(home: Home, task: Task) -> dict[str, str]:
    """Those of a task that has some."""
    if not task.env_names:
        return {}
    try:
        found: dict[str, str] = json.loads((home.root / VARIABLES / task.id).read_bytes())
    except (OSError, ValueError) as error:
        raise BullpenError(f"cannot read the task's environment: {error}") from error
    return found


def forget_variables(home: Home, task: str) -> None:
    """The task has ended."""
    (home.root / VARIABLES / task).unlink(missing_ok=True)


def sweep_variables(home: Home, tasks: Collection[str]) -> None:
    """Forget those of all but these tasks."""
    place = home.root / VARIABLES
    for path in place.iterdir() if place.is_dir() else ():
        if path.name not in tasks:
            path.unlink(missing_ok=True)


def sweep_tasks(home: Home, agent: str, tasks: Collection[str]) -> None:
    """Delete the directories of all but these tasks: the others are in no history any more."""
    place = home.session(agent) / TASKS
    for path in place.iterdir() if place.is_dir() else ():
        if path.name not in tasks:
            shutil.rmtree(path, ignore_errors=True)


def _prompt(
    home: Home, task: Task, messages: Sequence[str], engine: Engine, *, is_first: bool
) -> str:
    """The first turn of a conversation is told everything; later ones know it, but for a project
    that another task names."""
    if not is_first and task.turns:
        return prompts.assemble(task.prompt, messages=messages)
    project = task.wish.project
    if isinstance(project, str):
        found = project_of(home, task.wish)
        project = Context(name=found.name, prompt=found.prompt) if found else None
    is_told = is_first and engine.is_model
    instructions = prompts.load_instructions(home, "agent") if is_told else ""
    return prompts.assemble(task.prompt, instructions, project, messages)
