"""`bullpen validate`: check the files that people write for a home, wherever they lie."""

import contextlib
import sys
from pathlib import Path

import click

from bullpen.cli import output
from bullpen.cli.check_report import CheckedFile, report
from bullpen.errors import BullpenError
from bullpen.home import agent_files, marker, pods, projects, roles
from bullpen.home.named_files import files_in
from bullpen.home.paths import Home, current_home
from bullpen.home.settings import check_settings, find_unused
from bullpen.home.yamlfile import Document, FileProblem, read

ROLE_SIGNS = {"instructions", "permissions", "agent_type", "system_prompt", "description"}
CONFIG_SIGNS = {"worktrees", "discovery", "workdirs", "log_level", "detach_key", "stop_grace"}
DIRECTOR_SIGNS = {"schedule", "autostart", "repo", "poll_interval"}
AGENT_SIGNS = {"port", "claude", "session_dir", "keep_open", "autostart", "open_timeout"}
UNKNOWN = (
    "neither a config.yaml nor a role, a pod template, an agent or a project"
    " · roles have `name`, templates `pod_name` and `agents`, agents `role`, projects `prompt`,"
    " directors `type`"
)


@click.command()
@click.argument(
    "files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path, readable=False)
)
@click.option(
    "--all", "everything", is_flag=True, help="Every such file of the home; so without FILE."
)
@output.json_option
def command(files: tuple[Path, ...], everything: bool, as_json: bool) -> None:
    """Check files of roles, pod templates, agents, projects and directors, config.yaml, web's.

    Exit code 1 if anything is wrong.
    """
    if everything and files:
        raise click.UsageError("--all goes without FILE")
    results = [_check_file(_find(path)) for path in files] or _check_home(current_home())
    for result in results:
        _tell_unused(result.path)
    report(results, "file", as_json)


def _find(path: Path) -> Path:
    """The file, as seen from here; else in the home, as `validate` itself names it."""
    if path.is_absolute() or path.exists():
        return path
    with contextlib.suppress(BullpenError):
        in_home = current_home().root / path
        return in_home if in_home.exists() else path
    return path


def _tell_unused(path: Path) -> None:
    """Settings that are no error and do nothing."""
    document = read(path)
    if kind_of(document) == "config" and (unused := find_unused(document)):
        keys = ", ".join(unused)
        sys.stderr.write(f"{output.printable(str(path))}: {keys}: not used by this version\n")


def kind_of(document: Document) -> str:
    """`config`, `role`, `template`, `agent`, `project`, `director`, `web`, or nothing: by place
    first, then by what is in it."""
    path, data = document.path.absolute(), document.data
    keys = {key for key in data if isinstance(key, str)} if isinstance(data, dict) else set()
    return _by_place(path) or _by_keys(keys) or _by_directory(path)


def _by_place(path: Path) -> str:
    kind = _by_directory(path)
    if kind and marker.is_home(path.parent.parent):
        return kind
    if (path.parent.name, path.name) == ("web", "config.yaml"):
        return "web"
    if path.name == "config.yaml":
        return "config"
    if path.name == "role.yaml" or path.parent.name == "roles":
        return "role"
    return "template" if path.parent.name == "templates" else ""


def _by_keys(keys: set[str]) -> str:
    if keys & {"agents", "pod_name"}:
        return "template"
    if "type" in keys and keys & DIRECTOR_SIGNS:
        return "director"
    if "role" in keys and keys & AGENT_SIGNS:
        return "agent"
    if keys & CONFIG_SIGNS:
        return "config"
    if "name" in keys and keys & ROLE_SIGNS:
        return "role"
    return "project" if {"name", "prompt"} <= keys else ""


def _by_directory(path: Path) -> str:
    # Outside of a home these are names that people give to directories of any kind.
    kinds = {"agents": "agent", "projects": "project", "directors": "director"}
    return kinds.get(path.parent.name, "")


def _check_home(home: Home) -> list[CheckedFile]:
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
    for path in files_in(home.directors):
        problems[path] = _check_director(read(path), home)
    if (web := home.root / "web" / "config.yaml").exists():
        problems[web] = _check_web(read(web))
    return [
        CheckedFile(path, str(path.relative_to(home.root)), problems[path]) for path in problems
    ]


def _check_file(path: Path) -> CheckedFile:
    document = read(path)
    absolute = path.absolute()
    match kind_of(document):
        case "config":
            problems = check_settings(document)[1]
        case "role":
            name = absolute.parent.name if path.name == "role.yaml" else path.stem
            problems = roles.check_role_document(document, name)[1]
        case "template":
            problems = pods.check_template(document, _roles_beside(absolute))[1]
        case "agent":
            problems = agent_files.check_agent_document(document, _home_of(absolute))[1]
        case "project":
            problems = projects.check_project_document(document)[1]
        case "director":
            problems = _check_director(document, _home_of(absolute))
        case "web":
            problems = _check_web(document)
        case _:
            problems = [*document.problems] or [FileProblem(path, 1, "", UNKNOWN)]
    return CheckedFile(path, str(path), problems)


def _check_director(document: Document, home: Home | None) -> list[FileProblem]:
    from bullpen.directors.config import check_director_document

    return check_director_document(document, home)[1]


def _check_web(document: Document) -> list[FileProblem]:
    from bullpen.web.config import check_web_document

    return check_web_document(document)[1]


def _home_of(file: Path) -> Home | None:
    """The home that an agent's or a director's file lies in."""
    root = file.parent.parent
    is_inside = file.parent.name in ("agents", "directors")
    return Home(root) if is_inside and marker.is_home(root) else None


def _roles_beside(template: Path) -> set[str] | None:
    """Names of the roles in the home that holds the template; None outside of one."""
    pods_directory = template.parent.parent
    if (pods_directory.name, template.parent.name) != ("pods", "templates"):
        return None
    files = roles.list_roles(pods_directory.parent / "roles", pods_directory / "roles")
    return {file.name for file in files}
