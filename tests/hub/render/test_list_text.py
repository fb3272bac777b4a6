"""`bullpen list`: what a person sees of agents, pods and bridges."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.render.agents import list_text
from bullpen.model.state import (
    Blocked,
    Exited,
    Idle,
    Interrupted,
    Lost,
    Starting,
    Unknown,
    Working,
)
from bullpen.model.usage import Totals
from bullpen.text import width
from tests.commands import BULLPEN
from tests.hub.live_agents import NOW, live
from tests.hub.pen import Pen, made_pen
from tests.hub.pods.support import write_role, write_template
from tests.hub.programs import SLEEP

pytestmark = pytest.mark.slow

MORNING = [
    live("amy", Blocked(on="permission", tool="Bash"), role="coder", branch="amy", ago=12),
    live("developer", Idle(), "csv-export", "developer", "csv.dev", ago=40),
    live("researcher", Working(tool="Grep"), "csv-export", "researcher", "csv.research"),
    live("reviewer", Starting(), "csv-export", "reviewer", "csv.review"),
]


def text(agents: list[LiveAgent], broken: dict[str, str] | None = None, pod: str = "") -> str:
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


def test_b10_the_list_names_the_command_that_brings_agents_back_after_a_reboot() -> None:
    cut = Interrupted(reason="reboot")
    one = [live("amy", cut), live("bob", Exited(code=0)), live("eve", Interrupted(reason="killed"))]
    assert text(one).splitlines()[-1] == "1 agent was interrupted · bullpen resume --all"
    assert "amy    command  ended (reboot)" in text(one)
    pod = [live("amy", cut, "csv"), live("bob", cut, "csv")]
    last = text(pod, pod="csv").splitlines()[-1]
    assert last == "2 agents were interrupted · bullpen resume --pod csv"


def test_q4_the_list_says_who_can_only_be_answered_in_its_terminal() -> None:
    agents = [live("amy", Blocked(on="question")), live("bob", Idle())]
    told = list_text(agents, {}, in_terminal=["amy"], colour=False, now=NOW).splitlines()[-1]
    assert told == "amy can only be answered in its terminal · bullpen attach amy"


def test_b1_the_list_says_why_the_settings_do_not_count() -> None:
    note = "config.yaml: port · needs bullpen hub restart"
    said = list_text([live("amy", Idle())], {}, note=note, colour=False, now=NOW)
    assert said.splitlines()[-1] == note


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
        "1 agent was interrupted · bullpen resume --all\n"
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


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (160, ["AGENT", "ROLE", "STATE", "BRANCH", "MODEL", "TOKENS", "COST", "IDLE", "MSG"]),
        (80, ["AGENT", "ROLE", "STATE", "COST", "IDLE", "MSG"]),
        (40, ["AGENT", "STATE"]),
    ],
)
def test_p7_a_narrow_terminal_gets_less_and_the_state_to_the_end(
    columns: int, shown: list[str]
) -> None:
    agents = [*MORNING, live("bob", Idle(), role="coder", model="claude-sonnet-4-5")]
    used = {"amy": Totals(input=41200, usd=0.38)}
    said = list_text(
        agents, {}, usage=used, waiting={"amy": 2}, colour=False, now=NOW, columns=columns
    )
    lines = said.splitlines()
    assert lines[0].split() == shown
    assert max(map(width, lines)) <= columns
    assert "blocked (permission: Bash)" in lines[1]


def test_p7_the_last_answer_is_shown_where_there_is_room() -> None:
    said = {"amy": "Fixed two failing tests\x1b in test_auth.py (off-by-one in token expiry)."}
    shown = {
        columns: list_text(MORNING, {}, latest_words=said, colour=False, now=NOW, columns=columns)
        for columns in (0, 120, 80)
    }
    assert r"Fixed two failing tests\x1b in test_auth.py (off-by-one in token expiry)." in shown[0]
    assert "Fixed two failing tests" in shown[120]
    assert "SAID" not in shown[80]


def test_p7_a_long_state_is_cut_and_a_pipe_gets_all_of_it() -> None:
    lost = live("amy", Lost(reason="its holder was killed " * 9), role="coder")
    assert (
        max(map(width, list_text([lost], {}, colour=False, now=NOW, columns=80).split("\n"))) == 80
    )
    assert "…" not in list_text([lost], {}, colour=False, now=NOW)


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


@pytest.mark.storm
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


def test_s3_one_that_failed_is_red() -> None:
    agents = [live("amy", Idle(failed="not logged in")), live("bob", Idle())]
    shown = list_text(agents, {}, colour=True, now=NOW).splitlines()
    assert shown[1].startswith("\x1b[31m")
    assert "idle (failed: not logged in)" in shown[1]
    assert not shown[2].startswith("\x1b")


def test_alone_in_a_home_it_is_the_list_and_the_next_steps(home: Pen) -> None:
    *shown, last = home.cli().out.splitlines()
    assert [line.split()[0] for line in shown[1:]] == EVERYBODY
    assert last.startswith("Next: bullpen run ")
    assert [line.split()[0] for line in home.cli("ps").out.splitlines()[1:]] == EVERYBODY


def test_a1_whom_to_attach_to_is_asked_when_several_run(home: Pen) -> None:
    ran = home.cli("attach")
    assert (ran.code, ran.err) == (2, "error: which agent?\nhint:  running: ann, ben, cleo, dot\n")
    assert "needs a terminal" in home.cli("list", "-w").err
