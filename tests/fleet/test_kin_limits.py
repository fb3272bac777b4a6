"""L4, M8: who may start a child on another machine, what it gets, and who is refused with which
words."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fleet.kin import WORKTREE, Kin, made_kin
from tests.fleet.machines import made_machines
from tests.fleet.mail import rows
from tests.hub.pen import change_hub
from tests.hub.tree.support import PROGRAM, ToolError, made_grove
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow

STARTED = "SELECT id FROM fleet_asked WHERE data LIKE '%\"started\"%'"


@pytest.fixture(scope="module")
def shared_kin() -> Iterator[Kin]:
    with made_kin() as made:
        yield made


@pytest.fixture
def kin(shared_kin: Kin) -> Iterator[Kin]:
    yield shared_kin
    shared_kin.end_all()


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "no such host": ({"where": "h9"}, "no machine of the fleet is called h9"),
    "nobody fits": ({"where": "gpu=yes"}, "no machine of the fleet .* has gpu=yes"),
    "no sense": ({"where": "h2 gpu=yes"}, "name of a machine, or labels"),
    "no such role there": ({"role": "boss"}, "h2: .*boss"),
    "no text": ({"task": "x\0y"}, "the task cannot be sent to another machine"),
    "no task": ({"task": " "}, "a child needs a task"),
    "more than may be granted": ({"role": "fancy"}, "h2: role fancy has more than h1/.* may grant"),
    "lines of a person alone": ({"role": "typed"}, "h2: role typed takes lines of a person alone"),
}


@pytest.mark.parametrize("case", REFUSALS)
@pytest.mark.few(1)
def test_l4_a_child_elsewhere_is_refused_with_the_reason(kin: Kin, case: str) -> None:
    fields, words = REFUSALS[case]
    kin.h2.pen.role("fancy", **PROGRAM, worktree=WORKTREE, settings={"a": 1})
    kin.h2.pen.role("typed", **{**PROGRAM, "deliver": "lines"}, worktree=WORKTREE)
    lead = kin.lead()
    with pytest.raises(ToolError, match=words):
        kin.ask(lead, request="r1", **fields)
    with pytest.raises(ToolError, match=words):  # and so is the same request
        kin.ask(lead, request="r1", **fields)
    assert kin.children_of(lead) == set()
    # Nothing of it is in the way of the next.
    assert kin.spawn(lead) == f"{lead}.csv"
    wait_until(lambda: count_pinned(kin) == len(rows(kin.h1.pen, STARTED)))


def count_pinned(kin: Kin) -> int:
    """The commits that are kept on h1 for children."""
    return len(git(kin.h1.repo, "for-each-ref", "refs/bullpen/fleet").splitlines())


def test_l4_a_name_that_is_taken_is_refused_here_and_there(kin: Kin) -> None:
    lead = kin.lead()
    git(kin.h1.repo, "branch", f"{lead}.csv", "main")
    with pytest.raises(ToolError, match=f"there is a branch called {lead}.csv already"):
        kin.ask(lead)
    kin.spawn(lead, "two")
    with pytest.raises(ToolError, match=f"there is a branch called {lead}.two already"):
        kin.ask(lead, "two")
    kin.h2.pen.run("/bin/cat", name=f"{lead}.three")
    with pytest.raises(ToolError, match=f"h2: there is an agent called {lead}.three already"):
        kin.ask(lead, "three")


def test_l4_a_child_elsewhere_begins_in_its_parents_directory_however_deep(kin: Kin) -> None:
    deep = "/".join(["d" * 60] * 5)
    repo = make_repo(kin.h1.pen.root.parent / "deep")
    commit(repo, f"{deep}/file.txt")
    kin.h1.pen.run(role="boss", name="deep", words=[], cwd=str(repo / deep))
    child = kin.spawn("deep")
    assert kin.h2.pen.agents()[child]["cwd"] == str(kin.tree(child) / deep)


@pytest.mark.storm
def test_l4_children_elsewhere_count_among_those_of_their_parent(kin: Kin) -> None:
    lead = kin.lead()
    for number in range(4):
        kin.h1.spawn(lead, f"here-{number}")
    away = [kin.spawn(lead, f"away-{number}") for number in range(4)]
    for where in ("", "h2"):
        with pytest.raises(ToolError, match="8 running children and wants 1 more"):
            kin.ask(lead, "more", where=where)
    kin.h2.pen.stop(away[0])
    wait_until(lambda: kin.heard(lead) != [])
    kin.spawn(lead, "more")


def test_l4_depth_counts_across_machines(kin: Kin) -> None:
    lead = kin.lead()
    child = kin.spawn(lead)  # one level below lead
    grand = kin.h2.spawn(child, "deep")
    assert kin.h2.pen.agents()[grand]["parent"] == child
    for where in ("", "h1"):
        with pytest.raises(ToolError, match="2 levels below a person, and agents may go 2 deep"):
            kin.h2.call(
                grand, "spawn_subtree", task="x", branch_name="deeper", role="coder", where=where
            )


def test_l4_a_child_may_have_one_on_the_machine_of_its_parent(kin: Kin) -> None:
    lead = kin.lead()
    child = kin.spawn(lead)
    answer = kin.h2.call(
        child, "spawn_subtree", task="x", branch_name="back", role="coder", where="h1"
    )
    assert answer["name"] == f"h1/{child}.back"
    assert kin.h1.pen.agents()[f"{child}.back"]["parent"] == f"h2/{child}"
    kin.h1.call(f"{child}.back", "notify_parent", status="success", message="there")
    assert kin.h2.wait(child)["from"] == f"h1/{child}.back"


def test_l4_a_machine_with_too_many_agents_refuses(kin: Kin) -> None:
    lead = kin.lead()
    kin.spawn(lead, "first")
    config = kin.h2.pen.root / "config.yaml"
    before = config.read_text()

    def most() -> int:
        hosts = {host["state"]["name"]: host for host in kin.machines.shown("h2")["hosts"]}
        return int(hosts["h2"]["state"]["max_agents"])

    usual = most()
    config.write_text(f"{before}max_agents: 1\n")
    try:
        wait_until(lambda: most() == 1)
        with pytest.raises(ToolError, match=r"h2: .* agents run in this home.*max_agents"):
            kin.ask(lead)
    finally:
        config.write_text(before)
        wait_until(lambda: most() == usual)


def test_m8_a_child_elsewhere_gets_no_more_than_its_parent_may_grant(kin: Kin) -> None:
    rules = {"allow": ["Bash(git status:*)"], "deny": ["Bash(rm:*)"]}
    kin.h1.pen.role("meek", **PROGRAM, permissions=rules, worktree=WORKTREE)
    more = {"allow": ["Bash(git status:*)", "Bash(curl:*)"]}
    kin.h2.pen.role("bold", **PROGRAM, permissions=more, worktree=WORKTREE)
    child = kin.spawn(kin.lead("meek"), role="bold")
    ceiling = kin.h2.pen.record(child, "session.json")["ceiling"]
    assert ceiling["allow"] == ["Bash(git status:*)"] and ceiling["deny"] == ["Bash(rm:*)"]
    # What it starts itself is bound by that, too.
    grand = kin.h2.call(child, "spawn_subtree", task="x", branch_name="y", role="bold")["name"]
    ceiling = kin.h2.pen.record(grand, "session.json")["ceiling"]
    assert ceiling["allow"] == ["Bash(git status:*)"] and ceiling["deny"] == ["Bash(rm:*)"]


@pytest.mark.storm
def test_m8_a_child_of_a_sandboxed_agent_is_sandboxed_elsewhere_too(kin: Kin) -> None:
    kin.h1.pen.role(
        "boxed", **PROGRAM, may_grant="coder", sandbox={"enabled": True}, worktree=WORKTREE
    )
    lead = kin.lead("boxed")
    child = kin.spawn(lead)
    assert kin.h2.pen.record(child, "session.json")["is_sandboxed"] is True
    free = kin.spawn(kin.lead())
    assert kin.h2.pen.record(free, "session.json")["is_sandboxed"] is False


@pytest.mark.storm
def test_m8_what_a_child_elsewhere_spends_is_its_parents(kin: Kin) -> None:
    kin.h1.pen.role("rich", **PROGRAM, worktree=WORKTREE, budget={"tokens": 900})
    lead = kin.lead("rich")

    def tokens(child: str) -> int:
        return int(kin.h2.pen.record(child, "session.json")["budget"]["tokens"])

    one = kin.spawn(lead, "one")
    assert tokens(one) == 450
    two = kin.spawn(lead, "two")  # the part of the first is held back
    assert tokens(two) == 225
    kin.h2.spend(one, 300)
    kin.h2.pen.stop(one)
    wait_until(lambda: len(kin.heard(lead)) == 1)
    kin.h2.pen.stop(two)
    wait_until(lambda: len(kin.heard(lead)) == 2)
    # 300 are spent, the rest is there again; also for the next hub.
    kin.h1.pen.kill_hub()
    kin.start(kin.h1.pen)
    assert tokens(kin.spawn(lead, "three")) == 300


@pytest.mark.storm
def test_l4_a_machine_that_is_away_is_refused(kin: Kin) -> None:
    lead = kin.lead()
    kin.h2.pen.kill_hub()
    wait_until(lambda: "h2" not in kin.machines.reachable("h1"))
    with pytest.raises(ToolError, match="h2 cannot be reached now"):
        kin.ask(lead)
    kin.start(kin.h2.pen)
    wait_until(lambda: "h2" in kin.machines.reachable("h1"))
    kin.machines.kill_server()
    wait_until(lambda: kin.machines.shown("h1")["link"] != "connected")
    with pytest.raises(ToolError, match="not connected to its fleet"):
        kin.ask(lead)
    kin.machines.start_server()
    wait_until(lambda: kin.machines.reachable("h1") == {"h1", "h2"})
    kin.spawn(lead)


def test_l4_a_machine_in_no_fleet_says_so() -> None:
    with made_grove() as grove:
        grove.run("lead")
        with pytest.raises(ToolError, match="in no fleet"):
            grove.call("lead", "spawn_subtree", task="x", branch_name="csv", where="h2")


IMPATIENT = """
import sys
if sys.argv[:1] != ["-c"]:
    from bullpen.hub.fleet_children import spawn
    spawn.ANSWER_SECONDS = 0.0
"""


@pytest.mark.storm
def test_l4_who_does_not_wait_for_the_answer_hears_what_became_of_it() -> None:
    with made_machines("h1", "h2", joined=False) as machines:
        change_hub(machines.hosts["h1"], IMPATIENT)
        for name in machines.hosts:
            machines.join(name)
        wait_until(lambda: machines.reachable("h1") == {"h1", "h2"})
        kin = Kin(machines)
        lead = kin.lead()
        with pytest.raises(ToolError, match="h2 has not answered yet"):
            kin.ask(lead, request="r1")
        wait_until(lambda: kin.children_of(lead) == {f"{lead}.csv"})
        wait_until(lambda: rows(kin.h1.pen, STARTED) != [])
        assert kin.ask(lead, request="r1")["name"] == f"h2/{lead}.csv"
        with pytest.raises(ToolError, match="h2 has not answered yet"):
            kin.ask(lead, "two", role="boss")
        event = kin.h1.wait(lead)
        assert (event["from"], event["kind"]) == (f"h2/{lead}.two", "child_exited")
        assert "boss" in event["data"]["reason"]
