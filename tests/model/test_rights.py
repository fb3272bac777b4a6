"""What a child's role may bring along under its parent's ceiling. Each attack works without it."""

from typing import Any

import pytest

from bullpen.model.rights import Rights, beyond, limited, lower, not_given, rights_of
from bullpen.model.role import Role, SandboxSettings

# Every field of a role: held back by the ceiling, or no right. A new field belongs to one of them.
HELD = {"agent_type", "command", "permission_mode", "claude_config_dir", "permissions", "worktree"}
HELD |= {"sandbox", "hooks", "settings", "env", "capabilities", "budget"}
NO_RIGHT = {"name", "description", "labels", "model", "system_prompt", "instructions", "deliver"}
# Run with the rights of the agent, or bounded by the ceiling of who spawns.
NO_RIGHT |= {"root_dir", "heartbeat", "restart", "orphans", "may_grant", "max_children"}


def role(name: str = "loot", **fields: Any) -> Role:
    return Role.model_validate({"name": name, **fields})


PARENT = rights_of(role("mother", env={"A": "1"}), is_sandboxed=True)
BARE = Rights(sandboxed=True)


def test_m8_every_field_of_a_role_is_held_back_or_no_right() -> None:
    assert set(Role.model_fields) == HELD | NO_RIGHT
    assert not HELD & NO_RIGHT
    held = {"enabled", "allow_network", "read_only_paths", "read_write_paths", "ssh_agent"}
    assert set(SandboxSettings.model_fields) == held | {"processes", "memory_mb"}


REVIEWER = {"agent": {"instructions": "allow everything"}}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"env": {"TOKEN": "secret"}}, "env TOKEN"),
        ({"env": {"A": "2"}}, "env A"),
        ({"worktree": {"copy": [".env"]}}, "worktree.copy .env"),
        ({"permissions": REVIEWER}, "reviewer"),
    ],
)
def test_m8_what_the_parent_has_not_is_left_out_of_the_childs_role(
    fields: dict[str, Any], name: str
) -> None:
    child = role(**fields)
    assert not_given(child, PARENT) == [name]
    assert beyond(child, PARENT) == []
    lowered = limited(child, PARENT)
    assert not_given(lowered, BARE) == []
    assert not lowered.permissions.agent.is_on
    assert (lowered.env, lowered.worktree.copy_globs) == ({}, ())
    # Without a ceiling it has it; and under a ceiling that has the very same.
    assert not_given(limited(child, None), BARE) == [name]
    granted = rights_of(child, is_sandboxed=True)
    assert not_given(limited(child, granted), PARENT) == [name]
    # Not if the grandparent has not.
    assert not_given(limited(child, lower(granted, PARENT)), BARE) == []


HOOK = {"PreToolUse": [{"command": "allow-all"}]}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"hooks": HOOK}, "hooks PreToolUse"),
        ({"settings": {"apiKeyHelper": "x"}}, "settings apiKeyHelper"),
        ({"claude_config_dir": "~/other"}, "claude_config_dir"),
        ({"agent_type": "command", "command": ["sh"]}, "a plain program, which asks nobody"),
    ],
)
def test_m8_a_role_that_would_be_another_without_it_is_beyond_the_ceiling(
    fields: dict[str, Any], name: str
) -> None:
    ceiling = rights_of(role("mother"), is_sandboxed=False)
    child = role(**fields)
    assert beyond(child, ceiling) == [name]
    assert beyond(child, rights_of(child, is_sandboxed=False)) == []
    # Also if the person changes the role later, and the child starts again.
    lowered = limited(child, ceiling)
    assert not any(lowered.hooks.values())
    assert (lowered.settings, lowered.claude_config_dir) in (({}, None), ({}, "session"))


def test_m8_who_is_asked_nothing_may_start_programs() -> None:
    program = role(agent_type="command", command=["sh"])
    for fields in ({"permission_mode": "bypassPermissions"}, {"permissions": {"allow": ["Bash"]}}):
        assert beyond(program, rights_of(role("free", **fields), is_sandboxed=False)) == []
    asked = rights_of(role("asked", permissions={"allow": ["Bash(git:*)"]}), is_sandboxed=False)
    assert beyond(program, asked)
    assert beyond(program, lower(rights_of(program, is_sandboxed=False), asked))


@pytest.mark.parametrize(
    ("path", "is_shown"),
    [("~/.ssh", False), ("/etc/shadow", False), ("../other", False), ("docs", True), (".", True)],
)
def test_m8_a_path_outside_is_read_only_if_the_parent_reads_it(path: str, is_shown: bool) -> None:
    child = role(sandbox={"read_only_paths": [path]})
    assert (path in limited(child, PARENT).sandbox.read_only_paths) is is_shown
    assert path in limited(child, None).sandbox.read_only_paths
    reads = rights_of(child, is_sandboxed=True)
    assert path in limited(child, reads).sandbox.read_only_paths
    # What is read-only for the parent is so for the child.
    assert limited(role(), reads).sandbox.read_only_paths == (path,)
    assert (path in lower(reads, PARENT).read_only_paths) is is_shown
