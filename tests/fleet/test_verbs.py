"""Every command with `HOST/AGENT`: it works as at home, or says where it works, and with which
command."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bullpen.cli.main import SHOWN, cli
from tests.fleet.machines import Machines, made_machines
from tests.hub.permissions.asking import Asking
from tests.hub.tasks.desk import Desk, made_desk
from tests.hub.tree.support import PROGRAM
from tests.waiting import wait_until
from tests.worktrees.repos import commit, make_repo

# In this order, with what they print: amy works in a terminal of h2, tim takes tasks there, and
# TASK is one of his; #1 is amy's question, #2 and #3 are permissions that she waits for.
WORKS = {
    "status h2/amy": r"agent +amy",
    "explain h2/amy": r"blocked \(question",
    "peek h2/amy": "",
    "send-keys h2/amy x Enter": "",
    "send h2/amy hello": "queued: on its way to h2",
    "inbox h2/amy": "hello",
    "events h2/amy": "nothing was reported",
    "wait h2/tim": r"h2/tim +idle",
    "approvals --host h2": r" h2/1 +h2/amy .*bullpen answer h2/1 ANSWER",
    "approvals h2/2": r"^h2/2 +h2/amy",
    "answer h2/amy heron": "h2/amy has your answer",
    "approve h2/2": "h2/amy goes on",
    "deny h2/amy": "h2/amy was refused",
    "transcript h2/tim": "› You work on one task",
    "transcript TASK": "› You work on one task",
    "tasks h2/tim": 'no open tasks of h2/tim · bullpen task h2/tim "…"',
    "history h2/tim": "completed",
    "history show TASK": r"task +h2/t-.*agent +h2/tim",
    "task h2/tim [[say_again]]": "again.*task h2/t-.* · bullpen task show h2/t-",
    "task show TASK": r"task +h2/t-.*agent +h2/tim",
    "task wait TASK": "task h2/t-.* completed",
    "task follow TASK": "task h2/t-.* completed",
    "task debug TASK": "stdout|it has written nothing",
    "diff h2/amy": r"committed.*\+text.*1 commit, nothing uncommitted · no conflict with main",
    "diff --stat h2/amy": r" a.txt \| 1 \+",
    "diff --json h2/amy": r'"commits":.*Add a.txt.*"conflicts": {}',
    "restart h2/amy": "h2/amy started again",
    "stop --tree h2/amy": "h2/amy stopped",
    "resume h2/amy": "h2/amy resumed",
    "kill h2/amy": "h2/amy killed",
    "stop h2/amy": "h2/amy had ended before",
    "rm h2/amy": "h2/amy removed.*kept branch amy: 1 commit nowhere else · on h2: git merge amy",
}
# What is refused, and what is said to do instead.
REFUSED = {
    "attach h2/amy": "bullpen peek h2/amy prints its screen · on h2: bullpen logs -f amy",
    "attach --tree h2/amy": "alone: bullpen attach h2/amy · on h2: bullpen attach --tree amy",
    "logs -f h2/amy": "its screen: bullpen peek h2/amy · on h2: bullpen logs -f amy",
    "record h2/amy": "on h2: bullpen record amy",
    "diff --against main h2/amy": "on h2: bullpen diff --against main amy",
    "land h2/amy": "on h2: bullpen land amy",
    "land --cancel h2/amy": "on h2: bullpen land --cancel amy",
    "finish h2/amy --land": "on h2: bullpen finish amy --land",
    "worktree conflicts h2/amy": "on h2: bullpen worktree conflicts amy",
    "worktree info h2/amy": "on h2: bullpen worktree info amy",
    "worktree lock h2/amy": "on h2: bullpen worktree lock amy",
    "worktree remove h2/amy": "on h2: bullpen worktree remove amy",
    "worktree restore h2/amy": "on h2: bullpen worktree restore amy",
    "worktree unlock h2/amy": "on h2: bullpen worktree unlock amy",
    "agent start h2/tim": "on h2: bullpen agent start tim",
    "agent stop h2/tim": "on h2: bullpen agent stop tim",
    "up h2/tim": "on h2: bullpen up tim",
    "down h2/tim": "on h2: bullpen down tim",
    "pod attach h2/team": "on h2: bullpen pod attach team",
    "pod stop h2/team": "on h2: bullpen pod list",
    "run --name h2/zed -- cat": "--host h2 --name zed",
    "wait h2/amy loc": "a bullpen wait for each machine",
    "approve h2/1 2": "name those of one at a time",
    # An error of the other machine says where its hint counts, one of this machine does not.
    "transcript h2/amy": "on h2: bullpen logs amy",
    "task cancel TASK": "is over",
    "task continue TASK more": "is over",
    "task end TASK": "is over",
    "status h2/nobody": "on h2: bullpen list",
    "task h2/nobody x": "on h2: bullpen list",
    "status h3/amy": "hint:  bullpen fleet status",
}
NAMELESS = {
    *("init", "doctor", "auth", "trust", "version", "completion", "help", "role", "validate"),
    *("list", "tree", "gc", "components", "discover", "shutdown", "hub", "fleet", "director"),
    *("schedule", "web", "usage", "reset", "conflicts"),
    *("pod follow", "pod launch", "pod list", "pod templates", "agent list"),
    *("worktree cleanup", "worktree create", "worktree list"),
}


def all_commands(group: click.Group, above: str = "") -> Iterator[str]:
    """Every command with the words that lead to it."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        words = f"{above} {name}".strip()
        if words in NAMELESS:
            continue
        is_group = isinstance(command, click.Group)
        if not is_group or hasattr(command, "otherwise"):
            yield words
        if is_group:
            yield from all_commands(command, words)


def test_l2_the_table_has_every_command_that_takes_an_agents_name() -> None:
    rows = [*WORKS, *REFUSED]
    missing = [
        words for words in all_commands(cli) if not any(row.startswith(f"{words} ") for row in rows)
    ]
    assert set(SHOWN) and missing == []


@pytest.fixture
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machines, Desk]]:
    with (
        made_desk(tmp_path_factory.mktemp("desk")) as desk,
        made_machines("h1", h2=desk.pen) as made,
    ):
        yield made, desk


@pytest.mark.slow
def test_l2_every_command_works_for_an_agent_elsewhere_or_says_where_it_does(
    machines: tuple[Machines, Desk],
) -> None:
    made, desk = machines
    h1, h2 = made.hosts["h1"], made.hosts["h2"]
    h2.role("coder", **PROGRAM, worktree={"enabled": True})
    repo = make_repo(h2.root.parent / "shop")
    started = h1.cli("run", "--host", "h2", "--role", "coder", "--name", "amy", "--dir", repo)
    assert "h2/amy started" in started.out and "bullpen attach h2/amy" in started.out, started
    commit(Path(h2.agents()["amy"]["worktree"]["path"]), "a.txt")
    desk.agent("tim", walls=False)
    task = h1.cli("task", "h2/tim", "[[say done]]", "--no-wait").out.strip()
    assert h1.cli("task", "wait", task).code == 0
    h1.run("/bin/cat", name="loc")
    asking = Asking(h2)
    asking.ask_question("Which bird?")
    asking.ask("make all")
    wrong = []

    def run(row: str) -> tuple[int, str]:
        words = [word.replace("TASK", task).replace("_", " ") for word in row.split()]
        ran = h1.cli(*words)
        return ran.code, ran.out + ran.err

    for row, pattern in REFUSED.items():
        code, text = run(row)
        if code == 0 or pattern not in text:
            wrong.append((row, code, text))
    assert h2.agents()["amy"]["running"]
    for row, pattern in WORKS.items():
        if row == "deny h2/amy":
            asking.ask("make test")
        if row == "inbox h2/amy":
            wait_until(lambda: "sent" in h1.cli("inbox", "h2/amy").out)
        code, text = run(row)
        if code != 0 or not re.search(pattern, text, re.DOTALL):
            wrong.append((row, code, text))
    assert not wrong, "\n".join(map(repr, wrong))
