"""`bullpen run`: start an agent, and attach to it when there is a terminal."""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bullpen import proc
from bullpen.cli import output, repository_trust
from bullpen.cli.choose_host import choose_host, shell_for
from bullpen.cli.commands.role import complete_roles
from bullpen.cli.connect import connect
from bullpen.cli.forgotten_quotes import forgotten_quotes
from bullpen.cli.last_conversation import ask_to_resume, tell_left
from bullpen.cli.own_pod import pod_in_effect
from bullpen.client.agents import start_agent
from bullpen.errors import BullpenError
from bullpen.home import paths

if TYPE_CHECKING:
    from bullpen.model.agent_shown import AgentStarted


LAST = "last"


class RunCommand(click.Command):
    """Knows which words followed `--`: the parser forgets where that was."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:end])
        if stray := ctx.params["words"]:
            raise _stray(ctx.params, stray)
        ctx.params["words"] = tuple(args[end + 1 :])
        return rest


def _stray(params: dict[str, Any], stray: Sequence[str]) -> BullpenError:
    """Words that nobody can mean as they stand, with what was probably meant."""
    shown = " ".join(stray)
    if params["prompt"]:
        return forgotten_quotes("prompt", [params["prompt"], *stray], ["--prompt"])
    program = f"bullpen run -- {shlex.join(stray)}"
    with_role = f"bullpen run --role {params['role'] or 'ROLE'} --prompt {shlex.quote(shown)}"
    hint = with_role if params["role"] else f"{program} · {with_role}"
    if not params["role"] and stray[0] in complete_roles(None, None, stray[0]):
        prompt = ["--prompt", " ".join(stray[1:])] if stray[1:] else []
        hint = shlex.join(["bullpen", "run", "--role", stray[0], *prompt])
    return BullpenError(f"{shown} follows no option and no --", hint=hint)


@click.command(cls=RunCommand)
@click.option("--role", shell_complete=complete_roles, help="The role to start.")
@click.option("--name", help="Its name (default: the role's, or the program's).")
@click.option("--pod", help="The pod it belongs to (default: BULLPEN_POD).")
@click.option("--model", help="With --role: another model than its own.")
@click.option(
    "--branch", default="", help="With --role: its worktree's branch (default: its name)."
)
@click.option(
    "--base", metavar="REF", help="With --role: where that branch begins (default: the role's)."
)
@click.option(
    "--override", "overrides", multiple=True, metavar="K=V", help="Change a field of the role."
)
@click.option("--detach", "-d", is_flag=True, help="Do not attach to it.")
@click.option(
    "--prompt", default="", help="With --role: what it is to do first; - is standard input."
)
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LAST,
    default="",
    metavar="[ID]",
    help="Go on with its last conversation, or with that of this id.",
)
@click.option("--host", default="", help="Start it on this machine of the fleet.")
@click.option("--where", multiple=True, metavar="K=V", help="On one of the fleet with this label.")
@click.option("--dir", "directory", metavar="DIR", help="Where it starts (default: here).")
@click.argument("words", nargs=-1, metavar="[-- WORDS...]")
@output.json_option
def command(
    role: str | None,
    name: str | None,
    pod: str | None,
    model: str | None,
    branch: str,
    base: str | None,
    overrides: Sequence[str],
    detach: bool,
    prompt: str,
    resume: str,
    host: str,
    where: Sequence[str],
    directory: str | None,
    words: Sequence[str],
    as_json: bool,
) -> None:
    """Start an agent.

    With --role the words after -- are added to its command line, and --branch and --base give it
    a worktree, if the role does not. Its branch is a new one, or one that was kept of an agent of
    its name; --base BRANCH begins at what another branch has. Without a role the words are the
    program to hold, in no worktree: bullpen run -- htop.

    A name that was used before: at a terminal you are asked whether its conversation goes on; else
    a new one begins, unless --resume is given.

    On another machine (--host, --where) it gets that machine's environment, and starts in the
    directory of this name there.
    """
    if role is None:
        _refuse_without_role(words, bool(model or branch or base), prompt, resume and (name or ""))
    if prompt == "-":
        from bullpen.cli.tasks.options import prompt_of

        prompt = prompt_of(prompt)
    if name and "/" in name:
        raise _names_host(name)
    changes = [*overrides, *_overrides(model, branch, base)]
    attaches = not (detach or as_json) and sys.stdin.isatty() and sys.stdout.isatty()
    hub = connect()
    if where:
        host = choose_host(hub, where, host)
    if role is not None and attaches and not host:
        repository_trust.ask_once(role, pod_in_effect(pod) or "", changes)
    hub = hub.at(host)
    if role is not None and attaches and not resume and ask_to_resume(hub, role, name):
        resume = LAST
    call = start_agent(
        shell_for(host, directory),
        role=role,
        name=name,
        pod=pod_in_effect(pod),
        words=words,
        overrides=changes,
        prompt=prompt,
        branch=branch or None,
        resume=resume != "",
        conversation=resume if resume != LAST else None,
    )
    agent = hub.do(call.unchecked())
    shown_name = f"{host}/{agent.name}" if host else agent.name
    if relative := proc.relative_entries(os.environ.get("PATH", "")):
        shown = output.printable(", ".join(relative))
        sys.stderr.write(f"PATH has relative entries, which agents do not get: {shown}\n")
    repository_trust.tell_not_used(agent.not_used)
    tell_left(agent, host)
    if as_json:
        output.write_json(agent)
    elif not attaches:
        output.write(_started(shown_name, agent))
        follow = "peek" if host else "logs -f"  # an agent's log lies on its own machine
        output.write(f"bullpen attach {shown_name} · bullpen {follow} {shown_name}")
    else:
        from bullpen.cli.commands import attach

        click.get_current_context().invoke(
            attach.command, name=shown_name, read_only=False, wants_status=False
        )


def _names_host(name: str) -> BullpenError:
    host, _, agent = name.partition("/")
    return BullpenError(
        f"--name {name}: on which machine it starts is said apart",
        hint=f"--host {host} --name {agent}",
    )


def _refuse_without_role(
    words: Sequence[str], changes_role: bool, prompt: str, resumed: str
) -> None:
    if not words and resumed:
        raise BullpenError(
            "--resume goes with a role: it starts an agent of that role",
            hint=f"as it was: bullpen resume {resumed}",
        )
    if not words:
        raise BullpenError(
            "neither a role nor a program to run",
            hint="bullpen run --role ROLE · bullpen run -- PROGRAM",
        )
    if changes_role:
        raise BullpenError(
            "--model, --branch and --base change a role, and none is given",
            hint="--role ROLE · a program in a worktree: bullpen worktree create NAME, then"
            " bullpen run --dir DIR -- PROGRAM",
        )
    if prompt:
        raise BullpenError(
            "--prompt needs a role: a program without one is started as it is, and given nothing",
            hint="--role ROLE · its own words: bullpen run -- PROGRAM WORDS",
        )


def _overrides(model: str | None, branch: str, base: str | None) -> Iterator[str]:
    if model is not None:
        yield f"model={model}"
    if branch or base is not None:
        yield "worktree.enabled=true"
    if branch:
        yield "worktree.use_detached_head=false"
    if base is not None:
        yield f"worktree.branch_from={base}"


def _started(name: str, agent: "AgentStarted") -> str:
    line = f"{name} started"
    if agent.worktree is not None:
        path = output.printable(paths.short_path(Path(agent.worktree.path)))
        branch = f" on branch {agent.birth_branch}" if agent.birth_branch else ""
        base = f" (from {output.printable(agent.branched_from)})" if agent.branched_from else ""
        if agent.branch_was_there:
            base = " (as it was left)"
        line += f" · worktree {path}{branch}{base}"
    return line
