import re
from pathlib import Path

import pytest

import bullpen
from bullpen.engines.codex.rules import make_rules as codex_rules
from bullpen.engines.gemini.rules import make_rules as gemini_rules
from bullpen.home.overrides import apply_overrides, launch_role
from bullpen.home.pods import check_template, list_templates, load_template
from bullpen.home.roles import check_role, find_role, list_roles, load_role
from bullpen.home.settings import load_settings
from bullpen.home.yamlfile import read
from bullpen.model.child_event import KINDS
from bullpen.model.pod import PodTemplate
from bullpen.model.role import Role

STARTER = Path(__file__).parents[2] / "src" / "bullpen" / "home" / "starter"
ROLES = STARTER / "roles"
TEMPLATES = STARTER / "pods" / "templates"
NAMES = ["architect", "coder", "developer", "manager", "ops", "researcher", "reviewer"]
WRITERS = ["architect", "coder", "developer", "researcher"]
AGENT_INSTRUCTIONS = Path(bullpen.__file__).parent / "instructions" / "agent.md"
READ_ONLY = ["manager", "reviewer"]
WRITING_TOOLS = {"Edit", "Write", "MultiEdit", "NotebookEdit"}


def role(name: str) -> Role:
    return load_role(find_role(name, ROLES))


def template(name: str) -> PodTemplate:
    return load_template(name, TEMPLATES)


OF_OTHER_ENGINES = {"codex": codex_rules, "gemini": gemini_rules}


@pytest.mark.parametrize("name", OF_OTHER_ENGINES)
def test_r9_other_engines_have_a_coder_whose_rules_they_know(name: str) -> None:
    assert check_role(find_role(name, ROLES), {*NAMES, *OF_OTHER_ENGINES})[1] == []
    found = role(name)
    assert found.agent_type == name
    assert found.worktree.enabled
    assert OF_OTHER_ENGINES[name](found)  # raises for a rule that it does not know
    assert {"Bash(git stash:*)", "Bash(sudo:*)"} <= set(found.permissions.deny)
    assert len((found.instructions or "").splitlines()) > 10


def tool(rule: str) -> str:
    return rule.partition("(")[0]


def test_r9_there_are_nine_roles_and_two_templates() -> None:
    assert [file.name for file in list_roles(ROLES)] == sorted([*NAMES, *OF_OTHER_ENGINES])
    assert [path.stem for path in list_templates(TEMPLATES)] == ["bugfix", "feature"]


@pytest.mark.parametrize("name", NAMES)
def test_r9_every_starter_role_is_in_order(name: str) -> None:
    file = find_role(name, ROLES)
    assert check_role(file, set(NAMES))[1] == []
    found = launch_role(file, [])
    assert len((found.instructions or "").splitlines()) > 10
    assert 20 < len(found.description) < 100
    assert found.permission_mode is not None  # unset, an interactive Claude is in `auto`


@pytest.mark.parametrize("name", NAMES)
def test_r9_branch_from_is_written_out(name: str) -> None:
    worktree = read(find_role(name, ROLES).path).data["worktree"]
    # HEAD is there in every repository, whatever its branches are called.
    assert worktree["branch_from"] == "HEAD"


@pytest.mark.parametrize("name", NAMES)
def test_r9_no_role_stashes_forces_becomes_root_or_reads_secrets(name: str) -> None:
    denied = set(role(name).permissions.deny)
    assert {
        "Bash(git stash:*)",
        "Bash(git push --force*)",
        "Bash(git push * --force*)",
        "Bash(git push -f*)",
        "Bash(git push * +*)",
        "Bash(sudo:*)",
        "Read(**/.env)",
        "Read(~/.ssh/**)",
    } <= denied
    text = find_role(name, ROLES).path.read_text()
    before = text[: text.index("Bash(git stash:*)")].splitlines()[-2]
    assert before.strip().startswith("#"), "the reason stands above the rule"
    assert "worktrees" in before


@pytest.mark.parametrize("name", ["coder", "codex", "gemini"])
def test_r9_who_may_ask_knows_what_to_do_where_nobody_answers(name: str) -> None:
    """A task's own instructions say that nobody does, whatever the role says."""
    told = " ".join(role(name).instructions.split())
    assert "ask one precise question if somebody is there to answer it. Otherwise decide" in told
    of_tasks = " ".join(AGENT_INSTRUCTIONS.read_text().split())
    assert "Nobody can answer questions, also where your role says to ask: decide" in of_tasks


@pytest.mark.parametrize("name", NAMES)
def test_r9_nothing_is_allowed_that_is_too_wide(name: str) -> None:
    allowed = set(role(name).permissions.allow)
    assert not allowed & {"Bash", "Bash(*)", "Bash(git:*)", "WebFetch", "Edit", "Write", "Task"}
    assert not any(rule.startswith(("Bash(git push", "Bash(rm", "Bash(curl")) for rule in allowed)


@pytest.mark.parametrize("name", NAMES)
def test_r9_a_reviewer_judges_the_rest(name: str) -> None:
    reviewer = role(name).permissions.agent
    assert reviewer.is_on
    for verdict in ("ALLOW:", "DENY:", "ASK_USER:"):
        assert verdict in (reviewer.instructions or "")


@pytest.mark.parametrize("name", WRITERS)
def test_r9_who_writes_does_so_in_a_worktree_and_a_sandbox(name: str) -> None:
    found = role(name)
    assert found.worktree.enabled
    assert found.sandbox.enabled is None  # on for tasks
    assert "Bash(git commit:*)" in found.permissions.allow


@pytest.mark.parametrize("name", READ_ONLY)
def test_r9_read_only_roles_cannot_write(name: str) -> None:
    found = role(name)
    assert not {tool(rule) for rule in found.permissions.allow} & WRITING_TOOLS
    assert {"Edit", "Write", "NotebookEdit", "Bash(git commit:*)"} <= set(found.permissions.deny)
    # Deny rules do not see what a shell writes; the sandbox does: of a task, and who leads has one
    # in a terminal, too.
    assert found.sandbox.enabled is (True if name == "manager" else None)
    assert "." in found.sandbox.read_only_paths
    assert found.permission_mode == "manual"


@pytest.mark.parametrize(("name", "place"), [("researcher", "notes"), ("architect", "docs")])
def test_r9_who_writes_documents_writes_nothing_else_unasked(name: str, place: str) -> None:
    allowed = [rule for rule in role(name).permissions.allow if tool(rule) in WRITING_TOOLS]
    assert allowed == [f"Edit({place}/**)"]
    assert role(name).permission_mode == "manual"


def test_r9_the_manager_delegates_to_what_a_coder_may() -> None:
    found = role("manager")
    assert (found.capabilities, found.may_grant) == (("delegate",), "coder")
    assert find_role("manager", ROLES).persona is not None
    assert found.worktree.enabled  # a branch of its own, for the work of its agents


def test_r9_the_manager_is_told_of_tools_that_there_are() -> None:
    sources = "".join(map(Path.read_text, (STARTER.parents[1] / "hub" / "mcp").glob("*_tools.py")))
    offered = re.findall(r"^async def ([a-z]\w+)\(", sources, re.M)
    arguments = re.findall(r"^    ([a-z]\w+): Annotated\[", sources, re.M)
    persona = find_role("manager", ROLES).persona
    assert persona is not None
    named = set(re.findall(r"`(\w+_\w+)`", persona.read_text()))
    assert {"spawn_subtree", "wait_for_event", "agent_diff", "merge_child", "notify_parent"} < named
    assert named <= {*offered, *arguments, *KINDS}


def test_r9_ops_works_on_the_machine_and_asks_a_person() -> None:
    found = role("ops")
    assert (found.worktree.enabled, found.sandbox.enabled) == (False, False)
    assert found.permission_mode == "manual"


def test_p4_the_starter_templates_are_in_order() -> None:
    for path in list_templates(TEMPLATES):
        assert check_template(read(path), set(NAMES))[1] == []
    feature = template("feature")
    assert [member.role for member in feature.members()] == ["researcher", "developer", "reviewer"]
    assert {template(name).workflow for name in ("feature", "bugfix")} == {"parallel", "sequence"}
    for name in ("feature", "bugfix"):
        for member in template(name).members():
            apply_overrides(role(member.role), member.overrides)
            assert member.prompt


def test_h10_the_starter_config_is_in_order() -> None:
    load_settings(STARTER / "config.yaml")
