"""`bullpen task`: give a task to an agent and wait for it; look at one, steer it."""

import os
import sys
import uuid
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from bullpen.cli import output, task_options
from bullpen.cli.commands.role import complete_roles
from bullpen.cli.connect import connect
from bullpen.cli.first_word import FirstWord
from bullpen.cli.takers import agent_name, complete_takers, ensure_running, find_agent, nobody
from bullpen.cli.task_text import field_text, shown_output, task_lines
from bullpen.cli.task_wait import leave, say, wait_and_show, write_text
from bullpen.client import tasks
from bullpen.client.hub import HubClient
from bullpen.errors import BullpenError, Kind
from bullpen.model.task_shown import Shown
from bullpen.paths import current_directory, current_home
from bullpen.projects import list_projects

USAGE = 'bullpen task AGENT "PROMPT" · bullpen task --any "PROMPT"'


def _complete_words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The agent, or one of the words that are commands; nothing for the prompt."""
    if ctx.params.get("words") or ctx.params.get("for_any"):
        return []
    words = [word for word in command.commands if word.startswith(incomplete)]
    return [*complete_takers(ctx, param, incomplete), *words]


def _complete_projects(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    try:
        return [name for name in list_projects(current_home()) if name.startswith(incomplete)]
    except (BullpenError, OSError):
        return []


def complete_ids(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Tasks that are open, for the shell; starts no hub."""
    try:
        found = HubClient(current_home(), start=False).get(*tasks.base(), "tasks")["tasks"]
    except (BullpenError, OSError):
        return []
    return [task["task_id"] for task in found if task["task_id"].startswith(incomplete)]


wait_option = click.option("--no-wait", is_flag=True, help="Print its id and leave.")
stream_option = click.option(
    "--stream", is_flag=True, help="Print what the model says as it comes."
)
id_argument = click.argument("id", metavar="ID", shell_complete=complete_ids)


@click.command(no_args_is_help=True)
@click.argument("words", nargs=-1, metavar="AGENT PROMPT", shell_complete=_complete_words)
@click.option("--any", "for_any", is_flag=True, help="For whoever is free, in place of AGENT.")
@click.option("--role", shell_complete=complete_roles, help="With --any: only agents of this role.")
@click.option(
    "--label", "labels", multiple=True, metavar="K=V", help="With --any: only with this label."
)
@click.option(
    "--priority",
    type=click.IntRange(-100, 100),
    help="With --any: before those with less (default: 0).",
)
@wait_option
@stream_option
@click.option("--session", metavar="ID", help="Go on with this conversation, where it was.")
@click.option("--timeout", metavar="DURATION", help="For a turn, e.g. 20m (default: the agent's).")
@click.option("--model", help="Another model than the agent's.")
@click.option("--project", shell_complete=_complete_projects, help="A file of projects/.")
@click.option("--workdir", metavar="DIR", type=click.Path(), help="Work in this directory.")
@click.option("--repo", metavar="REPO", help="Work on this repository: a path, or an address.")
@click.option("--worktree", metavar="BRANCH", help="With --repo: in a worktree of this branch.")
@click.option("--keep-open", is_flag=True, help="It may be continued when the model has answered.")
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for it; without a value, as it is here.",
)
@click.option("--budget", metavar="LIMITS", help="E.g. usd=1.50,tokens=200000,minutes=20.")
@output.json_option
def give(
    words: Sequence[str],
    for_any: bool,
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
    keep_open: bool,
    variables: Sequence[str],
    budget: str | None,
    as_json: bool,
) -> None:
    """Give a task to an agent, and wait for it. PROMPT - is standard input.

    An agent that has a file in agents/ is started if it does not run. The output goes to
    standard output; the exit code is 0 when it is completed, 1 when it failed, 124 after its
    time-out, 130 when it was cancelled. Ctrl-C asks whether to cancel it; it goes on by itself.

    \b
    bullpen task show ID         what is known of it
    bullpen task cancel ID       end it
    bullpen task continue ID …   another prompt for one that was kept open
    bullpen task end ID          no more prompts for it
    bullpen task debug ID        the raw output of its runs

    These five words are no names of agents here. The beginning of an ID is enough.
    """
    agent, prompt = _who_and_what(words, for_any)
    if not for_any and (role is not None or labels or priority is not None):
        raise BullpenError("--role, --label and --priority are for --any", hint=USAGE)
    here = current_directory()
    body = task_options.given(
        {
            "prompt": task_options.prompt_of(prompt),
            "model": model,
            "timeout_seconds": task_options.time_limit_of(timeout),
            "session_id": task_options.session_of(session),
            "keep_open": keep_open,
            "project": project,
            "workdir": task_options.directory_of(workdir, here),
            "repo": task_options.repository_of(repo, here),
            "worktree": worktree,
            "env": task_options.variables_of(variables, os.environ),
            "budget": task_options.budget_of(budget),
            "role": role,
            "labels": task_options.labels_of(labels),
            "priority": priority,
        }
    )
    hub = connect()
    taken = _given(hub, agent, body)
    id = taken["task_id"]
    if for_any and not _is_anybody_there(hub, body):
        say("nobody who may take it is running: it waits · bullpen agent list")
    if not no_wait:
        wait_and_show(hub, id, name=agent or "any", streams=stream, as_json=as_json)
    _acknowledge(id, taken, as_json)


def _who_and_what(words: Sequence[str], for_any: bool) -> tuple[str, str]:
    if len(words) != (1 if for_any else 2):
        raise BullpenError("who is to do what?", hint=USAGE)
    return ("", words[0]) if for_any else (agent_name(words[0]), words[1])


def _given(hub: HubClient, agent: str, body: dict[str, Any]) -> dict[str, Any]:
    try:
        if not agent:
            return tasks.offer(hub, body)
        ensure_running(hub, agent)
        return tasks.give(hub, agent, body)
    except BullpenError as error:
        if agent and error.kind is Kind.NOT_FOUND and find_agent(hub, agent) is None:
            raise nobody(hub, agent, command.commands) from error
        raise
    except KeyboardInterrupt:
        leave(f"left before it was acknowledged: it may have been taken · bullpen tasks {agent}")


def _is_anybody_there(hub: HubClient, body: dict[str, Any]) -> bool:
    """Whether an agent runs that fits, busy or not."""
    role, labels = body.get("role"), body.get("labels", {})
    return any(
        agent["kind"] == "headless"
        and agent["running"]
        and role in (None, agent["role"])
        and labels.items() <= agent["labels"].items()
        for agent in hub.get("agents")["agents"]
    )


def _acknowledge(id: str, answer: dict[str, Any], as_json: bool) -> None:
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
    hub = connect()
    task = tasks.get(hub, tasks.find_id(hub, id))
    if as_json:
        output.write_json(task.model_dump(mode="json"))
    else:
        write_task(task)


def write_task(task: Shown) -> None:
    """All of it, the output last."""
    for line in field_text(task_lines(task)):
        output.write(line)
    if task.output:
        output.write()
        write_text(task.output)


@command.command()
@id_argument
@output.json_option
def cancel(id: str, as_json: bool) -> None:
    """End a task; what it has said until then is kept."""
    hub = connect()
    whole = tasks.find_id(hub, id)
    try:
        answer = hub.post("task", whole, "cancel", again=True)
    except BullpenError as error:
        # Perhaps we did it: a hub that died before it answered was asked again.
        if error.details.get("final_state") != "cancelled":
            raise
        answer = {"task_id": whole, "state": "cancelled", "message": error.message}
    _report(answer, as_json)


@command.command("continue")
@id_argument
@click.argument("prompt")
@wait_option
@stream_option
@output.json_option
def continue_(id: str, prompt: str, no_wait: bool, stream: bool, as_json: bool) -> None:
    """Another prompt for a task that was kept open, and wait for it. PROMPT - is standard input."""
    asked = {"prompt": task_options.prompt_of(prompt), "request": uuid.uuid4().hex}
    hub = connect()
    whole = tasks.find_id(hub, id)
    before = tasks.get(hub, whole)
    answer = hub.post("task", whole, "continue", body=asked, again=True)
    if no_wait:
        _acknowledge(whole, answer, as_json)
        return
    _wait_on(hub, before, stream, as_json)


def _wait_on(hub: HubClient, before: Shown, streams: bool, as_json: bool) -> NoReturn:
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
@id_argument
@output.json_option
def end(id: str, as_json: bool) -> None:
    """No more prompts for a task that was kept open: it is completed."""
    hub = connect()
    asked = {"request": uuid.uuid4().hex}
    whole = tasks.find_id(hub, id)
    _report(hub.post("task", whole, "end", body=asked, again=True), as_json)


def _report(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.write_json(answer)
    else:
        is_ending = answer["state"] == "cancelling"
        state = "being cancelled" if is_ending else output.printable(answer["state"])
        output.write(f"task {answer['task_id']} is {state}")


@command.command()
@id_argument
@output.json_option
def debug(id: str, as_json: bool) -> None:
    """Print the raw output of a task's runs."""
    hub = connect()
    found = hub.get(*tasks.base(), "task", tasks.find_id(hub, id), "debug")
    if as_json:
        output.write_json(found)
    else:
        write_logs(found["runs"])


def write_logs(runs: Sequence[dict[str, Any]]) -> None:
    """What each run wrote; raw, unless a terminal would take it for its own."""
    is_terminal = sys.stdout.isatty()
    for run in runs:
        for name in ("stdout", "stderr"):
            if run[name]:
                output.write(output.colour(f"run {run['number']} · {name}", "dim"))
                sys.stdout.write(shown_output(run[name], is_terminal))
    if not any(run["stdout"] or run["stderr"] for run in runs):
        output.write("it has written nothing")
