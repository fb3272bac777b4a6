from pathlib import Path

import pytest

from bullpen.model.pod import PodTemplate
from bullpen.model.role import Role
from bullpen.overrides import apply_overrides
from bullpen.pods import check_template, list_templates, load_template
from bullpen.roles import check_role, find_role, list_roles, load_role
from bullpen.settings import load_settings
from bullpen.yamlfile import read

STARTER = Path(__file__).parents[1] / "src" / "bullpen" / "starter"
ROLES = STARTER / "roles"
TEMPLATES = STARTER / "pods" / "templates"
NAMES = ["architect", "coder", "developer", "manager", "ops", "researcher", "reviewer"]
WRITERS = ["architect", "coder", "developer", "researcher"]
READ_ONLY = ["manager", "reviewer"]
WRITING_TOOLS = {"Edit", "Write", "MultiEdit", "NotebookEdit"}


def role(name: str) -> Role:
    return load_role(find_role(name, ROLES))


def template(name: str) -> PodTemplate:
    return load_template(name, TEMPLATES)


def tool(rule: str) -> str:
    return rule.partition("(")[0]


def test_r9_there_are_seven_roles_and_two_templates() -> None:
    assert [file.name for file in list_roles(ROLES)] == NAMES
    assert [path.stem for path in list_templates(TEMPLATES)] == ["bugfix", "feature"]


@pytest.mark.parametrize("name", NAMES)
def test_r9_every_starter_role_is_in_order(name: str) -> None:
    file = find_role(name, ROLES)
    assert check_role(file, set(NAMES))[1] == []
    found = role(name)
    told = found.instructions or (file.persona.read_text() if file.persona else "")
    assert len(told.splitlines()) > 10
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
    # Deny rules do not see what a shell writes; the sandbox of a task does.
    assert found.sandbox.enabled is None
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
    assert not found.worktree.enabled


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
