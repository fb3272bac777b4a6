"""`--json`: every command has it as docs/json.md says."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from bullpen.cli.first_word import FirstWord
from bullpen.cli.main import cli
from bullpen.clock import OPAQUE_FIELDS, TIME_FIELDS
from tests.hub.pen import Pen, made_pen
from tests.hub.permissions.asking import Asking
from tests.hub.pods.support import write_role, write_template
from tests.hub.programs import SLEEP
from tests.worktrees.repos import make_repo

PAGE = (Path(__file__).parents[2] / "docs/json.md").read_text()
CODE = re.compile(r"`([^`]+)`")


def rows(title: str) -> Iterator[tuple[str, str]]:
    """The cells of the table below that heading."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and "---" not in line:
            yield cells[0], cells[1]


def names(cell: str) -> set[str]:
    """What stands in it as code, outside of brackets and before any condition."""
    return set(CODE.findall(re.sub(r"\([^)]*\)|;.*", "", cell)))


THINGS = {thing: names(fields) for thing, fields in rows("The things")}
PRINTED = {
    command: set().union(
        names(cell), *(THINGS[thing] for thing in THINGS if cell.startswith(thing))
    )
    for commands, cell in rows("What each command prints")
    for command in CODE.findall(commands)
}


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """All that take --json."""
    if isinstance(command, FirstWord):
        yield from commands(command.otherwise, path)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, (*path, name))
    elif any(param.name == "as_json" for param in command.params):
        yield " ".join(path)


def test_h6_every_command_with_json_is_written_down() -> None:
    assert set(PRINTED) == set(commands(cli))


def numbers_for_times(data: Any, path: str = "") -> Iterator[str]:
    if isinstance(data, list):
        for item in data:
            yield from numbers_for_times(item, path)
    elif isinstance(data, dict):
        for name, value in data.items():
            if name in TIME_FIELDS and isinstance(value, int | float) and value is not True:
                yield f"{path}.{name}"
            if name not in OPAQUE_FIELDS:
                yield from numbers_for_times(value, f"{path}.{name}")


# In this order; ID is the task's. What asks, or takes the hub away, comes last.
WALK = """
version; doctor; role list; role show plain; role init other; role check; validate --all
trust --yes; auth status; auth clear github-token; pod templates; pod launch team; pod list
run --role plain --name amy -d; list; tree; wait amy --timeout 1s; status; status amy
explain amy; peek amy; send-keys amy x
send amy hello; send --pod team hello; inbox amy; approvals; approve 1; usage; components; discover
agent start wes; agent list; task wes hello; tasks; history; history show ID; task show ID
task wait ID; task debug ID; agent stop wes; worktree create one; worktree list; worktree info one
worktree lock one; worktree unlock one; worktree conflicts; conflicts; diff one; land one
land --list; finish one --keep; worktree create two; worktree remove two
director init scheduler nightly; schedule add tidy @daily x; schedule list; schedule next
schedule remove tidy; director list
worktree restore; worktree cleanup; restart amy; stop amy; resume amy; rm amy; pod stop team
gc --dry-run; fleet status; fleet leave; fleet key h1 --dir ../keys
hub status; hub logs -n 1; hub restart; hub stop; hub start; shutdown --all --timeout 1s; kill --all
"""
# They need more than can be had here: other tests walk them.
ELSEWHERE = {
    *(
        "init",
        "answer",
        "deny",
        "auth set",
        "task cancel",
        "task continue",
        "task end",
        "task follow",
    ),
    "transcript",
    "events",
    "director task",  # tests/directors/test_manager.py
    *("director goal", "director goals"),  # tests/directors/test_director_command.py
    # tests/directors/test_up.py
    *("up", "down", "schedule run", "director start", "director restart", "director stop"),
    "director logs",  # the same as of the hub
    "fleet join",  # tests/fleet/machines.py
    # tests/web/test_web_command.py
    *("web start", "web status", "web stop", "web open"),
}


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as pen:
        yield pen


@pytest.mark.slow
def test_h6_every_command_prints_what_is_written_down(pen: Pen) -> None:
    repo = make_repo(pen.root.parent / "repo")
    write_role(pen, "plain", list(SLEEP))
    worker = [sys.executable, "-c", "print(input())"]
    write_role(pen, "worker", worker, "sandbox: {enabled: false}")
    write_template(pen, "team", "name: tim, role: plain")
    (pen.root / "agents" / "wes.yaml").write_text("role: worker\n")
    pen.start()
    asking, walked, id = Asking(pen), set(), ""
    try:
        for line in filter(None, re.split(r"[;\n]\s*", WALK)):
            words = [id if word == "ID" else word for word in line.split()]
            if words[0] == "approvals":
                asking.ask("echo hello")
            ran = pen.cli(*words, "--json", cwd=repo)
            name = next(
                " ".join(words[:size]) for size in (2, 1) if " ".join(words[:size]) in PRINTED
            )
            walked.add(name)
            assert ran.out.startswith("{"), (line, ran)
            assert not [*numbers_for_times(ran.json)], line
            if line not in ("status amy", "send --pod team hello"):
                assert PRINTED[name] <= set(ran.json), line
            id = ran.json.get("task_id", id)
    finally:
        for hook in asking.hooks:
            hook.kill()
    assert walked == set(PRINTED) - ELSEWHERE
