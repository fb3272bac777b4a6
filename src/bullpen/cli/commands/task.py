"""`bullpen task`: give a task to an agent and wait for it; look at one, steer it."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import click

from bullpen.cli import output
from bullpen.cli.commands.role import complete_roles
from bullpen.cli.connect import connect, connect_for
from bullpen.cli.first_word import FirstWord
from bullpen.cli.forgotten_quotes import forgotten_quotes
from bullpen.cli.missing_text import missing_text
from bullpen.cli.tasks import options as task_options
from bullpen.cli.tasks import where as task_where
from bullpen.cli.tasks.agents import (
    agent_name,
    complete_task_agents,
    ensure_running,
    find_agent,
    nobody,
)
from bullpen.cli.tasks.agents import (
    give as give_to_agent,
)
from bullpen.cli.tasks.ids import complete_ids, complete_open_ids, find_id, whose
from bullpen.cli.tasks.text import field_text, named, shown_output, task_lines
from bullpen.cli.tasks.wait import leave, say, wait_and_show, write_text
from bullpen.client import tasks
from bullpen.client.agents import list_agents
from bullpen.client.call import Call
from bullpen.client.fleet import get_fleet
from bullpen.client.hub import Hub
from bullpen.client.tasks import TaskFields
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import current_directory, current_home
from bullpen.home.projects import list_projects
from bullpen.model.task_shown import RunLog, TaskAccepted, TaskMoved, TaskShown

USAGE = 'bullpen task AGENT "PROMPT" · bullpen task --any "PROMPT"'


def _complete_words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The agent, or one of the words that are commands; nothing for the prompt."""
    if ctx.params.get("words") or ctx.params.get("for_any"):
        return []
    words = [word for word in command.commands if word.startswith(incomplete)]
    return [*complete_task_agents(ctx, param, incomplete), *words]


def _complete_projects(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    try:
        return [name for name in list_projects(current_home()) if name.startswith(incomplete)]
    except (BullpenError, OSError):
        return []


wait_option = click.option("--no-wait", is_flag=True, help="Print its id and leave.")
stream_option = click.option(
    "--stream", is_flag=True, help="Print what the model says as it comes."
)
id_argument = click.argument("id", metavar="ID", shell_complete=complete_ids)
open_argument = click.argument("id", metavar="ID", shell_complete=complete_open_ids)


@click.command(no_args_is_help=True)
@click.argument("words", nargs=-1, metavar="AGENT PROMPT", shell_complete=_complete_words)
@click.option("--any", "for_any", is_flag=True, help="For whoever is free, in place of AGENT.")
@click.option("--fleet", "in_fleet", is_flag=True, help="With --any: on whichever machine.")
@click.option("--queue", "is_queued", is_flag=True, help="It waits until AGENT is free.")
@click.option("--role", shell_complete=complete_roles, help="With --any: only agents of this role.")
@click.option(
    "--label", "labels", multiple=True, metavar="K=V", help="With --any: only with this label."
)
@click.option(
    "--priority",
    type=click.IntRange(-100, 100),
    help="With --any or --queue: before those with less (default: 0).",
)
@wait_option
@stream_option
@click.option("--session", metavar="ID", help="Go on with this conversation, where it was.")
@click.option("--timeout", metavar="DURATION", help="For a turn, e.g. 20m (default: the agent's).")
@click.option("--model", help="Another model than the agent's.")
@click.option("--project", shell_complete=_complete_projects, help="A file of projects/.")
@click.option("--workdir", metavar="DIR", type=click.Path(), help="Work in this directory.")
@click.option("--repo", metavar="REPO", help="Work on this repository: a path, or an address.")
@click.option("--worktree", metavar="BRANCH", help="In a worktree of this branch.")
@click.option("--scratch", is_flag=True, help="Work in an empty directory of its own.")
@click.option("--keep-open", is_flag=True, help="It may be continued when the model has answered.")
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for it; without a value, as it is here.",
)
@click.option("--budget", metavar="LIMITS", help="Of usd, tokens and minutes: usd=1.50,minutes=20.")
@output.json_option
def give(
    words: Sequence[str],
    for_any: bool,
    in_fleet: bool,
    is_queued: bool,
    role: str | None,
    labels: Sequence[str],
    priority: int | None,
    no_wait: bool,
    stream: bool,
    session: str | None,
    timeout: str | None,
    model: str | None,
    project: str | None,
    workdir: str | None,
    repo: str | None,
    worktree: str | None,
    scratch: bool,
    keep_open: bool,
    variables: Sequence[str],
    budget: str | None,
    as_json: bool,
) -> None:
    """Give a task to an agent, and wait for it. PROMPT - is standard input.

    It works where you stand, unless you say otherwise: in a worktree of this repository if the
    agent's role has one, else in this directory if tasks may work there.

    An agent that has a file in agents/ is started if it does not run. The output goes to
    standard output; the exit code is 0 when it is completed, 1 when it failed, 124 after its
    time-out, 130 when it was cancelled. Ctrl-C asks whether to cancel it; it goes on by itself.

    \b
    bullpen task show ID         what is known of it
    bullpen task wait ID         wait for it, as if you had given it just now
    bullpen task follow ID       the same, with what it says as it comes
    bullpen task cancel ID       end it
    bullpen task continue ID …   another prompt for one that was kept open
    bullpen task end ID          no more prompts for it
    bullpen task debug ID        the raw output of its runs

    These words are no names of agents here. The beginning of an ID is enough. AGENT and ID
    of another machine of the fleet: HOST/AGENT, HOST/ID.
    """
    whole_name, prompt = _who_and_what(words, for_any)
    host, _, agent = whole_name.rpartition("/")
    if agent or not for_any:
        agent_name(agent)
    if not for_any and (role is not None or labels or in_fleet):
        raise BullpenError("--role, --label and --fleet are for --any", hint=USAGE)
    if not (for_any or is_queued) and priority is not None:
        raise BullpenError("--priority is for --any and --queue", hint=USAGE)
    here = current_directory()
    text = task_options.prompt_of(prompt)
    fields: TaskFields = {
        "model": model,
        "timeout_seconds": task_options.time_limit_of(timeout),
        "session_id": task_options.session_of(session),
        "keep_open": keep_open or None,
        "project": project,
        "workdir": task_options.directory_of(workdir, here),
        "repo": task_options.repository_of(repo, here),
        "worktree": worktree,
        "env": task_options.variables_of(variables, os.environ) or None,
        "budget": task_options.budget_of(budget) or None,
    }
    wanted_labels = task_options.labels_of(labels)
    hub = connect().at(host)
    if host:
        where = _where_there(fields)
    elif in_fleet:
        where = task_where.anywhere(fields, here, is_scratch=scratch)
    else:
        where = _where(hub, fields, here, agent, role or "", is_scratch=scratch)
    fields |= where.fields
    call = (
        tasks.offer_task(
            text,
            agent=agent or None,
            role=role,
            labels=wanted_labels or None,
            priority=priority,
            fleet=in_fleet or None,
            **fields,
        )
        if for_any or is_queued
        else tasks.give_task(agent, text, **fields)
    )
    taken = give_to_agent(hub, agent, call) if host else _give(hub, agent, call)
    id = taken.task_id
    if not as_json:
        say(f"{whole_name or 'whoever is free'} works {where.words}")
    if for_any:
        _say_if_nobody(hub, role, wanted_labels, in_fleet)
    if not no_wait:
        wait_and_show(hub, id, name=agent or "any", streams=stream, as_json=as_json)
    _acknowledge(hub.named(id), taken, as_json)


def _where(
    hub: Hub, fields: TaskFields, here: Path, agent: str, role: str, *, is_scratch: bool
) -> task_where.Where:
    words = task_where.named(fields, hub.home)
    if words and is_scratch:
        raise BullpenError("--scratch is for a task that names no directory", hint=USAGE)
    if words or is_scratch:
        return task_where.Where({}, words or task_where.OWN)
    if agent:
        role = task_where.role_of(hub.home, agent, find_agent(hub, agent))
    return task_where.here(hub.home, here, role, fields.get("worktree") or agent)


def _where_there(fields: TaskFields) -> task_where.Where:
    """On another machine: what this one has is not there."""
    directory = fields.get("workdir") or fields.get("repo")
    return task_where.Where({}, f"in {directory}" if directory else task_where.OWN)


def _who_and_what(words: Sequence[str], for_any: bool) -> tuple[str, str]:
    start = 0 if for_any else 1
    if not for_any and not any(words):
        hint = f"{USAGE} · those that are not over: bullpen tasks"
        raise BullpenError("who is to do what?", hint=hint)
    to = "--any" if for_any else words[0]
    if len(words) <= start:
        named = "whoever is free" if for_any else to
        raise missing_text("prompt", named, ["bullpen", "task", to])
    if len(words) > start + 1:
        raise forgotten_quotes("prompt", words[start:], ["bullpen", "task", to])
    return ("", words[0]) if for_any else (words[0], words[1])


def _give(hub: Hub, agent: str, call: Call[TaskAccepted | TaskShown]) -> TaskAccepted | TaskShown:
    try:
        if not agent:
            return hub.do(call)
        ensure_running(hub, agent)
        return give_to_agent(hub, agent, call)
    except BullpenError as error:
        if agent and error.kind is Kind.NOT_FOUND and find_agent(hub, agent) is None:
            raise nobody(hub, agent, command.commands) from error
        raise
    except KeyboardInterrupt:
        leave(f"left before it was acknowledged: it may have been taken · bullpen tasks {agent}")


def _say_if_nobody(hub: Hub, role: str | None, labels: Mapping[str, str], in_fleet: bool) -> None:
    if in_fleet and not _is_anybody_anywhere(hub, role, labels):
        say("nobody of the fleet who may take it is known to run: it waits · bullpen list --fleet")
    if not in_fleet and not _is_anybody_there(hub, role, labels):
        say("nobody who may take it is running: it waits · bullpen agent list")


def _is_anybody_there(hub: Hub, role: str | None, labels: Mapping[str, str]) -> bool:
    """Whether an agent runs that fits, busy or not."""
    return any(
        agent.kind == "headless"
        and agent.running
        and role in (None, agent.role)
        and labels.items() <= agent.labels.items()
        for agent in hub.do(list_agents()).agents
    )


def _is_anybody_anywhere(hub: Hub, role: str | None, labels: Mapping[str, str]) -> bool:
    """Whether an agent runs that fits on a machine that is reached, busy or not."""
    return any(
        agent.takes_tasks
        and agent.running
        and role in (None, agent.role)
        and labels.items() <= {**host.state.labels, **agent.labels}.items()
        for host in hub.do(get_fleet()).hosts
        if host.reachable
        for agent in host.state.agents
    )


def _acknowledge(id: str, answer: TaskAccepted | TaskShown | TaskMoved, as_json: bool) -> None:
    if as_json:
        output.write_json(answer)
    else:
        output.write(id)
        say(f"task {id} is given · bullpen task show {id} · bullpen task cancel {id}")


command = FirstWord(give, name="task", help="Look at a task, and steer it.")


@command.command()
@id_argument
@output.json_option
def show(id: str, as_json: bool) -> None:
    """Print what is known of a task."""
    hub, id = connect_for(id)
    task = hub.do(tasks.get_task(find_id(hub, id), whose()))
    if as_json:
        output.write_json(task.model_dump(mode="json"))
    else:
        write_task(named(task, hub))


def write_task(task: TaskShown) -> None:
    """All of it, the output last."""
    for line in field_text(task_lines(task)):
        output.write(line)
    if task.output:
        output.write()
        write_text(task.output)


@command.command()
@id_argument
@stream_option
@output.json_option
def wait(id: str, stream: bool, as_json: bool) -> None:
    """Wait until a task has been answered, and print its output. Leaves with its exit code."""
    _wait_for(id, stream, as_json)


@command.command()
@id_argument
@output.json_option
def follow(id: str, as_json: bool) -> None:
    """Print what a task says from its beginning, and go on until it has been answered."""
    _wait_for(id, True, as_json)


def _wait_for(id: str, streams: bool, as_json: bool) -> NoReturn:
    hub, id = connect_for(id)
    task = hub.do(tasks.get_task(find_id(hub, id), whose()))
    name = task.agent or "any"
    wait_and_show(hub, task.task_id, name=name, streams=streams, as_json=as_json)


@command.command()
@open_argument
@output.json_option
def cancel(id: str, as_json: bool) -> None:
    """End a task; what it has said until then is kept."""
    hub, id = connect_for(id)
    whole = find_id(hub, id)
    try:
        answer = hub.do(tasks.cancel_task(whole))
    except BullpenError as error:
        # Perhaps we did it: a hub that died before it answered was asked again.
        if error.details.get("final_state") != "cancelled":
            raise
        answer = TaskMoved(task_id=whole, state="cancelled", message=error.message)
    _report(hub, answer, as_json)


@command.command("continue")
@open_argument
@click.argument("prompt")
@wait_option
@stream_option
@output.json_option
def continue_(id: str, prompt: str, no_wait: bool, stream: bool, as_json: bool) -> None:
    """Another prompt for a task that was kept open, and wait for it. PROMPT - is standard input."""
    text = task_options.prompt_of(prompt)
    hub, id = connect_for(id)
    whole = find_id(hub, id)
    before = hub.do(tasks.get_task(whole, whose()))
    answer = hub.do(tasks.continue_task(whole, text))
    if no_wait:
        _acknowledge(hub.named(whole), answer, as_json)
        return
    _wait_on(hub, before, stream, as_json)


def _wait_on(hub: Hub, before: TaskShown, streams: bool, as_json: bool) -> NoReturn:
    wait_and_show(
        hub,
        before.task_id,
        name=before.agent or "any",
        streams=streams,
        as_json=as_json,
        after_run=before.runs[-1].number if before.runs else 0,
        usd=before.cost_usd or 0.0,
    )


@command.command()
@open_argument
@output.json_option
def end(id: str, as_json: bool) -> None:
    """No more prompts for a task that was kept open: it is completed."""
    hub, id = connect_for(id)
    _report(hub, hub.do(tasks.end_task(find_id(hub, id))), as_json)


def _report(hub: Hub, answer: TaskMoved, as_json: bool) -> None:
    if as_json:
        output.write_json(answer.model_dump())
    else:
        is_ending = answer.state == "cancelling"
        state = "being cancelled" if is_ending else output.printable(answer.state)
        output.write(f"task {hub.named(answer.task_id)} is {state}")


@command.command()
@id_argument
@output.json_option
def debug(id: str, as_json: bool) -> None:
    """Print the output of a task's runs, all of it; --json has it as it is."""
    hub, id = connect_for(id)
    call = tasks.debug_task(find_id(hub, id), whose())
    if as_json:
        output.write_json(hub.do(call.as_json()))
    else:
        write_logs(hub.do(call).runs)


def write_logs(runs: Sequence[RunLog]) -> None:
    """What each run wrote; what would drive a terminal is made visible."""
    is_terminal = sys.stdout.isatty()
    for run in runs:
        for name, text in (("stdout", run.stdout), ("stderr", run.stderr)):
            if text:
                output.write(output.colour(f"run {run.number} · {name}", "dim"))
                sys.stdout.write(shown_output(text, is_terminal))
    if not any(run.stdout or run.stderr for run in runs):
        output.write("it has written nothing")
