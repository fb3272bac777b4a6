"""The configuration of one Codex agent: what the person and the role set, the hooks of the role and
Bullpen's, and the marks that these are trusted. Writes nothing.

Codex runs a hook only if the hash of what it would run is written down as trusted: we write it.
"""

import hashlib
import json
import math
import re
import shlex
from collections.abc import Mapping
from typing import Any

from bullpen.engines.base import Start
from bullpen.engines.codex.home import SYSTEM, own_of
from bullpen.engines.own_home import merged
from bullpen.errors import BullpenError, Kind
from bullpen.model.role import EngineHooks, Role, ShortHook

TOLD_SECONDS = 5
# For as long as a person may take to answer.
ASKED_SECONDS = 24 * 3600
# What 0.166.0 gives these at most, whatever is asked for: the hash is of what it gives.
SHORT_SECONDS = 3
TOLD = {
    "SessionStart": TOLD_SECONDS,
    "SessionEnd": SHORT_SECONDS,
    "UserPromptSubmit": TOLD_SECONDS,
    "PreToolUse": TOLD_SECONDS,
    "PostToolUse": TOLD_SECONDS,
    "Stop": TOLD_SECONDS,
    "Interrupt": SHORT_SECONDS,
    "PreCompact": TOLD_SECONDS,
    "PostCompact": TOLD_SECONDS,
    "SubagentStart": TOLD_SECONDS,
    "SubagentStop": TOLD_SECONDS,
}
DEFAULT_SECONDS = 600  # of a hook that names none
WITHOUT_MATCHER = ("UserPromptSubmit", "Stop", "Interrupt", "SessionEnd")
# Without these it asks github.com and chatgpt.com for plugins and updates at every start. (In a
# terminal it asks githubusercontent.com for an announcement all the same.)
QUIET: dict[str, Any] = {
    "check_for_update_on_startup": False,
    "analytics": {"enabled": False},
    "features": {"plugins": False},
}


def make_config(start: Start, role: Role, person: Mapping[str, Any]) -> dict[str, Any]:
    """The whole of it. The role's `settings` win over the person's; hooks and trust are
    ours."""
    kept = {key: value for key, value in person.items() if key not in ("hooks", "projects")}
    asked: dict[str, Any] = {"approval_policy": _approval_policy(role)}
    if role.model:
        asked["model"] = role.model
    if role.instructions:
        asked["developer_instructions"] = role.instructions
    if role.system_prompt:
        asked["model_instructions_file"] = str(start.session / SYSTEM)
    if start.is_sandboxed:  # walls inside walls cannot be built, and nobody is there to ask
        asked |= {"approval_policy": "never", "sandbox_mode": "danger-full-access"}
    # Its metrics are left out: half a megabyte each time, and its log has the tokens of every
    # request. The token for what it sends is in the environment, not in a file.
    logs = {"endpoint": f"{start.url}/v1/logs", "protocol": "json", "headers": {}}
    told = {"otel": {"exporter": {"otlp-http": logs}, "log_user_prompt": False}}
    config = merged(kept, QUIET, told, {"mcp_servers": {}}, asked, role.settings)
    config["projects"] = {start.cwd: {"trust_level": "trusted"}}
    config["hooks"] = _make_hooks(role, start)
    return config


def _approval_policy(role: Role) -> str:
    return role.permission_mode or "on-request"


def _make_hooks(role: Role, start: Start) -> dict[str, Any]:
    """The role's hooks and ours, in that order, and the marks that they are trusted."""
    hooks: dict[str, list[dict[str, Any]]] = {
        event: [_engine_form(role, entry) for entry in entries]
        for event, entries in role.hooks.items()
    }
    for event, seconds in TOLD.items():
        hooks.setdefault(event, []).append(_group(shlex.join(start.hook), seconds))
    asking = _group(shlex.join(start.ask), ASKED_SECONDS)
    hooks.setdefault("PermissionRequest", []).append(asking)
    # Codex resolves the links of its home before it names a file in it.
    file = own_of(start).resolve() / "config.toml"
    state = {
        f"{file}:{_label(event)}:{number}:{place}": {
            "trusted_hash": _trusted_hash(event, group.get("matcher"), action)
        }
        for event, groups in hooks.items()
        for number, group in enumerate(groups)
        for place, action in enumerate(group["hooks"])
    }
    return {**hooks, "state": state}


def _trusted_hash(event: str, matcher: str | None, action: Mapping[str, Any]) -> str:
    """What Codex 0.166.0 makes of a hook to know it again."""
    known: dict[str, Any] = {
        "async": bool(action.get("async", False)),
        "command": action["command"],
        "timeout": action.get("timeout", DEFAULT_SECONDS),
        "type": "command",
    }
    if action.get("statusMessage"):
        known["statusMessage"] = action["statusMessage"]
    identity: dict[str, Any] = {"event_name": _label(event), "hooks": [known]}
    if matcher is not None and event not in WITHOUT_MATCHER:
        identity["matcher"] = matcher
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _engine_form(role: Role, entry: ShortHook | EngineHooks) -> dict[str, Any]:
    if isinstance(entry, ShortHook):
        actions: list[dict[str, Any]] = [{"command": entry.command, "timeout": entry.timeout}]
    else:
        dumped = [action.model_dump(mode="json", exclude_none=True) for action in entry.hooks]
        if any(action["type"] != "command" or "command" not in action for action in dumped):
            raise BullpenError(
                f"role {role.name}: Codex runs only hooks of type command", kind=Kind.UNSUPPORTED
            )
        actions = dumped
    for action in actions:
        action["type"] = "command"
        # It knows whole seconds only.
        action["timeout"] = math.ceil(action.get("timeout") or DEFAULT_SECONDS)
    return {**({"matcher": entry.matcher} if entry.matcher else {}), "hooks": actions}


def _group(command: str, seconds: int) -> dict[str, Any]:
    return {"hooks": [{"type": "command", "command": command, "timeout": seconds}]}


def _label(event: str) -> str:
    """PreToolUse -> pre_tool_use."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", event).lower()
