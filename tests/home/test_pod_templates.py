from pathlib import Path

import pytest

from bullpen.errors import BullpenError, Kind
from bullpen.home.check import check
from bullpen.home.pods import check_template, list_templates, load_template
from bullpen.home.yamlfile import parse
from bullpen.model.pod import Member, PodTemplate

FILE = Path("team.yaml")


def template(text: str) -> PodTemplate:
    found, problems = check(PodTemplate, parse(FILE, text))
    assert found is not None, problems
    return found


def problems(text: str) -> list[tuple[int, str, str]]:
    return [(p.line, p.key, p.message) for p in check(PodTemplate, parse(FILE, text))[1]]


def test_p4_every_field() -> None:
    found = template(
        """
pod_name: team
agents:
  - name: dev
    role: coder
    count: 2
    overrides: {model: opus, worktree.enabled: true, budget.tokens: 10}
    prompt: Build it.
  - role: reviewer
workflow: sequence
branch_prefix: team/csv
budget: {usd: 3}
"""
    )
    overrides = ("model=opus", "worktree.enabled=true", "budget.tokens=10")
    assert found.members() == [
        Member("dev-1", "coder", overrides, "Build it."),
        Member("dev-2", "coder", overrides, "Build it."),
        Member("reviewer", "reviewer"),
    ]
    assert (found.workflow, found.branch_prefix, found.budget.usd) == ("sequence", "team/csv", 3)


def test_p4_a_pod_is_parallel_unless_it_says_otherwise() -> None:
    assert template("pod_name: a\nagents: [{role: coder}]\n").workflow == "parallel"


def test_p4_a_count_numbers_the_names_even_if_it_is_one() -> None:
    found = template("pod_name: a\nagents: [{role: coder, count: 1}]\n")
    assert [member.name for member in found.members()] == ["coder-1"]


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("agents: []", "agents", "needs at least one agent"),
        ("agents: {role: coder}", "agents", "a block is no list"),
        ("agents: [coder]", "agents.0", '"coder" is no block'),
        ("agents: [{name: a}]", "agents.0.role", "is required"),
        ("agents: [{role: coder, rol: x}]", "agents.0.rol", "did you mean role?"),
        ("agents: [{role: coder, count: 0}]", "agents.0.count", "at least 1"),
        ("agents: [{role: coder, count: 101}]", "agents.0.count", "at most 100"),
        ("agents: [{role: coder, count: '2'}]", "agents.0.count", "no whole number"),
        ("agents: [{role: a}, {role: b, name: a}]", "agents.1", "a second agent called a"),
        ("agents: [{role: a, count: 2}, {role: a-2}]", "agents.1", "agent called a-2"),
        ("agents: [{role: a, name: Bob}]", "agents.0.name", "agent name 'Bob' is not allowed"),
        (f"agents: [{{role: a, name: {'x' * 63}, count: 1}}]", "agents", "not allowed"),
        ("agents: [{role: a, overrides: {modle: x}}]", "agents.0.overrides.modle", "mean model?"),
        (
            "agents: [{role: a, overrides: {permissions.allow: x}}]",
            "agents.0.overrides.permissions.allow",
            "edit the role file",
        ),
        (
            "agents: [{role: a, overrides: {worktree.enabled: yes}}]",
            "agents.0.overrides.worktree.enabled",
            '"yes" is neither true nor false',
        ),
        ("agents: [{role: a, overrides: {model: [x]}}]", "agents.0.overrides.model", "plain value"),
        ("agents: [{role: a, overrides: [model=x]}]", "agents.0.overrides", "is no block"),
        ("agents: [{role: a}]\nworkflow: paralel", "workflow", "did you mean parallel?"),
        ("agents: [{role: a}]\nbranch_prefix: a..b", "branch_prefix", "no name that git allows"),
        ("agents: [{role: a}]\nbranch_prefix: -a", "branch_prefix", "no name that git allows"),
        ("agents: [{role: a}]\nbranch_prefix: a/.b", "branch_prefix", "no name that git allows"),
        ("agents: [{role: a}]\nbranch_prefix: a.lock", "branch_prefix", "no name that git allows"),
        ("agents: [{role: a}]\nbudget: {usd: 0}", "budget.usd", "too small"),
    ],
)
def test_p4_templates_are_checked_like_roles(text: str, key: str, says: str) -> None:
    ((_, found_key, message),) = problems(f"pod_name: a\n{text}\n")
    assert found_key == key
    assert says in message


def test_p4_all_errors_of_a_template_at_once() -> None:
    found = problems(
        """pod_nam: a
agents:
  - role: coder
    overrides:
      worktree.enabled: maybe
      budget.tokens: many
  - role: Coder
    count: 0
"""
    )
    assert [(line, key) for line, key, _ in found] == [
        (1, "pod_name"),
        (1, "pod_nam"),
        (5, "agents.0.overrides.worktree.enabled"),
        (6, "agents.0.overrides.budget.tokens"),
        (7, "agents.1.role"),
        (8, "agents.1.count"),
    ]


def test_p4_members_have_roles_that_exist() -> None:
    document = parse(FILE, "pod_name: a\nagents:\n  - role: coder\n  - role: reviwer\n")
    found, wrong = check_template(document, {"coder", "reviewer"})
    assert found is None
    assert [(p.line, p.key, p.message) for p in wrong] == [
        (4, "agents.1.role", "no role called reviwer · did you mean reviewer?")
    ]
    assert check_template(document)[1] == []


def test_p4_templates_are_found_by_name(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text("pod_name: a\nagents: [{role: coder}]\n")
    (tmp_path / "bad.yaml").write_text("pod_name: a\n")
    assert [path.stem for path in list_templates(tmp_path)] == ["bad", "team"]
    assert load_template("team", tmp_path).pod_name == "a"
    with pytest.raises(BullpenError, match=r"bad has 1 error\n.*agents  is required"):
        load_template("bad", tmp_path)
    with pytest.raises(BullpenError, match="did you mean team") as caught:
        load_template("taem", tmp_path)
    assert caught.value.kind is Kind.NOT_FOUND
    with pytest.raises(BullpenError, match="not allowed"):
        load_template("../team", tmp_path)
    assert list_templates(tmp_path / "gone") == []
