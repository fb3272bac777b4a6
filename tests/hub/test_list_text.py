"""`bullpen list`: what a person sees of agents, pods and bridges."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bullpen.hub.registry import Live
from bullpen.hub.render.agents import list_text
from bullpen.model.state import (
    Blocked,
    Exited,
    Idle,
    Lost,
    Starting,
    Unknown,
    Working,
)
from tests.commands import BULLPEN
from tests.hub.live_agents import NOW, live
from tests.hub.pen import Pen, made_pen
from tests.hub.pods_support import write_role, write_template
from tests.hub.programs import SLEEP

pytestmark = pytest.mark.slow

MORNING = [
    live("amy", Blocked(on="permission", tool="Bash"), role="coder", branch="amy", ago=12),
    live("developer", Idle(), "csv-export", "developer", "csv.dev", ago=40),
    live("researcher", Working(tool="Grep"), "csv-export", "researcher", "csv.research"),
    live("reviewer", Starting(), "csv-export", "reviewer", "csv.review"),
]


def text(agents: list[Live], broken: dict[str, str] | None = None, pod: str = "") -> str:
    return list_text(agents, broken or {}, pod=pod, colour=False, now=NOW)


def test_p7_agents_without_a_pod_first_then_each_pod_under_its_name() -> None:
    assert text(MORNING) == (
        "AGENT         ROLE        STATE                       BRANCH        IDLE\n"
        "amy           coder       blocked (permission: Bash)  amy\n"
        "csv-export\n"
        "  developer   developer   idle                        csv.dev       40s\n"
        "  researcher  researcher  working (Grep)              csv.research\n"
        "  reviewer    reviewer    starting                    csv.review\n"
    )


def test_p7_no_heading_where_no_pod_is() -> None:
    agents = [
        live("amy", Exited(code=0), role="coder", model="opus"),
        live("sh", Exited(signal=9)),
        live("top", Lost(reason="its holder was killed")),
        live("x", Unknown(missing="it reports no state")),
    ]
    assert text(agents) == (
        "AGENT  ROLE     STATE                          MODEL\n"
        "amy    coder    exited (0)                     opus\n"
        "sh     command  exited (signal 9)\n"
        "top    command  lost (its holder was killed)\n"
        "x      command  unknown (it reports no state)\n"
    )


def test_p7_several_pods_in_the_order_of_their_names() -> None:
    agents = [live("a", Idle(), "two"), live("b", Idle(), "one"), live("c", Idle(), "two")]
    assert [line.split()[0] for line in text(agents).splitlines()] == [
        "AGENT",
        "one",
        "b",
        "two",
        "a",
        "c",
    ]


@pytest.mark.parametrize(
    ("broken", "pod", "says"),
    [
        ({}, "", "no agents · bullpen run --role ROLE, or bullpen run -- PROGRAM\n"),
        ({}, "nope", "no agents in pod nope · bullpen pod list\n"),
        ({"odd": "cannot read it"}, "", "AGENT  ROLE  STATE\nodd: cannot read it\n"),
    ],
)
def test_p7_nobody_is_said_with_what_to_do(broken: dict[str, str], pod: str, says: str) -> None:
    assert text([], broken, pod) == says


def test_p7_nothing_of_an_agent_drives_the_terminal() -> None:
    odd = live("x", Working(tool="\x1b[31mred\n"), branch="a\tb", model="\u202e")
    assert "\x1b" not in text([odd])
    assert text([odd]).count("\n") == 2


def test_p7_colour_says_who_waits_and_who_has_ended() -> None:
    painted = list_text(MORNING, {}, colour=True, now=NOW).splitlines()
    assert [line.startswith("\x1b[") for line in painted] == [True, True, True, False, True, False]
    assert painted[1].startswith("\x1b[33m")  # waits for a person
    assert painted[4].startswith("\x1b[32m")  # works
    assert all(line.endswith("\x1b[0m") for line in painted if line.startswith("\x1b["))


# ── the command, by the short way and by the long one ──


@pytest.fixture(scope="module")
def home() -> Iterator[Pen]:
    with made_pen() as pen:
        write_role(pen, "plain", list(SLEEP))
        write_template(pen, "red", "name: ann, role: plain")
        write_template(pen, "blue", "name: ben, role: plain", "name: cleo, role: plain")
        for template in ("red", "blue"):
            assert pen.cli("pod", "launch", template).code == 0
        assert pen.cli("run", "--role", "plain", "--name", "dot").code == 0
        yield pen


RED, BLUE = ["red", "ann"], ["blue", "ben", "cleo"]
EVERYBODY = ["dot", *BLUE, *RED]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("words", "own", "shown"),
    [
        ([], "", EVERYBODY),
        ([], "blue", BLUE),
        (["--pod", "red"], "", RED),
        (["--pod=red"], "blue", RED),
        (["--pod", "*"], "", EVERYBODY),
        (["--pod", "*"], "blue", EVERYBODY),
    ],
)
@pytest.mark.parametrize("way", ["short", "long"])
def test_p7_flag_before_environment_before_all(
    home: Pen, words: list[str], own: str, shown: list[str], way: str
) -> None:
    begin = [str(BULLPEN)] if way == "short" else [sys.executable, "-m", "bullpen"]
    ran = subprocess.run(
        [*begin, "list", *words],
        env={**home.env, "BULLPEN_DIR": str(home.root), "BULLPEN_POD": own},
        cwd=home.root,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stderr == ""
    assert [line.split()[0] for line in ran.stdout.splitlines()[1:]] == shown


def test_p7_pod_that_is_none_is_said(home: Pen) -> None:
    ran = home.cli("list", "--pod", "nope")
    assert (ran.code, ran.out) == (0, "no agents in pod nope · bullpen pod list\n")


@pytest.mark.parametrize("own", ["", "blue"])
def test_p7_json_has_the_same_agents(home: Pen, own: str) -> None:
    found = json.loads(home.cli("list", "--json", BULLPEN_POD=own).out)["agents"]
    names = [agent["name"] for agent in found]
    assert names == (["ben", "cleo"] if own else ["ann", "ben", "cleo", "dot"])
