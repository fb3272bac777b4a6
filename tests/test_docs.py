"""What is written for users is true: commands, options, keys, routes and words exist as shown."""

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
from bullpen.hub.http import seats, tasks
from bullpen.model.agent_file import AgentFile, Claude
from bullpen.model.project import Project
from bullpen.model.task import STATES, Error, Offered

PROJECT = Path(__file__).parents[1]
TASKS = (PROJECT / "docs/tasks.md").read_text()
FILES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]


def shown_commands() -> list[str]:
    """What stands behind a prompt in a block, each of several on a line."""
    found = []
    for path in FILES:
        for line in re.findall(r"^\$ (.+)$", path.read_text(), re.MULTILINE):
            parts = re.split(r" (?:\||&&)|; ", line.partition("  #")[0])
            found += [part.strip() for part in parts if part.strip().startswith("bullpen ")]
    return found


@pytest.mark.parametrize("line", shown_commands())
def test_commands_that_are_shown_exist_with_their_options(line: str) -> None:
    words = shlex.split(line)[1:]
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words:
        found = command.get_command(context, words[0])
        if found is None and isinstance(command, FirstWord):
            command = command.otherwise
            break
        assert found is not None, f"no command {words[0]}"
        command, words = found, words[1:]
    known = {name for param in command.params for name in param.opts}
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert given <= known


def test_every_key_of_the_files_is_shown() -> None:
    blocks = re.findall(r"^```yaml\n(.+?)^```", TASKS, re.MULTILINE | re.DOTALL)
    agent, project = (YAML(typ="safe").load(block) for block in blocks)
    AgentFile.model_validate(agent)
    Project.model_validate(project)
    assert agent.keys() == AgentFile.model_fields.keys()
    assert agent["claude"].keys() == Claude.model_fields.keys()
    assert project.keys() | {"workdir"} == Project.model_fields.keys()


def test_every_field_state_and_failure_of_a_task_is_named() -> None:
    kinds = get_args(Error.model_fields["type"].annotation)
    for word in (*Offered.model_fields, *STATES, *kinds):
        assert f"`{word}`" in TASKS, word


def test_every_route_of_tasks_is_named_and_every_named_one_is_there() -> None:
    """The text names them once: on the hub they are there below an agent's name and without, but
    for those that it says are the hub's, or an agent's own."""
    named = set(re.findall(r"`([A-Z]+ /[^`]*)`", TASKS))
    of_the_hub = set(re.findall(r"\| `([A-Z]+ /[^`]*)` \| on the hub:", TASKS))
    [line] = [line for line in TASKS.splitlines() if line.endswith("| the agent itself |")]
    of_an_agent = {"POST /task", *re.findall(r"`([A-Z]+ /[^`]*)`", line)}
    both = named - of_the_hub - of_an_agent | {"GET /tasks"}
    expected = both | of_the_hub | {below(route) for route in both | of_an_agent}
    assert {name for router in (tasks.router, seats.router) for name in names(router)} == expected


def below(route: str) -> str:
    method, path = route.split()
    return f"{method} /agents/{{name}}{path}"


def names(router: APIRouter) -> set[str]:
    routes = [route for route in router.routes if isinstance(route, APIRoute)]
    return {f"{method} {route.path}" for route in routes for method in route.methods}
