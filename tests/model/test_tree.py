"""The rules of the tree of agents: names, limits, ends, orphans, ceilings, shares. Pure."""

from typing import Any

import pytest

from bullpen.errors import BullpenError, Kind
from bullpen.model.agent import Agent, WorktreeRef
from bullpen.model.rights import Rights, is_covered, limited, lower, rights_of, share
from bullpen.model.role import Budget, Role
from bullpen.model.state import Blocked, Exited, Idle, Lost, State, Unknown, View, Working
from bullpen.model.tree import (
    AdoptChildren,
    Family,
    Limits,
    StopChildren,
    kind_of,
    outcome_of,
    plan_orphans,
    refuse_too_many,
    subtree_branch,
    worker_name,
)

TREE = WorktreeRef(name="x", repo="/r", path="/w")
LIMITS = Limits(depth=2, children=2, agents=10)


def agent(name: str, parent: str = "", **fields: Any) -> Agent:
    return Agent(name=name, run=f"run-{name}", parent=parent, cwd="/", created="c", **fields)


# lead ─┬─ main.csv ── main.csv.w.docs
#       └─ main.cli
FAMILY = Family(
    [
        agent("lead"),
        agent("main.csv", "lead", worktree=TREE),
        agent("main.cli", "lead", worktree=TREE),
        agent("main.csv.w.docs", "main.csv"),
        agent("amy"),
        agent("stray", "nobody"),
    ]
)
ALL = ["lead", "main.csv", "main.cli", "main.csv.w.docs", "amy", "stray"]


# ── who descends from whom ──


def test_i1_every_agent_has_a_parent_and_at_last_the_person() -> None:
    assert FAMILY.parent("main.csv.w.docs") == "main.csv"
    assert FAMILY.parent("lead") == FAMILY.parent("amy") == FAMILY.parent("stray") == "root"
    assert FAMILY.line("main.csv.w.docs") == ["main.csv", "lead"]
    assert [FAMILY.depth(name) for name in ("lead", "main.csv", "main.csv.w.docs")] == [0, 1, 2]
    assert FAMILY.children("root") == ["amy", "lead", "stray"]
    assert FAMILY.children("lead") == ["main.cli", "main.csv"]


def test_i4_leaves_stand_before_those_that_started_them() -> None:
    assert FAMILY.under("lead") == ["main.cli", "main.csv.w.docs", "main.csv"]
    assert FAMILY.under("main.csv.w.docs") == []


def test_i1_records_that_go_in_a_circle_do_no_harm() -> None:
    family = Family([agent("a", "b"), agent("b", "a"), agent("c", "c")])
    assert {family.depth("a"), family.depth("b")} == {0, 1}
    assert family.parent("c") == "root"
    assert set(family.under("root")) == {"a", "b", "c"}


def test_is_above_is_of_ancestors_alone() -> None:
    assert FAMILY.is_above("lead", "main.csv.w.docs")
    assert not FAMILY.is_above("main.cli", "main.csv.w.docs")
    assert not FAMILY.is_above("main.csv", "lead")
    assert not FAMILY.is_above("main.csv", "main.csv")
    assert FAMILY.is_above("root", "amy")


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (agent("amy"), "agent"),
        (agent("main.x", "amy", worktree=TREE), "subtree"),
        (agent("amy.w.x", "amy"), "worker"),
    ],
)
def test_i1_what_a_child_is_to_its_parent(made: Agent, kind: str) -> None:
    assert kind_of(made) == kind


# ── names ──


@pytest.mark.parametrize(
    ("prefix", "wanted", "branch"),
    [
        ("main", "Feature A", "main.feature-a"),
        ("main.feature-a", "fix!", "main.feature-a.fix"),
        ("feature/login", "csv", "feature/login.csv"),
    ],
)
def test_m1_a_subtrees_branch_begins_with_its_parents(
    prefix: str, wanted: str, branch: str
) -> None:
    assert subtree_branch(prefix, wanted) == branch


def test_i1_a_workers_name_begins_with_its_parents() -> None:
    assert worker_name("main.csv", "Docs") == "main.csv.w.docs"
    with pytest.raises(BullpenError, match="longer than"):
        worker_name("x" * 50, "y" * 20)
    with pytest.raises(BullpenError, match="longer than"):
        subtree_branch("x" * 50, "y" * 20)
    with pytest.raises(BullpenError, match="no letter"):
        worker_name("amy", "!!")


# ── limits ──


@pytest.mark.parametrize(
    ("parent", "count", "limits", "words"),
    [
        ("main.csv.w.docs", 1, LIMITS, "agents may go 2 deep"),
        ("lead", 1, LIMITS, "max_children"),
        ("amy", 3, LIMITS, "max_children"),
        ("amy", 1, Limits(2, 8, 6), "max_agents"),
    ],
)
def test_m1_beyond_a_limit_nothing_is_started(
    parent: str, count: int, limits: Limits, words: str
) -> None:
    with pytest.raises(BullpenError, match=words) as refused:
        refuse_too_many(FAMILY, ALL, parent, count, limits)
    assert refused.value.kind is Kind.DENIED
    assert refused.value.hint


def test_m1_within_the_limits_it_is() -> None:
    refuse_too_many(FAMILY, ALL, "main.csv", 1, LIMITS)
    refuse_too_many(FAMILY, ALL, "amy", 2, LIMITS)
    # Those that have ended do not count.
    refuse_too_many(FAMILY, ["lead"], "lead", 2, LIMITS)


# ── ends ──


def test_i4_orphans_are_kept_stopped_or_adopted() -> None:
    alive = ["lead", "main.cli", "main.csv.w.docs", "amy"]
    assert plan_orphans(FAMILY, alive, "main.csv", "keep") is None
    assert plan_orphans(FAMILY, alive, "main.csv", "stop") == StopChildren(("main.csv.w.docs",))
    assert plan_orphans(FAMILY, alive, "main.csv", "adopt") == AdoptChildren(
        ("main.csv.w.docs",), "lead"
    )
    alive.remove("lead")  # at last the person
    assert plan_orphans(FAMILY, alive, "main.csv", "adopt") == AdoptChildren(
        ("main.csv.w.docs",), "root"
    )
    assert plan_orphans(FAMILY, alive, "lead", "stop") == StopChildren(
        ("main.cli", "main.csv.w.docs")
    )
    assert plan_orphans(FAMILY, [], "lead", "adopt") is None


@pytest.mark.parametrize(
    ("state", "report", "outcome"),
    [
        (Working(), "", "working"),
        (Idle(), "", "idle"),
        (Idle(), "success", "finished"),
        (Idle(), "failure", "failed"),
        (Idle(failed="no credit"), "", "failed"),
        (Blocked(on="permission"), "", "blocked"),
        (Exited(code=0), "", "finished"),
        (Exited(code=0), "failure", "failed"),
        (Exited(code=3), "", "gone"),
        (Exited(code=3), "success", "finished"),
        (Lost(reason="x"), "", "gone"),
        (Unknown(missing="it reports no state"), "", "working"),
        (Unknown(missing="it reports no state"), "success", "finished"),
        (Unknown(missing="it reports no state"), "failure", "failed"),
    ],
)
def test_i5_what_somebody_who_waits_is_told(state: State, report: str, outcome: str) -> None:
    assert outcome_of(View(run="r", state=state, since=1.0, decided_by="x"), report) == outcome


@pytest.mark.parametrize("is_due", [True, False])
@pytest.mark.parametrize("has_mail", [True, False])
def test_i5_who_has_a_prompt_or_a_message_to_begin_with_is_not_done(
    is_due: bool, has_mail: bool
) -> None:
    idle = View(run="r", state=Idle(), since=1.0, decided_by="x", is_prompt_due=is_due)
    assert (outcome_of(idle, has_mail=has_mail) == "working") == (is_due or has_mail)
    ended = idle.model_copy(update={"state": Exited(code=0)})
    assert outcome_of(ended, has_mail=has_mail) == "finished"


def test_i5_one_that_tells_of_its_turns_has_not_ended_one_because_nobody_hears_it() -> None:
    state = Unknown(missing="its holder does not answer")
    view = View(run="r", state=state, since=1.0, decided_by="x", told=Working())
    assert outcome_of(view, "success") == "working"


# ── ceilings ──

CODER = Role.model_validate(
    {
        "name": "coder",
        "permission_mode": "acceptEdits",
        "permissions": {"allow": ["Read", "Bash(git:*)"], "deny": ["Bash(git push:*)"]},
        "budget": {"usd": 5.0},
    }
)
OPEN = Role.model_validate(
    {
        "name": "open",
        "permission_mode": "bypassPermissions",
        "permissions": {"allow": ["Read(src/**)", "Bash", "Bash(git log:*)", "WebFetch"]},
        "sandbox": {"enabled": False, "allow_network": True, "ssh_agent": True},
        "capabilities": ["delegate"],
        "budget": {"usd": 50.0, "minutes": 10},
    }
)


def test_m8_a_child_gets_no_more_than_its_ceiling() -> None:
    ceiling = rights_of(CODER, is_sandboxed=True).model_copy(update={"network": False})
    role = limited(OPEN, ceiling)
    assert role.permissions.allow == ("Read(src/**)", "Bash(git log:*)")
    assert role.permissions.deny == ("Bash(git push:*)",)
    assert role.permission_mode == "acceptEdits"
    assert role.sandbox.enabled is True
    assert not role.sandbox.allow_network
    assert not role.sandbox.ssh_agent
    assert role.capabilities == ()
    assert role.budget == Budget(usd=5.0, minutes=10)
    # Again it is the same, and what is below the ceiling stays as it is.
    assert limited(role, ceiling) == role
    assert limited(CODER, rights_of(CODER, is_sandboxed=False)) == CODER
    assert limited(OPEN, None) is OPEN


def test_m8_a_grandchild_gets_no_more_than_both() -> None:
    both = lower(rights_of(OPEN, is_sandboxed=False), rights_of(CODER, is_sandboxed=True))
    assert both.sandboxed
    assert both.mode == 2
    assert both.allow == ("Read(src/**)", "Bash(git log:*)")
    assert lower(both, Rights(mode=0)).mode == 0


@pytest.mark.parametrize(
    ("rule", "rules", "covered"),
    [
        ("Bash(git log:*)", ("Bash(git:*)",), True),
        ("Bash(git log:*)", ("Bash(git l:*)",), False),
        ("Bash(gitx:*)", ("Bash(git:*)",), False),
        ("Bash(git log:*)", ("Bash",), True),
        ("Bash", ("Bash(git:*)",), False),
        ("Bash(rm *)", ("Bash(git:*)",), False),
        ("mcp__bullpen__list_agents", ("mcp__bullpen",), True),
        ("mcp__bullpen", ("mcp__bullpen__list_agents",), False),
        ("Read", ("Read",), True),
        ("Edit", (), False),
    ],
)
def test_m8_a_rule_is_covered_by_one_that_allows_as_much(
    rule: str, rules: tuple[str, ...], covered: bool
) -> None:
    assert is_covered(rule, rules) is covered


@pytest.mark.parametrize(
    ("budget", "used", "count", "part"),
    [
        ({"usd": 10.0}, {}, 1, {"usd": 5.0}),
        ({"usd": 10.0}, {"usd": 4.0}, 2, {"usd": 2.0}),
        ({"tokens": 100}, {"tokens": 1.0}, 1, {"tokens": 49}),
        ({}, {"usd": 5.0}, 3, {}),
        ({"usd": 1.0}, {"usd": 1.0}, 1, None),
        ({"minutes": 1}, {}, 1, None),
    ],
)
def test_m8_children_get_a_part_of_what_is_left(
    budget: dict[str, Any], used: dict[str, float], count: int, part: dict[str, Any] | None
) -> None:
    expected = None if part is None else Budget(**part)
    assert share(Budget(**budget), used, count) == expected
