"""`bullpen pod`: start, list, stop and attach to pods; look at their templates."""

import time
from typing import TYPE_CHECKING

import click

from bullpen.cli import output
from bullpen.cli.connect import connect, connect_for
from bullpen.cli.elsewhere import name_here
from bullpen.cli.ending import shown_endings
from bullpen.cli.help_text import Group
from bullpen.cli.many_agents import stopped_word
from bullpen.cli.own_pod import pod_in_effect
from bullpen.cli.tasks.wait import say
from bullpen.client import pods
from bullpen.client.failures import error_of
from bullpen.client.shell import this_shell
from bullpen.errors import BullpenError
from bullpen.home.paths import current_home
from bullpen.model.pod_step import PodStep

if TYPE_CHECKING:
    from bullpen.model.pod import Member


@click.group(cls=Group)
def command() -> None:
    """Start, list, stop and attach to pods; look at their templates."""


def complete_templates(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of templates for the shell; nothing if there is no home."""
    from bullpen.home.pods import list_templates

    try:
        files = list_templates(current_home().pod_templates)
    except (BullpenError, OSError):
        return []
    return [file.stem for file in files if file.stem.startswith(incomplete)]


@command.command()
@click.argument("template", shell_complete=complete_templates)
@click.option("--pod", help="The pod's name (default: BULLPEN_POD, else the template's).")
@click.option(
    "--session", metavar="ID", help="Their branches are called <branch_prefix>/<role>-ID."
)
@click.option("--prompt", default="", help="What its agents are to do first.")
@output.json_option
def launch(template: str, pod: str | None, session: str | None, prompt: str, as_json: bool) -> None:
    """Start all agents of a template, or none."""
    shell = this_shell()
    call = pods.start_pod(shell, template, pod=pod_in_effect(pod), session=session, prompt=prompt)
    steps: list[PodStep] = []
    try:
        for step in connect().stream(call):
            steps.append(step)
            if not as_json:
                _show(step)
    except KeyboardInterrupt:
        output.show_progress("")
        say("it goes on without you · bullpen pod list · bullpen pod stop POD")
        raise
    if steps[-1].error is not None:
        raise error_of(steps[-1].error)
    if as_json:
        output.write_json({"steps": [step.to_json() for step in steps]})


def _show(step: PodStep) -> None:
    members = " ".join(step.members or ())
    output.show_progress("")
    match step.step:
        case "making":
            output.show_progress(f"{'worktrees':<10}  {members} …")
        case "stopping":
            output.show_progress("being stopped …")
        case "worktrees" | "started" as what:
            output.write(f"{what:<10}  {members}   {step.seconds or 0.0:.1f} s")
        case "running" if step.members:
            order = ", then ".join(step.members)
            output.write(f"pod {step.pod} is running: {order}")
            output.write("bullpen tasks · the result comes to bullpen inbox")
            if step.lands_in:
                target = output.printable(step.lands_in)
                output.write(f"at its end you are asked whether it lands in {target}")
        case "running":
            output.write(f"pod {step.pod} is running · bullpen pod attach {step.pod}")


@command.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="At once, without grace.")
@output.json_option
def stop(name: str, force: bool, as_json: bool) -> None:
    """End all agents of a pod. Their worktrees, branches and sessions stay."""
    grace, began = 0 if force else None, time.time()
    hub, pod = connect_for(name)
    with shown_endings(hub.home):
        agents = hub.do(pods.stop_pod(pod, grace))
    if as_json:
        output.write_json({"agents": agents})
        return
    for agent in agents:
        what = stopped_word(agent, began)
        output.write(f"{hub.named(agent.name)} {what} · {output.printable(agent.words)}")
    if not agents:
        output.write(f"pod {name} was being started, and is not any more")


@command.command()
@click.argument("name")
def attach(name: str) -> None:
    """Attach to all agents of a pod, side by side in tmux; new ones appear as they start."""
    name = name_here(name)
    from bullpen.cli import tmux_panes

    tmux_panes.show(connect(), name, tmux_panes.of_pod(name), ["pod", "follow", name])


@command.command(hidden=True)
@click.option("--tree", is_flag=True)
@click.argument("name")
@click.argument("mark")
@click.argument("shown", nargs=-1)
def follow(name: str, tree: bool, mark: str, shown: tuple[str, ...]) -> None:
    """Add panes for agents of a pod that start; runs beside the window."""
    from bullpen.cli import tmux_panes

    choose = tmux_panes.of_tree(name) if tree else tmux_panes.of_pod(name)
    tmux_panes.follow(current_home(), choose, mark, set(shown))


@command.command("list")
@output.json_option
def list_pods(as_json: bool) -> None:
    """List pods and their agents."""
    listed = connect().do(pods.list_pods())
    if as_json:
        output.write_json({"pods": listed})
    elif not listed:
        output.write("no pods · bullpen pod templates, then bullpen pod launch TEMPLATE")
    else:
        rows = [
            (
                pod.pod,
                f"{sum(agent.running for agent in pod.agents)} of {len(pod.agents)}",
                ", ".join(agent.name for agent in pod.agents),
            )
            for pod in listed
        ]
        output.write_table(["POD", "RUNNING", "AGENTS"], rows)


@command.command()
@output.json_option
def templates(as_json: bool) -> None:
    """List the templates: what they start, and how their agents follow each other."""
    from bullpen.home import pods as templates_of
    from bullpen.home import yamlfile

    files = [
        (path, templates_of.check_template(yamlfile.read(path))[0])
        for path in templates_of.list_templates(current_home().pod_templates)
    ]
    if as_json:
        output.write_json(
            {
                "templates": [
                    {
                        "name": path.stem,
                        "file": str(path),
                        "broken": template is None,
                        "template": template and template.model_dump(mode="json"),
                        "members": template and [member.name for member in template.members()],
                    }
                    for path, template in files
                ]
            }
        )
    elif not files:
        output.write("no pod templates")
    else:
        rows = [
            (path.stem, template.pod_name, template.workflow, _members(template.members()))
            if template
            else (path.stem, "", "", f"broken · bullpen validate {path}")
            for path, template in files
        ]
        output.write_table(
            ["TEMPLATE", "POD", "WORKFLOW", "AGENTS"], rows, drop=("POD", "WORKFLOW")
        )


def _members(members: list["Member"]) -> str:
    return ", ".join(
        member.name if member.name == member.role else f"{member.name} ({member.role})"
        for member in members
    )
