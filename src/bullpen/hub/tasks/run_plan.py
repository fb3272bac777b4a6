"""From a task to one run of its engine: a value that says everything the run needs.

Called by `driver`, in threads. Reads roles, settings and credentials. `write` writes the files of
the run; the functions at the end write the task's variables. `run` starts what is planned here.
"""

import json
import logging
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bullpen.engines import Engine, Prepared, Start, get_engine
from bullpen.engines.trusted import is_trusted, top_of
from bullpen.errors import BullpenError
from bullpen.files import make_directory, write_atomically
from bullpen.home import credentials
from bullpen.home.agent_files import list_agent_files, load_agent_file, session_directory
from bullpen.home.overrides import load_changed_role
from bullpen.home.paths import Home
from bullpen.hub.agents.launched_reviewer import write_reviewer
from bullpen.hub.agents.program import make_request, make_start, resolve_conversation
from bullpen.hub.agents.rules import load_rules
from bullpen.hub.agents.sessions import LaunchEnv, write_files
from bullpen.hub.context import HubContext
from bullpen.hub.sandbox import policy as sandbox_policy
from bullpen.hub.tasks import prompts
from bullpen.hub.tasks.rows import TaskSession
from bullpen.hub.tasks.workspaces import checkout_of, find_port_variables, project_of, unsure_of
from bullpen.model.agent import Agent
from bullpen.model.agent_file import AgentFile
from bullpen.model.role import Role
from bullpen.model.task import Context, Task
from bullpen.model.task_moves import spent_usd

VARIABLES = "task-env"  # in the home: a task in the queue is nobody's yet
TASKS = "tasks"
log = logging.getLogger("bullpen.hub")

LOG_BYTES = 1 << 30
LOST = "nothing is left of the conversation: its transcript is gone, so a new one began"
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
        """Tasks run in a sandbox unless the role or the file turns it off."""
        return self.role.sandbox.enabled is not False


def load_worker(home: Home, agent: Agent) -> Worker:
    """The agent's file, if it has one, and its role; what is wrong with them is raised."""
    has_file = agent.name in list_agent_files(home)
    file = load_agent_file(home, agent.name) if has_file else AgentFile(role=agent.role)
    # Of another role it is after its next start: its engine and its conversations are of this one.
    role = file.apply_to(load_changed_role(home, agent.role, agent.pod, agent.overrides))
    return Worker(file, role, session_directory(home, agent.name, file))


def find_worker(home: Home, agent: Agent) -> Worker | None:
    """The same; None if its files cannot be read: a file that was broken meanwhile does not hurt
    what is under way."""
    try:
        return load_worker(home, agent)
    except BullpenError as error:
        log.warning("cannot read an agent's file", extra={"agent": agent.name, "why": str(error)})
        return None


def plain_worker(agent: Agent) -> Worker:
    """What an agent would be without its files."""
    role = Role(name=agent.role, agent_type=agent.engine)  # type: ignore[arg-type]
    return Worker(AgentFile(role=agent.role), role, Path(agent.cwd))


@dataclass(frozen=True)
class RunStart:
    """How one run is started, before its prompt is known. The conversation is resolved."""

    worker: Worker
    engine: Engine
    start: Start
    launch_env: LaunchEnv  # as the agent was launched
    keys: Mapping[str, str]  # credentials of the engine
    role_env: Mapping[str, str]
    task_env: Mapping[str, str]
    warning: str = ""


@dataclass(frozen=True)
class RunPlan:
    """How one run is started, with its prompt."""

    engine: Engine
    start: Start
    prepared: Prepared
    launch_env: LaunchEnv  # with what this run adds
    sandbox_plan: sandbox_policy.SandboxPlan | None


def task_directory(home: Home, agent: str, task: str) -> Path:
    """Everything of one task: its environment, and a directory for each run."""
    return home.session(agent) / TASKS / task


def run_directory(home: Home, task: Task, number: int) -> Path:
    """The directory of one run: what it was asked, and its logs."""
    return task_directory(home, task.agent, task.id) / str(number)


def tag_of(task: Task, number: int) -> str:
    """What its holder is told apart by. It follows from the task: a hub that comes after a crash
    finds the same."""
    return f"{task.id}.{number}"


def start_run(
    context: HubContext,
    agent: Agent,
    worker: Worker,
    launch_env: LaunchEnv,
    task: Task,
    session: TaskSession,
    number: int,
) -> RunStart:
    """That run of the task, all but its prompt. Reads credentials, variables and transcripts."""
    home, role = context.home, worker.role
    if task.wish.model:
        role = role.model_copy(update={"model": task.wish.model})
    engine = get_engine(role.agent_type)
    task_env = load_variables(home, task)
    keys = credentials.engine_variables(home, engine.name)
    launch_env = replace(launch_env, env={**launch_env.env, **find_port_variables(session)})
    env = {**launch_env.env, **NO_TERMINAL, **keys, **role.env, **task_env}
    budget = task.wish.budget
    start = replace(
        make_start(context, agent, role, env, is_sandboxed=worker.is_sandboxed),
        cwd=session.directory,
        top=str(top_of(home, Path(session.directory))),
        run=run_directory(home, task, number),
        is_trusted=any(
            is_trusted(engine, home, context.person, env, d) for d in _directories(session)
        ),
        rules=load_rules(home.session(agent.name)),
        max_turns=worker.file.claude.max_turns,
        max_usd=max(budget.usd - spent_usd(task), LEAST_USD) if budget and budget.usd else 0.0,
    )
    start = resolve_conversation(engine, start, session.conversation)
    is_known = task.turns or task.wish.session_id  # a first turn may have left nothing
    is_lost = bool(is_known and session.conversation and not start.conversation)
    warning = LOST if is_lost else ""
    return RunStart(worker, engine, start, launch_env, keys, role.env, task_env, warning)


def _directories(session: TaskSession) -> tuple[Path, ...]:
    """That the person may have trusted: where it works, and the checkout a worktree is of."""
    checkout = (Path(session.repo).parent,) if session.repo.endswith("/.git") else ()
    return (Path(session.directory), *checkout)


def plan_run(
    context: HubContext,
    run: RunStart,
    task: Task,
    session: TaskSession,
    messages: Sequence[str] = (),
) -> RunPlan:
    """The plan for that run. The one place where a task's engine prepares it."""
    engine = run.engine
    start = replace(run.start, prompt=_prompt(context.home, task, session, messages, run))
    prepared = engine.prepare_run(start)
    added = {**NO_TERMINAL, **run.keys, **prepared.env, **run.role_env, **run.task_env}
    sandbox_plan = None
    if start.is_sandboxed:
        assert start.role is not None
        sandbox_plan = sandbox_policy.plan(
            context.port,
            start.role,
            engine,
            start,
            checkout_of(session),
            unsure=unsure_of(session),
            real_cwd=session.directory,
            keep=(*run.role_env, *run.task_env),
            is_terminal=False,
        )
    launch_env = replace(run.launch_env, added=added)
    return RunPlan(engine, start, prepared, launch_env, sandbox_plan)


def write(home: Home, plan: RunPlan) -> dict[str, Any]:
    """Put everything in place that the run needs; what a factory is to be asked for, all but the
    socket and the tag. May be repeated."""
    plan.start.run.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_files(home, plan.start.agent, plan.prepared.files)
    write_reviewer(home, plan.start.agent, plan.start.role)
    for name, text in plan.prepared.run_files.items():
        write_atomically(plan.start.run / name, text, mode=0o600)
    plan.engine.make_ready(plan.start, plan.prepared)
    request = make_request(
        plan.start, plan.launch_env, plan.prepared.argv, plan.sandbox_plan, is_terminal=False
    )
    return {**request, "log_bytes": LOG_BYTES}


# ── the task's own variables: in a private file until it ends ──


def keep_variables(home: Home, task: str, variables: Mapping[str, str]) -> None:
    """On disk before the task is acknowledged."""
    directory = home.root / VARIABLES
    make_directory(directory, 0o700)
    write_atomically(directory / task, json.dumps(dict(variables)), mode=0o600)


def load_variables(home: Home, task: Task) -> dict[str, str]:
    """The variables that a task was given; empty if none."""
    if not task.env_names:
        return {}
    try:
        variables: dict[str, str] = json.loads((home.root / VARIABLES / task.id).read_bytes())
    except (OSError, ValueError) as error:
        raise BullpenError(f"cannot read the task's environment: {error}") from error
    return variables


def forget_variables(home: Home, task: str) -> None:
    """The task has ended."""
    (home.root / VARIABLES / task).unlink(missing_ok=True)


def remove_stale_variables(home: Home, tasks: Collection[str]) -> None:
    """Forget those of all but these tasks."""
    directory = home.root / VARIABLES
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.name not in tasks:
            path.unlink(missing_ok=True)


def remove_stale_tasks(home: Home, agent: str, tasks: Collection[str]) -> None:
    """Delete the directories of all but these tasks: the others are in no history any more."""
    directory = home.session(agent) / TASKS
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.name not in tasks:
            shutil.rmtree(path, ignore_errors=True)


def _prompt(
    home: Home, task: Task, session: TaskSession, messages: Sequence[str], run: RunStart
) -> str:
    """The first turn of a conversation gets everything. Later turns know the instructions; they
    get the project only if another task names it. A plain program is no reader: it gets neither."""
    is_first = not run.start.conversation
    if not run.engine.is_model or (not is_first and task.turns):
        return prompts.assemble(task.prompt, messages=messages)
    project = task.wish.project
    if isinstance(project, str):
        file = project_of(home, task.wish)
        project = Context(name=file.name, prompt=file.prompt) if file else None
    instructions = prompts.load_instructions(home, "agent") if is_first else ""
    if session.below:
        messages = [*messages, f"This is about {session.below} in the repository."]
    return prompts.assemble(task.prompt, instructions, project, messages)
