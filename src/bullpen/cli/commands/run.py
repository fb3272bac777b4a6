"""`bullpen run`: start an agent, and attach to it when there is a terminal."""

import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import click

from bullpen import paths
from bullpen.cli import output
from bullpen.cli.caller import caller, pod_in_effect
from bullpen.cli.commands.role import complete_roles
from bullpen.cli.connect import connect
from bullpen.errors import BullpenError


@click.command()
@click.option("--role", shell_complete=complete_roles, help="The role to start.")
@click.option("--name", help="Its name (default: the role's, or the program's).")
@click.option("--pod", help="The pod it belongs to (default: BULLPEN_POD).")
@click.option(
    "--override", "overrides", multiple=True, metavar="K=V", help="Change a field of the role."
)
@click.option("--detach", is_flag=True, help="Do not attach to it.")
@click.option("--prompt", default="", help="What it is to do first.")
@click.option("--resume", is_flag=True, help="Go on with its last conversation.")
@click.argument("words", nargs=-1)
@output.json_option
def command(
    role: str | None,
    name: str | None,
    pod: str | None,
    overrides: Sequence[str],
    detach: bool,
    prompt: str,
    resume: bool,
    words: Sequence[str],
    as_json: bool,
) -> None:
    """Start an agent.

    With --role the words after -- are added to its command line. Without a role they are the
    program to hold: bullpen run -- htop
    """
    if role is None and not words:
        raise BullpenError(
            "neither a role nor a program to run",
            hint="bullpen run --role ROLE · bullpen run -- PROGRAM",
        )
    asked = {
        **caller(),
        "run": uuid.uuid4().hex,
        "role": role,
        "name": name,
        "pod": pod_in_effect(pod),
        "words": list(words),
        "overrides": list(overrides),
        "prompt": prompt,
        "resume": resume,
    }
    agent = connect().post("agents", body=asked, again=True)
    if as_json:
        output.write_json(agent)
    elif detach or not (sys.stdin.isatty() and sys.stdout.isatty()):
        output.write(_started(agent))
        output.write(f"bullpen attach {agent['name']} · bullpen logs -f {agent['name']}")
    else:
        from bullpen.cli.commands import attach

        click.get_current_context().invoke(
            attach.command, name=agent["name"], read_only=False, wants_status=False
        )


def _started(agent: dict[str, object]) -> str:
    line = f"{agent['name']} started"
    place = agent.get("worktree")
    if isinstance(place, dict):
        path = output.printable(paths.shown(Path(str(place["path"]))))
        branch = agent.get("birth_branch")
        line += f" · worktree {path}" + (f" on branch {branch}" if branch else "")
    return line
