"""`bullpen validate`: check the files that people write for a home, wherever they lie."""

from pathlib import Path

import click

from bullpen import agent_files, marker, pods, projects, roles
from bullpen.cli import output
from bullpen.cli.checked import Checked, report
from bullpen.named_files import files_in
from bullpen.paths import Home, current_home
from bullpen.settings import check_settings
from bullpen.yamlfile import Document, Problem, read

ROLE_SIGNS = {"instructions", "permissions", "agent_type", "system_prompt", "description"}
CONFIG_SIGNS = {"worktrees", "discovery", "notifications", "fleet", "log_level", "detach_key"}
AGENT_SIGNS = {"port", "claude", "session_dir", "keep_open", "autostart", "open_timeout"}
UNKNOWN = (
    "neither a config.yaml nor a role, a pod template, an agent or a project"
    " · roles have `name`, templates `pod_name` and `agents`, agents `role`, projects `prompt`"
)


@click.command()
@click.argument(
    "files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path, readable=False)
)
@click.option("--all", "everything", is_flag=True, help="Every such file of the home.")
@output.json_option
def command(files: tuple[Path, ...], everything: bool, as_json: bool) -> None:
    """Check files of roles, pod templates, agents and projects, and config.yaml.

    Exit code 1 if anything is wrong.
    """
    if everything == bool(files):
        raise click.UsageError("give files, or --all")
    found = _check_home(current_home()) if everything else [_check_file(path) for path in files]
    report(found, "file", as_json)


def kind_of(document: Document) -> str:
    """`config`, `role`, `template`, `agent`, `project`, or nothing: by place first, then by what
    is in it."""
    path, data = document.path.absolute(), document.data
    keys = {key for key in data if isinstance(key, str)} if isinstance(data, dict) else set()
    return _by_place(path) or _by_keys(keys) or _by_directory(path)


def _by_place(path: Path) -> str:
    kind = _by_directory(path)
    if kind and marker.is_home(path.parent.parent):
        return kind
    if path.name == "config.yaml":
        return "config"
    if path.name == "role.yaml" or path.parent.name == "roles":
        return "role"
    return "template" if path.parent.name == "templates" else ""


def _by_keys(keys: set[str]) -> str:
    if keys & {"agents", "pod_name"}:
        return "template"
    if "role" in keys and keys & AGENT_SIGNS:
        return "agent"
    if keys & CONFIG_SIGNS:
        return "config"
    if "name" in keys and keys & ROLE_SIGNS:
        return "role"
    return "project" if {"name", "prompt"} <= keys else ""


def _by_directory(path: Path) -> str:
    # Outside of a home these are names that people give to directories of any kind.
    return {"agents": "agent", "projects": "project"}.get(path.parent.name, "")


def _check_home(home: Home) -> list[Checked]:
    files = roles.list_roles(home.roles, home.pod_roles)
    known = {file.name for file in files}
    problems = {}
    if home.config_file.exists():
        problems[home.config_file] = check_settings(read(home.config_file))[1]
    for file in files:
        problems[file.path] = roles.check_role(file, known)[1]
    for path in pods.list_templates(home.pod_templates):
        problems[path] = pods.check_template(read(path), known)[1]
    for path in files_in(home.agents):
        problems[path] = agent_files.check_agent_document(read(path), home)[1]
    for path in files_in(home.projects):
        problems[path] = projects.check_project_document(read(path))[1]
    return [Checked(path, str(path.relative_to(home.root)), problems[path]) for path in problems]


def _check_file(path: Path) -> Checked:
    document = read(path)
    place = path.absolute()
    match kind_of(document):
        case "config":
            problems = check_settings(document)[1]
        case "role":
            name = place.parent.name if path.name == "role.yaml" else path.stem
            problems = roles.check_role_document(document, name)[1]
        case "template":
            problems = pods.check_template(document, _roles_beside(place))[1]
        case "agent":
            problems = agent_files.check_agent_document(document, _home_of(place))[1]
        case "project":
            problems = projects.check_project_document(document)[1]
        case _:
            problems = [*document.problems] or [Problem(path, 1, "", UNKNOWN)]
    return Checked(path, str(path), problems)


def _home_of(agent_file: Path) -> Home | None:
    root = agent_file.parent.parent
    return Home(root) if agent_file.parent.name == "agents" and marker.is_home(root) else None


def _roles_beside(template: Path) -> set[str] | None:
    """Names of the roles in the home that holds the template; None outside of one."""
    pods_directory = template.parent.parent
    if (pods_directory.name, template.parent.name) != ("pods", "templates"):
        return None
    found = roles.list_roles(pods_directory.parent / "roles", pods_directory / "roles")
    return {file.name for file in found}
