"""What an agent may do at most, as a value: the ceiling of agents that other agents start. Pure.

A child's role is lowered to what its parent may grant (`limited`): rules that its parent could not
grant are left out, those that deny are added, a sandbox is never looser, and another reviewer than
its parent's judges nothing. What is left out is asked of a person, as everything is that no rule
decides. Variables, copied files, hooks and settings count only if the parent has the very same: the
former are left out, with the latter (or a plain program) it is `beyond` the ceiling and refused.
Stored in the child's session, because the parent's role may change or be gone when the child starts
again.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import TypeVar

from pydantic import BaseModel

from bullpen.model.role import Budget, ReviewerSettings, Role
from bullpen.model.value import Value

# What a permission mode lets a model do without asking, from nothing to everything.
MODE_RANKS = {
    **dict.fromkeys(("plan",), 0),
    **dict.fromkeys(("default", "manual", "dontAsk", "on-request"), 1),
    **dict.fromkeys(("acceptEdits", "auto_edit"), 2),
    **dict.fromkeys(("auto",), 3),
    **dict.fromkeys(("never", "yolo", "bypassPermissions"), 4),
}
MODES_OF = {
    "claude": ("plan", "manual", "acceptEdits", "auto", "bypassPermissions"),
    "gemini": ("plan", "default", "auto_edit", "auto_edit", "yolo"),
    "codex": ("on-request", "on-request", "on-request", "on-request", "never"),
}
LIMITS = ("tokens", "usd", "minutes")
ASKS = 1  # the rank of a role without a mode
ANYTHING = 4  # the rank of one that is asked nothing
LEFT_OUT = ("env ", "worktree.copy ", "reviewer")  # what a child of the role can do without
OWN_CONFIG = "session"  # a `claude_config_dir` that has nothing of anybody else's


class Rights(Value):
    """A ceiling. `sandboxed`: whether there must be a sandbox; `mode`: a rank of `MODE_RANKS`;
    `programs`: whether it may run any program without being asked; `given`: what it has word for
    word, as digests, because variables may be secrets and everybody sees the list of agents."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: int = ASKS
    sandboxed: bool = False
    network: bool = True
    ssh_agent: bool = True
    read_write_paths: tuple[str, ...] = ()
    read_only_paths: tuple[str, ...] = ()
    processes: int = 1 << 20
    memory_mb: int | None = None
    delegate: bool = True
    programs: bool = False
    given: tuple[str, ...] = ()
    budget: Budget = Budget()


def rights_of(role: Role, *, is_sandboxed: bool) -> Rights:
    """What an agent of that role may do. `is_sandboxed`: as it was started."""
    sandbox, mode = role.sandbox, MODE_RANKS.get(role.permission_mode or "", ASKS)
    is_free = mode == ANYTHING or "Bash" in role.permissions.allow
    return Rights(
        allow=role.permissions.allow,
        deny=role.permissions.deny,
        mode=mode,
        sandboxed=is_sandboxed,
        # A network or a path is only held back by a sandbox.
        network=sandbox.allow_network or not is_sandboxed,
        ssh_agent=sandbox.ssh_agent or not is_sandboxed,
        read_write_paths=sandbox.read_write_paths,
        read_only_paths=sandbox.read_only_paths if is_sandboxed else (),
        processes=sandbox.processes if is_sandboxed else 1 << 20,
        memory_mb=sandbox.memory_mb if is_sandboxed else None,
        delegate="delegate" in role.capabilities,
        programs=role.agent_type == "command" or is_free,
        given=tuple(sorted({digest for _, digest in _given_by(role)})),
        budget=role.budget,
    )


def lower(one: Rights, other: Rights) -> Rights:
    """What both allow."""
    return Rights(
        allow=tuple(rule for rule in one.allow if is_covered(rule, other.allow)),
        deny=tuple(dict.fromkeys((*one.deny, *other.deny))),
        mode=min(one.mode, other.mode),
        sandboxed=one.sandboxed or other.sandboxed,
        network=one.network and other.network,
        ssh_agent=one.ssh_agent and other.ssh_agent,
        read_write_paths=_both(one, other),
        read_only_paths=_readable(one.read_only_paths, other),
        processes=min(one.processes, other.processes),
        memory_mb=_least(one.memory_mb, other.memory_mb),
        delegate=one.delegate and other.delegate,
        programs=one.programs and other.programs,
        given=tuple(each for each in one.given if each in other.given),
        budget=least_budget(one.budget, other.budget),
    )


def limited(role: Role, ceiling: Rights | None) -> Role:
    """The role, with nothing in it that goes beyond the ceiling; None: there is none."""
    if ceiling is None:
        return role
    is_sandboxed = role.sandbox.enabled is True or ceiling.sandboxed
    rights = lower(rights_of(role, is_sandboxed=is_sandboxed), ceiling)
    reviewer = role.permissions.agent
    if reviewer.is_on and _digest("reviewer", reviewer) not in ceiling.given:
        reviewer = ReviewerSettings()
    permissions = role.permissions.model_copy(
        update={"allow": rights.allow, "deny": rights.deny, "agent": reviewer}
    )
    sandbox = role.sandbox.model_copy(
        update={
            "enabled": True if ceiling.sandboxed else role.sandbox.enabled,
            "allow_network": role.sandbox.allow_network and ceiling.network,
            "ssh_agent": role.sandbox.ssh_agent and ceiling.ssh_agent,
            "read_write_paths": rights.read_write_paths
            if ceiling.sandboxed
            else role.sandbox.read_write_paths,
            "read_only_paths": _readable(role.sandbox.read_only_paths, ceiling),
            "processes": min(role.sandbox.processes, ceiling.processes),
            "memory_mb": _least(role.sandbox.memory_mb, ceiling.memory_mb),
        }
    )
    return role.model_copy(
        update={
            "permissions": permissions,
            "permission_mode": _mode(role, ceiling),
            "sandbox": sandbox,
            **_only_given(role, ceiling),
            "budget": rights.budget,
            "capabilities": role.capabilities if ceiling.delegate else (),
        }
    )


def beyond(role: Role, ceiling: Rights) -> list[str]:
    """What of the role goes beyond the ceiling and cannot be left out: without a hook or a setting
    it would be another role, and perhaps one that is held back less."""
    names = [name for name in not_given(role, ceiling) if not name.startswith(LEFT_OUT)]
    is_program = role.agent_type == "command" and not ceiling.programs
    return ["a plain program, which asks nobody", *names] if is_program else names


def not_given(role: Role, ceiling: Rights) -> list[str]:
    """What the role has word for word, and its parent may not grant."""
    names = dict.fromkeys(name for name, digest in _given_by(role) if digest not in ceiling.given)
    if ceiling.sandboxed or role.agent_type != "claude":  # a directory of its own, or none at all
        names.pop("claude_config_dir", None)
    return list(names)


def more_than(role: Role, granted: Role) -> list[str]:
    """What tasks of one role may do that tasks of the other may not, as names of rights. Tasks are
    in a sandbox unless their role turns it off."""
    own, most = (
        rights_of(each, is_sandboxed=each.sandbox.enabled is not False) for each in (role, granted)
    )
    least = lower(own, most)
    names = [name for name in Rights.model_fields if name != "budget"]  # that is the task's own
    return [name for name in names if getattr(own, name) != getattr(least, name)]


def _given_by(role: Role) -> Iterator[tuple[str, str]]:
    """What a role gives word for word: the name for people, and the digest."""
    if role.permissions.agent.is_on:
        yield "reviewer", _digest("reviewer", role.permissions.agent)
    for name, value in role.env.items():
        yield f"env {name}", _digest("env", name, value)
    for glob in role.worktree.copy_globs:
        yield f"worktree.copy {glob}", _digest("copy", glob)
    for event, hooks in role.hooks.items():
        for hook in hooks:
            yield f"hooks {event}", _digest("hook", event, hook)
    for key, value in role.settings.items():
        yield f"settings {key}", _digest("setting", key, value)
    if role.claude_config_dir != OWN_CONFIG:
        yield "claude_config_dir", _digest("config", role.claude_config_dir)


def _digest(*words: object) -> str:
    plain = [
        each.model_dump(mode="json") if isinstance(each, BaseModel) else each for each in words
    ]
    text = json.dumps(plain, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _only_given(role: Role, ceiling: Rights) -> dict[str, object]:
    """Those fields of the role, without what is beyond the ceiling."""

    def has(*words: object) -> bool:
        return _digest(*words) in ceiling.given

    kept = tuple(glob for glob in role.worktree.copy_globs if has("copy", glob))
    fields: dict[str, object] = {
        "worktree": role.worktree.model_copy(update={"copy_globs": kept}),
        "env": {name: value for name, value in role.env.items() if has("env", name, value)},
        "settings": {
            key: value for key, value in role.settings.items() if has("setting", key, value)
        },
        "hooks": {
            event: tuple(hook for hook in hooks if has("hook", event, hook))
            for event, hooks in role.hooks.items()
        },
    }
    if not has("config", role.claude_config_dir):
        fields["claude_config_dir"] = OWN_CONFIG
    return fields


def is_covered(rule: str, rules: tuple[str, ...]) -> bool:
    """Whether one of these rules allows all that this one does: the same, the whole tool, or a
    command that begins in the same way."""
    tool, _, pattern = rule.partition("(")
    for other in rules:
        if other in (rule, tool) or (tool.startswith("mcp__") and tool.startswith(f"{other}__")):
            return True
        other_tool, _, other_pattern = other.partition("(")
        begins = other_pattern.removesuffix(")").removesuffix(":*")
        if (
            other_tool == tool
            and other_pattern.endswith(":*)")
            and "*" not in begins
            and _begins_with(pattern.removesuffix(")"), begins)
        ):
            return True
    return False


def least_budget(one: Budget, other: Budget) -> Budget:
    """Of each limit the smaller."""
    return Budget(
        tokens=_least(one.tokens, other.tokens),
        usd=_least(one.usd, other.usd),
        minutes=_least(one.minutes, other.minutes),
    )


def _begins_with(pattern: str, begins: str) -> bool:
    words = pattern.removesuffix(":*")
    return words == begins or words.startswith(f"{begins} ")


def _mode(role: Role, ceiling: Rights) -> str | None:
    rank = MODE_RANKS.get(role.permission_mode or "", ASKS)
    if rank <= ceiling.mode or role.agent_type not in MODES_OF:
        return role.permission_mode
    return MODES_OF[role.agent_type][ceiling.mode]


def _both(one: Rights, other: Rights) -> tuple[str, ...]:
    """Without a sandbox every path can be written."""
    if not other.sandboxed:
        return one.read_write_paths
    if not one.sandboxed:
        return other.read_write_paths
    return tuple(path for path in one.read_write_paths if path in other.read_write_paths)


def _readable(paths: tuple[str, ...], ceiling: Rights) -> tuple[str, ...]:
    """A path within the working directory is held back by this, one outside of it is shown."""
    seen = (*ceiling.read_only_paths, *ceiling.read_write_paths)
    kept = [
        path
        for path in paths
        if not ceiling.sandboxed
        or path in seen
        or not (path.startswith(("/", "~")) or ".." in path)
    ]
    return tuple(dict.fromkeys((*kept, *ceiling.read_only_paths)))


Number = TypeVar("Number", int, float)


def _least(one: Number | None, other: Number | None) -> Number | None:
    set_ones = [each for each in (one, other) if each is not None]
    return min(set_ones) if set_ones else None


def share(budget: Budget, used: Mapping[str, float], count: int) -> Budget | None:
    """What each of `count` new children gets of a parent's budget: an equal part of what is left
    after `used` (spent by the family, or given to children that live); as much stays with the
    parent. None: nothing is left. A limit that is not set stays so."""
    parts: dict[str, float | int | None] = {}
    for name in LIMITS:
        limit = getattr(budget, name)
        if limit is None:
            parts[name] = None
            continue
        part = (limit - used.get(name, 0.0)) / (count + 1)
        if name != "usd":
            part = int(part)
        if part <= 0:
            return None
        parts[name] = part
    return Budget.model_validate(parts)
