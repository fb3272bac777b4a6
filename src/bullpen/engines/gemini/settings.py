"""The settings file of one Gemini CLI agent: what the person and the role set, and the hooks of
both and Bullpen's. Pure.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from bullpen.engines.base import Start
from bullpen.engines.hooks import command_hooks
from bullpen.engines.own_home import merged
from bullpen.model.role import Role

TOLD = (
    "SessionStart",
    "SessionEnd",
    "BeforeAgent",
    "AfterAgent",
    "BeforeTool",
    "AfterTool",
    "Notification",
)
TOLD_MILLISECONDS = 5_000
TOOLS = "bullpen"  # what engines call the server of the hub's tools
CALL_MILLISECONDS = 24 * 3600 * 1000  # as long as what a call waits for
ATTEMPTS = 3  # by itself it would ask an API that refuses ten times
QUIET: dict[str, Any] = {
    "general": {
        "enableAutoUpdate": False,
        "enableAutoUpdateNotification": False,
        "maxAttempts": ATTEMPTS,
    },
    "privacy": {"usageStatisticsEnabled": False},
    "ide": {"hasSeenNudge": True},
}


def make_settings(
    start: Start, role: Role, person: Mapping[str, Any], login: str
) -> dict[str, Any]:
    """The whole file. Pure. The role's `settings` win over the person's, which win over what we
    would rather have; hooks of all three are kept, in that order."""
    report = {
        "name": "bullpen",
        "type": "command",
        "command": shlex.join(start.hook),
        "timeout": TOLD_MILLISECONDS,
    }
    hooks: dict[str, list[Any]] = {}
    of_person = person.get("hooks")
    for event, entries in (of_person if isinstance(of_person, dict) else {}).items():
        hooks[event] = list(entries) if isinstance(entries, list) else []
    for event, entries in role.hooks.items():
        hooks.setdefault(event, []).extend(
            command_hooks(role, entry, "Gemini CLI", _milliseconds) for entry in entries
        )
    for event in TOLD:
        hooks.setdefault(event, []).append({"hooks": [report]})
    ours: dict[str, Any] = {
        "hooks": hooks,
        "hooksConfig": {"enabled": True},
        "security": {"auth": {"selectedType": login}, "folderTrust": {"enabled": True}},
        "telemetry": {
            "enabled": True,
            "target": "local",
            "otlpEndpoint": start.url,
            "otlpProtocol": "http",
            "logPrompts": False,
        },
        "context": {"fileName": _context_files(person, role)},
    }
    servers: dict[str, Any] = {"mcpServers": {}}
    if start.relay:
        command = {"command": start.relay[0], "args": list(start.relay[1:])}
        ours["mcpServers"] = {TOOLS: {**command, "timeout": CALL_MILLISECONDS}}
    return merged(QUIET, person, servers, role.settings, ours)


def _context_files(person: Mapping[str, Any], role: Role) -> list[str]:
    """Ours is called as it is by default; the person may have set other names."""
    for settings in (role.settings, person):
        context = settings.get("context")
        named = context.get("fileName") if isinstance(context, dict) else None
        if named:
            names = [named] if isinstance(named, str) else [str(name) for name in named]
            return names if "GEMINI.md" in names else [*names, "GEMINI.md"]
    return ["GEMINI.md"]


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
