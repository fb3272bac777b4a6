"""`bullpen pod`: look at pod templates."""

from typing import TYPE_CHECKING

import click

from bullpen.cli import output
from bullpen.paths import current_home

if TYPE_CHECKING:
    from bullpen.model.pod import Member


@click.group()
def command() -> None:
    """Look at pod templates."""


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
