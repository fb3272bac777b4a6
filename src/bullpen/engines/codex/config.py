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
from bullpen.engines.codex.home import HOME
from bullpen.engines.codex.rules import OWN_TOOLS
from bullpen.engines.hooks import command_hooks
from bullpen.engines.own_home import merged
from bullpen.model.role import EngineHooks, Role, ShortHook

TOOLS = "bullpen"  # what engines call the server of the hub's tools
STARTUP_SECONDS = 60
CALL_SECONDS = 24 * 3600  # by itself it cuts a call after five minutes, progress or not
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
    of_person = {key: value for key, value in person.items() if key not in ("hooks", "projects")}
    of_role: dict[str, Any] = {"approval_policy": _approval_policy(role)}
    if role.model:
        of_role["model"] = role.model
    if role.instructions:
        of_role["developer_instructions"] = role.instructions
    if role.system_prompt:
        of_role["model_instructions_file"] = str(start.session / HOME.system)
    if start.is_sandboxed:  # a sandbox in a sandbox cannot be made, and nobody is there to ask
        of_role |= {"approval_policy": "never", "sandbox_mode": "danger-full-access"}
    # Its metrics are left out: half a megabyte each time, and its log has the tokens of every
    # request. The token for what it sends is in the environment, not in a file.
    logs = {"endpoint": f"{start.url}/v1/logs", "protocol": "json", "headers": {}}
    telemetry = {"otel": {"exporter": {"otlp-http": logs}, "log_user_prompt": False}}
    config = merged(of_person, QUIET, telemetry, {"mcp_servers": {}}, of_role, role.settings)
    if start.relay:
        config["mcp_servers"] = {**config["mcp_servers"], TOOLS: _tools(start, role)}
    config["projects"] = {start.cwd: {"trust_level": "trusted"}}
    config["hooks"] = _make_hooks(role, start)
    return config


def without_trust(config: Mapping[str, Any], *directories: str) -> dict[str, Any]:
    """The same for a repository whose settings are not used. Pure. Without trust Codex would also
    let nothing be written."""
    distrust = {"projects": {path: {"trust_level": "untrusted"} for path in directories}}
    return merged({"sandbox_mode": "workspace-write"}, config, distrust)


def _tools(start: Start, role: Role) -> dict[str, Any]:
    """The server of the hub's tools. What the role allows is not asked about."""
    server: dict[str, Any] = {
        "command": start.relay[0],
        "args": list(start.relay[1:]),
        "startup_timeout_sec": STARTUP_SECONDS,
        "tool_timeout_sec": CALL_SECONDS,
    }
    if OWN_TOOLS in role.permissions.allow or start.is_sandboxed:
        server["default_tools_approval_mode"] = "approve"
    return server


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
    file = HOME.own(start).resolve() / "config.toml"
    state = {
        f"{file}:{_label(event)}:{number}:{position}": {
            "trusted_hash": _trusted_hash(event, group.get("matcher"), action)
        }
        for event, groups in hooks.items()
        for number, group in enumerate(groups)
        for position, action in enumerate(group["hooks"])
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
    group = command_hooks(role, entry, "Codex", float)
    for action in group["hooks"]:
        # It knows whole seconds only.
        action["timeout"] = math.ceil(action.get("timeout") or DEFAULT_SECONDS)
    return group


def _group(command: str, seconds: int) -> dict[str, Any]:
    return {"hooks": [{"type": "command", "command": command, "timeout": seconds}]}


def _label(event: str) -> str:
    """PreToolUse -> pre_tool_use."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", event).lower()
