"""The settings file of one Claude Code agent: the role's rules and hooks, and Bullpen's hooks.

Pure. Both kinds of hooks are kept, the role's first. A broken settings file fails open in Claude
Code, so what is made here is checked before it is handed over (`check`).
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from bullpen.errors import BullpenError, Kind
from bullpen.model.role import EngineHooks, Role, ShortHook

# Told over HTTP: no process per tool call. A hub that is away costs them nothing.
TOLD = (
    "SessionEnd",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "Stop",
    "StopFailure",
    "Notification",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
)
TOOLS = "bullpen"  # what engines call the server of the hub's tools
TOLD_SECONDS = 5
PROMPT_SECONDS = 30  # the first prompt waits for the tools, see `tools_seconds`
# For as long as a person may take to answer.
ASKED_SECONDS = 24 * 3600
CALL_MILLISECONDS = 24 * 3600 * 1000


def make_settings(
    role: Role,
    url: str,
    hook: Sequence[str],
    permission: Sequence[str],
    rules: Sequence[str] = (),
) -> dict[str, Any]:
    """The whole file. `url` takes hooks; `hook` and `permission` are commands for the two that
    cannot go over HTTP: one because Claude Code does not, one because it must outwait a hub
    that is away (a broken HTTP answer would be a denial)."""
    settings: dict[str, Any] = dict(role.settings)
    settings["permissions"] = {
        "allow": [*role.permissions.allow, *rules],
        "deny": list(role.permissions.deny),
    }
    if role.permission_mode == "bypassPermissions":
        settings["skipDangerousModePermissionPrompt"] = True  # else it asks at every start
    hooks: dict[str, list[Any]] = {}
    for event, entries in role.hooks.items():
        hooks[event] = [_engine_form(entry) for entry in entries]
    report = {
        "type": "http",
        "url": url,
        "headers": {"Authorization": "Bearer $BULLPEN_TOKEN"},
        "allowedEnvVars": ["BULLPEN_TOKEN"],
    }
    for event in TOLD:
        seconds = PROMPT_SECONDS if event == "UserPromptSubmit" else TOLD_SECONDS
        hooks.setdefault(event, []).append({"hooks": [{**report, "timeout": seconds}]})
    hooks.setdefault("SessionStart", []).append(_command(hook, TOLD_SECONDS))
    hooks.setdefault("PermissionRequest", []).append(_command(permission, ASKED_SECONDS))
    settings["hooks"] = hooks
    return settings


def make_servers(addresses: Mapping[str, str], relay: Sequence[str] = ()) -> dict[str, Any]:
    """The file of servers of tools; `relay` is the command of the hub's own. A call to one may last
    as long as what it waits for: without a limit of its own, a silent call is cut after five
    minutes."""
    servers: dict[str, Any] = {
        name: {
            "type": "http",
            "url": url,
            "headers": {"Authorization": "Bearer ${BULLPEN_TOKEN}"},
            "timeout": CALL_MILLISECONDS,
        }
        for name, url in addresses.items()
    }
    if relay:
        command = {"type": "stdio", "command": relay[0], "args": list(relay[1:])}
        # Connected before the first prompt, and its tools are always in it.
        servers[TOOLS] = {**command, "timeout": CALL_MILLISECONDS, "alwaysLoad": True}
    return {"mcpServers": servers}


def check(text: str) -> str:
    """The text itself, if Claude Code will read the same from it as we wrote."""
    settings = json.loads(text)
    hooks = settings.get("hooks")
    if not isinstance(hooks, dict) or not {*TOLD, "PermissionRequest"} <= hooks.keys():
        raise BullpenError(
            "the settings for Claude Code came out wrong; it would run without its rules",
            kind=Kind.UNSUPPORTED,
        )
    return text


def _engine_form(entry: ShortHook | EngineHooks) -> dict[str, Any]:
    if isinstance(entry, EngineHooks):
        return entry.model_dump(mode="json", exclude_none=True)
    action: dict[str, Any] = {"type": "command", "command": entry.command}
    if entry.timeout is not None:
        action["timeout"] = entry.timeout
    return {"matcher": entry.matcher, "hooks": [action]}


def _command(words: Sequence[str], seconds: int) -> dict[str, Any]:
    return {"hooks": [{"type": "command", "command": shlex.join(words), "timeout": seconds}]}
