"""What is written for users is true: commands, options, keys, routes and words exist as shown."""

import ast
import re
import shlex
from pathlib import Path
from typing import get_args

import click
import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute
from ruamel.yaml import YAML

from bullpen.cli.first_word import FirstWord
from bullpen.cli.main import cli
from bullpen.component import answers
from bullpen.hub.http import task_agents, tasks
from bullpen.model.agent_file import AgentFile, TaskRunSettings
from bullpen.model.project import Project
from bullpen.model.task import STATES, Error, QueuedTaskRequest
from tests.pages import PAGES, PROJECT, Shown, shown_commands

TASKS = (PROJECT / "docs/tasks.md").read_text()
PACKAGE = PROJECT / "src" / "bullpen"
FOR_MAINTAINERS = [
    PROJECT / "CONTRIBUTING.md",
    *(PROJECT / "docs" / f"{name}.md" for name in ("architecture", "agents", "hub", "worktrees")),
]
# Who runs git beside `worktrees/git.py`: outside a sandbox none of them in a tree that an agent may
# have written.
OTHER_CALLERS_OF_GIT = {
    "cli/doctor/identity.py",  # who would commit, by the person's own configuration
    "cli/doctor/machine.py",  # the version
    "home/local_files.py",  # which files git knows, in the person's own checkout
    "home/create.py",  # where the new home lies
    "sandboxes/inside.py",  # in a sandbox, where an agent's files are looked at
    "hub/tasks/workspaces.py",  # clone and fetch, which may take long and be cancelled
}


COMMANDS = {path: shown_commands(path.read_text()) for path in PAGES}


def bullpen_commands() -> list[str]:
    """Each of several on a line."""
    commands = []
    for shown in [shown for page in PAGES for shown in COMMANDS[page]]:
        parts = re.split(r" (?:\||&&)|; ", shown.line.partition("  #")[0])
        commands += [part.strip() for part in parts if part.strip().startswith("bullpen ")]
    return commands


@pytest.mark.parametrize("line", bullpen_commands())
def test_commands_that_are_shown_exist_with_their_options(line: str) -> None:
    words = shlex.split(line)[1:]
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words:
        inner = command.get_command(context, words[0])
        if inner is None and isinstance(command, FirstWord):
            command = command.otherwise
            break
        if inner is None and words[0].startswith("-"):
            break  # an option of the group itself
        assert inner is not None, f"no command {words[0]}"
        command, words = inner, words[1:]
    known = {name for param in command.params for name in param.opts}
    given = {word.partition("=")[0] for word in words if word.startswith("--") and word != "--"}
    assert given <= known


def test_few_commands_are_not_run_and_each_says_why() -> None:
    """All others are run, by tests/test_pages.py; those of several machines by a test that has
    several."""
    unrun = [shown for page in PAGES for shown in COMMANDS[page] if shown.not_run]
    left = [shown for shown in unrun if "tests/fleet/test_page.py runs it" not in shown.not_run]
    assert {shown.line.partition("  ")[0] for shown in left} == {
        "scripts/page",
        "pipx install .",
        "bullpen doctor",
        "bullpen auth claude",
        "bullpen auth set github-token < FILE",
        "bullpen director start robo",
        "bullpen director start robo --dry-run",
    }
    assert all(len(shown.not_run) > 10 for shown in left)


def test_every_prompt_of_a_page_is_found() -> None:
    lines = sum(len(re.findall(r"^\$ ", page.read_text(), re.MULTILINE)) for page in PAGES)
    assert lines == sum(map(len, COMMANDS.values()))


PAGE = """
```
$ bullpen one \\
    --two
out
$ bullpen three
error: no
hint:  yes
```
<!-- not run: needs a moon -->
```
$ bullpen four
```
"""


def test_errors_long_lines_and_marks_of_a_page_are_read() -> None:
    assert shown_commands(PAGE) == [
        Shown("bullpen one      --two"),
        Shown("bullpen three", "error: no"),
        Shown("bullpen four", "", "needs a moon"),
    ]


def test_every_key_of_the_files_is_shown() -> None:
    blocks = re.findall(r"^```yaml\n(.+?)^```", TASKS, re.MULTILINE | re.DOTALL)
    agent, project = (YAML(typ="safe").load(block) for block in blocks)
    AgentFile.model_validate(agent)
    Project.model_validate(project)
    assert agent.keys() == AgentFile.model_fields.keys()
    assert agent["claude"].keys() == TaskRunSettings.model_fields.keys()
    assert project.keys() | {"workdir"} == Project.model_fields.keys()


def test_every_field_state_and_failure_of_a_task_is_named() -> None:
    kinds = get_args(Error.model_fields["type"].annotation)
    for word in (*QueuedTaskRequest.model_fields, *STATES, *kinds):
        assert f"`{word}`" in TASKS, word


def test_t9_every_error_of_the_api_is_in_the_table_with_its_status() -> None:
    rows = re.findall(r"^\| (4\d\d|5\d\d|408, 504) \| (.+) \|$", TASKS, re.MULTILINE)
    named = {name: statuses for statuses, text in rows for name in re.findall(r"`(\w+)`", text)}
    statuses = {name: status for status, name in answers.ANSWERS.values()} | answers.STATUS
    statuses |= {name: status for status, name in answers.NAMES.items()}
    for name, status in statuses.items():
        assert str(status) in named.get(name, ""), name
    assert set(named) >= answers.RETRYABLE_ERRORS


def test_every_route_of_tasks_is_named_and_every_named_one_is_there() -> None:
    """The text names them once: on the hub they are there below an agent's name and without, but
    for those that it says are the hub's, or an agent's own."""
    named = set(re.findall(r"`([A-Z]+ /[^`]*)`", TASKS))
    of_the_hub = set(re.findall(r"\| `([A-Z]+ /[^`]*)` \| on the hub:", TASKS))
    [line] = [line for line in TASKS.splitlines() if line.endswith("| the agent itself |")]
    of_an_agent = {"POST /task", *re.findall(r"`([A-Z]+ /[^`]*)`", line)}
    both = named - of_the_hub - of_an_agent | {"GET /tasks"}
    expected = both | of_the_hub | {below(route) for route in both | of_an_agent}
    assert {
        name for router in (tasks.router, task_agents.router) for name in names(router)
    } == expected


def below(route: str) -> str:
    method, path = route.split()
    return f"{method} /agents/{{name}}{path}"


def names(router: APIRouter) -> set[str]:
    routes = [each for each in router.routes if isinstance(each, APIRoute)]
    shown = [route for route in routes if route.include_in_schema]
    return {f"{method} {route.path}" for route in shown for method in route.methods}


@pytest.mark.parametrize("document", FOR_MAINTAINERS, ids=lambda path: path.name)
def test_every_path_that_maintainers_are_sent_to_exists(document: Path) -> None:
    roots = (PROJECT, PACKAGE)
    first_parts = {path.name for root in roots for path in root.iterdir() if path.is_dir()}
    words = re.findall(r"`([\w./-]+)`", document.read_text())
    paths = [
        word
        for word in words
        if word.endswith(".py") or ("/" in word and word.partition("/")[0] in first_parts)
    ]
    assert len(paths) > 10
    assert [path for path in paths if not any((root / path).exists() for root in roots)] == []


def test_every_threat_is_tested_where_the_security_page_says() -> None:
    text = (PROJECT / "docs" / "security.md").read_text()
    rows = [row for row in text.split("## Threats")[1].splitlines() if row.startswith("| ")][1:]
    tests = [re.findall(r"`(tests/[\w/]+\.py)`", row.split(" | ")[1]) for row in rows]
    assert [row for row, named in zip(rows, tests, strict=True) if not named] == []
    assert [path for named in tests for path in named if not (PROJECT / path).exists()] == []


def test_the_map_of_the_code_names_every_room() -> None:
    text = (PROJECT / "docs" / "architecture.md").read_text()
    code_map = text.split("```")[1]
    rooms = [path.parent for path in PACKAGE.glob("*/__init__.py")]
    rooms += [path.parent for path in PACKAGE.glob("hub/*/__init__.py")]
    assert [room.name for room in rooms if f" {room.name}/" not in code_map] == []


@pytest.mark.parametrize(
    "package",
    sorted(path.parent for path in PACKAGE.rglob("__init__.py")),
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_every_package_says_in_a_few_lines_what_it_is_for(package: Path) -> None:
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    assert text is not None
    assert len([line for line in text.splitlines() if line]) <= 5


def test_git_is_called_in_one_module_and_a_few_known_ones() -> None:
    callers = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"""(?<!\.get)[\[(]\s*["']git["'],""", path.read_text())
    }
    assert callers == {"worktrees/git.py", *OTHER_CALLERS_OF_GIT}
