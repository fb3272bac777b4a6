"""Arguments that a tool does not take: each is refused with which one it is, what was given, and
what is allowed. Asked by the SDK's own client over an agent's relay."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hub.mcp.tools import session_of
from tests.hub.tree.support import Grove, made_grove

pytestmark = pytest.mark.slow

BAD: list[tuple[str, dict[str, Any], str]] = [
    ("spawn_subtre", {}, "no tool called spawn_subtre · did you mean spawn_subtree?"),
    (
        "spawn_subtree",
        {"task": "x"},
        "spawn_subtree needs branch_name (a text): A short name of the work, e.g. csv-export.",
    ),
    (
        "spawn_subtree",
        {"task": None, "branch_name": "x"},
        "spawn_subtree needs task (a text): Its whole first prompt: what to do, where, and when"
        " it is done.",
    ),
    (
        "spawn_subtree",
        {"task": 1, "branch_name": "x"},
        "spawn_subtree: task is 1, and has to be a text",
    ),
    (
        "spawn_subtree",
        {"task": "x", "branch_name": "x", "engine": "gpt"},
        'spawn_subtree: engine is "gpt", and has to be one of claude, gemini, codex, command',
    ),
    (
        "spawn_subtree",
        {"task": "x", "branch_name": "x", "where": "w" * 1001},
        f'spawn_subtree: where is "{"w" * 59}…, and has to be a text of 0 to 1000',
    ),
    (
        "spawn_subtree",
        {"task": "x", "branch_name": "x", "bogus": 1},
        "spawn_subtree has no argument bogus · it has task, branch_name, role, engine, where",
    ),
    (
        "spawn_subtree",
        {"task": "x", "branch": "x", "from": "root"},
        "spawn_subtree has no argument branch · did you mean branch_name?"
        " · it has task, branch_name, role, engine, where\n"
        "spawn_subtree has no argument from · it has task, branch_name, role, engine, where",
    ),
    (
        "spawn_workers",
        {"workers": []},
        "spawn_workers: workers is [], and has to be a list of 1 to 64, each an object"
        " {name, task, role?, engine?}",
    ),
    (
        "spawn_workers",
        {"workers": [{"name": "a", "task": "x"}, {"name": "b", "tasks": "x"}]},
        "spawn_workers: workers[1] needs task (a text): Its whole first prompt: what to do, where,"
        " and when it is done.\n"
        "spawn_workers: workers[1] has no key tasks · did you mean task?"
        " · it has name, task, role, engine",
    ),
    (
        "spawn_workers",
        {"workers": [3] * 7},
        "\n".join(
            f"spawn_workers: workers[{number}] is 3, and has to be an object"
            " {name, task, role?, engine?}"
            for number in range(5)
        )
        + "\nand 2 more",
    ),
    (
        "wait_for_event",
        {"timeout_seconds": 0},
        "wait_for_event: timeout_seconds is 0, and has to be a number, more than 0, at most 86400",
    ),
    (
        "wait_for_event",
        {"after": "last", "kinds": "message"},
        'wait_for_event: kinds is "message", and has to be a list of 0 to 20, each a text\n'
        'wait_for_event: after is "last", and has to be a whole number, at least 0',
    ),
    ("list_agents", {"all": True}, "list_agents has no argument all · it has none"),
    ("send_message", {"to": "root"}, "send_message needs text (a text)"),
]


@pytest.fixture
def grove() -> Iterator[Grove]:
    with made_grove() as made:
        made.run("lead")
        yield made


def test_m5_bad_arguments_are_refused_with_what_is_allowed(grove: Grove) -> None:
    async def story() -> None:
        async with session_of(grove, "lead") as lead:
            for tool, arguments, words in BAD:
                answer = await lead.call_tool(tool, arguments)
                assert (answer.is_error, answer.content[0].text) == (True, words)  # type: ignore[union-attr]

    asyncio.run(story())
    assert grove.names() == {"lead"}


def test_m5_null_is_left_out_and_what_an_engine_adds_is_its_own(grove: Grove) -> None:
    async def story() -> None:
        async with session_of(grove, "lead") as lead:
            subtree = {"task": "x", "branch_name": "csv", "engine": None, "where": None}
            worker = {"name": "w", "task": "x", "role": "coder", "engine": None}
            for tool, arguments in (
                ("spawn_subtree", {**subtree, "role": "coder", "wait_for_previous": True}),
                ("spawn_workers", {"workers": [worker, {**worker, "name": "v", "role": None}]}),
                ("wait_for_event", {"timeout_seconds": 0.01, "kinds": None, "after": None}),
                ("list_agents", {"wait_for_previous": False}),
            ):
                answer = await lead.call_tool(tool, arguments)
                assert not answer.is_error, answer.content

    asyncio.run(story())
    assert grove.names() == {"lead", "main.csv", "lead.w.w", "lead.w.v"}
