"""`--override key=value`: what of a role may be changed for one launch, and how. Pure.

Only keys of the table can be overridden; others are changed in the role file. Used by the
command line and by pod templates.
"""

from collections.abc import Callable, Collection
from typing import Any

from bullpen.errors import BullpenError
from bullpen.suggest import did_you_mean


def _text(value: str) -> object:
    return value


def _boolean(value: str) -> object:
    if value.lower() not in ("true", "false"):
        raise ValueError(f'"{value}" is neither true nor false')
    return value.lower() == "true"


def _integer(value: str) -> object:
    if not (value.isascii() and value.lstrip("-").isdigit() and len(value) <= 18):
        raise ValueError(f'"{value}" is no whole number')
    return int(value)


def _number(value: str) -> object:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f'"{value}" is no number') from None


ALLOWED: dict[str, Callable[[str], object]] = {
    "description": _text,
    "agent_type": _text,
    "model": _text,
    "permission_mode": _text,
    "root_dir": _text,
    "claude_config_dir": _text,
    "worktree.enabled": _boolean,
    "worktree.branch_from": _text,
    "worktree.use_detached_head": _boolean,
    "worktree.setup": _text,
    "worktree.ports": _integer,
    "heartbeat.idle_timeout": _text,
    "heartbeat.message": _text,
    "heartbeat.condition": _text,
    "sandbox.enabled": _boolean,
    "sandbox.allow_network": _boolean,
    "budget.tokens": _integer,
    "budget.usd": _number,
    "budget.minutes": _integer,
}
# Known, but not to be changed from a command line: who the agent is, what it may do, and lists.
REFUSED = (
    "name",
    "instructions",
    "system_prompt",
    "permissions",
    "hooks",
    "settings",
    "env",
    "command",
    "deliver",
    "labels",
    "capabilities",
    "may_grant",
    "restart",
    "orphans",
    "max_children",
    "worktree.copy",
    "sandbox.read_only_paths",
    "sandbox.read_write_paths",
    "sandbox.ssh_agent",
    "sandbox.processes",
    "sandbox.memory_mb",
)


# What a mode of Claude's is called by the others. Those that are not here have no like.
MODES = {
    "gemini": {
        **dict.fromkeys(("default", "manual", "dontAsk"), "default"),
        "acceptEdits": "auto_edit",
        "plan": "plan",
        "bypassPermissions": "yolo",
    },
    "codex": dict.fromkeys(("default", "manual", "acceptEdits"), "on-request"),
}


def fit_engine(data: dict[str, Any], engine: str, changed: Collection[str]) -> None:
    """Change what a role says for another engine to what that one calls it: models are each
    engine's own. What was overridden as well stays as it is."""
    if engine == data.get("agent_type", "claude"):
        return
    if "model" not in changed:
        data.pop("model", None)
    mode = data.get("permission_mode")
    if "permission_mode" not in changed and mode in MODES.get(engine, {}):
        data["permission_mode"] = MODES[engine][mode]


def parse_override(text: str) -> tuple[str, object]:
    """`worktree.enabled=true` as key and typed value."""
    key, equals, value = text.partition("=")
    if not equals:
        raise BullpenError(f"an override is key=value, not {text!r}", hint="e.g. model=opus")
    problem = key_problem(key)
    if problem:
        raise BullpenError(problem)
    try:
        return key, ALLOWED[key](value)
    except ValueError as error:
        raise BullpenError(f"{key}: {error}") from error


def key_problem(key: str) -> str:
    """Why the key cannot be overridden; empty if it can."""
    if key in ALLOWED:
        return ""
    if any(key == refused or key.startswith(f"{refused}.") for refused in REFUSED):
        return f"{key} cannot be overridden · edit the role file"
    inside = [known for known in ALLOWED if known.startswith(f"{key}.")]
    if inside:
        return f"{key} is a block · override one of {', '.join(inside)}"
    return f"no such field: {key}{did_you_mean(key, [*ALLOWED, *REFUSED])}"
