"""`bullpen pod`: start, list, stop and attach to pods; look at their templates."""

import uuid
from typing import TYPE_CHECKING, Any

import click

from bullpen.cli import output
from bullpen.cli.caller import caller, pod_in_effect
from bullpen.cli.connect import connect
from bullpen.client.hub import raised
from bullpen.paths import current_home

if TYPE_CHECKING:
    from bullpen.model.pod import Member


@click.group()
def command() -> None:
    """Start, list, stop and attach to pods; look at their templates."""


@command.command()
@click.argument("template")
@click.option("--pod", help="The pod's name (default: BULLPEN_POD, else the template's).")
@click.option("--prompt", default="", help="What its agents are to do first.")
@output.json_option
def launch(template: str, pod: str | None, prompt: str, as_json: bool) -> None:
    """Start all agents of a template, or none."""
    asked = {
        **caller(),
        "template": template,
        "run": uuid.uuid4().hex,
        "pod": pod_in_effect(pod),
        "prompt": prompt,
    }
    steps = []
    try:
        for step in connect().stream("pods", body=asked, again=True):
            steps.append(step)
            if not as_json:
                _show(step)
    except KeyboardInterrupt:
        output.show_progress("")
        output.write_error("it goes on without you", "bullpen pod list · bullpen pod stop POD")
        raise
    if "error" in steps[-1]:
        raise raised(steps[-1]["error"])
    if as_json:
        output.write_json(steps)


def _show(step: dict[str, Any]) -> None:
    members = " ".join(step.get("members", []))
    output.show_progress("")
    match step.get("step"):
        case "making":
            output.show_progress(f"{'worktrees':<10}  {members} …")
        case "stopping":
            output.show_progress("being stopped …")
        case "worktrees" | "started" as what:
            output.write(f"{what:<10}  {members}   {step['seconds']:.1f} s")
        case "running":
            pod = step["pod"]
            output.write(f"pod {pod} is running · bullpen pod attach {pod}")


@command.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="At once, without grace.")
@output.json_option
def stop(name: str, force: bool, as_json: bool) -> None:
    """End all agents of a pod. Their worktrees, branches and sessions stay."""
    grace = 0 if force else None
    agents = connect().delete("pods", name, grace=grace)
    if as_json:
        output.write_json(agents)
        return
    for agent in agents:
        output.write(f"{agent['name']} stopped · {output.printable(agent['words'])}")
    if not agents:
        output.write(f"pod {name} was being started, and is not any more")


@command.command()
@click.argument("name")
def attach(name: str) -> None:
    """Attach to all agents of a pod, side by side in tmux; new ones appear as they start."""
    from bullpen.cli import panes

    panes.show(connect(), name, panes.of_pod(name), ["pod", "follow", name])


@command.command(hidden=True)
@click.option("--tree", is_flag=True)
@click.argument("name")
@click.argument("mark")
@click.argument("shown", nargs=-1)
def follow(name: str, tree: bool, mark: str, shown: tuple[str, ...]) -> None:
    """Add panes for agents of a pod that start; runs beside the window."""
    from bullpen.cli import panes

    choose = panes.of_tree(name) if tree else panes.of_pod(name)
    panes.follow(current_home(), choose, mark, set(shown))


@command.command("list")
@output.json_option
def list_pods(as_json: bool) -> None:
    """List pods and their agents."""
    found = connect().get("pods")
    if as_json:
        output.write_json(found)
    elif not found:
        output.write("no pods · bullpen pod templates, then bullpen pod launch TEMPLATE")
    else:
        rows = [
            (
                entry["pod"],
                f"{sum(agent['running'] for agent in entry['agents'])} of {len(entry['agents'])}",
                ", ".join(agent["name"] for agent in entry["agents"]),
            )
            for entry in found
        ]
        output.write_table(["POD", "RUNNING", "AGENTS"], rows)


@command.command()
@output.json_option
def templates(as_json: bool) -> None:
    """List the templates: what they start, and how their agents follow each other."""
    from bullpen import pods, yamlfile

    found = [
        (path, pods.check_template(yamlfile.read(path))[0])
        for path in pods.list_templates(current_home().pod_templates)
    ]
    if as_json:
        output.write_json(
            [
                {
                    "name": path.stem,
                    "file": str(path),
                    "broken": template is None,
                    "template": template and template.model_dump(mode="json"),
                    "members": template and [member.name for member in template.members()],
                }
                for path, template in found
            ]
        )
    elif not found:
        output.write("no pod templates")
    else:
        rows = [
            (path.stem, template.pod_name, template.workflow, _members(template.members()))
            if template
            else (path.stem, "", "", f"broken · bullpen validate {path}")
            for path, template in found
        ]
        output.write_table(["TEMPLATE", "POD", "WORKFLOW", "AGENTS"], rows)


def _members(members: list["Member"]) -> str:
    return ", ".join(
        member.name if member.name == member.role else f"{member.name} ({member.role})"
        for member in members
    )
