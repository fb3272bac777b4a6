"""Hooks of the common names: what they say of a state, and how they are answered. Pure.

An engine whose program has other names, or other answers, knows those itself.
"""

import json
from collections.abc import Mapping
from typing import Any

from bullpen.model.state import Blocked, Idle, State, Told, Working


def observe_hook(hook: Mapping[str, Any], at: float) -> Told | None:
    """`observe` of every engine whose hooks have the common names and keys."""
    event, tool = str(hook.get("hook_event_name", "")), str(hook.get("tool_name", ""))[:80]
    state = _state_of_hook(event, tool)
    if state is None:
        return None
    return Told(at=at, source=f"hook {event}", says=tool or "received", state=state)


def _state_of_hook(event: str, tool: str) -> State | None:
    """The state that a hook of the common names proves."""
    match event:
        case "SessionStart" | "Stop" | "StopFailure":
            return Idle()
        case "UserPromptSubmit" | "PostToolUse" | "PostToolUseFailure":
            return Working()
        case "PreToolUse":
            return Working(tool=tool)
        case "PermissionRequest":
            return Blocked(on="permission", tool=tool)
        case _:
            return None


def addition(event: str, text: str) -> str:
    """`add` of every engine, for the hooks of its own that can show the model a text."""
    added = {"hookEventName": event, "additionalContext": text}
    return json.dumps({"hookSpecificOutput": added})


def refusal(event: str, reason: str) -> str:
    """`refuse` of every engine whose hooks have the common names and answers."""
    match event:
        case "PreToolUse":
            decision = {
                "hookEventName": event,
                "permissionDecision": "deny",
                "permissionDecisionReason": reason,
            }
            return json.dumps({"hookSpecificOutput": decision})
        case "UserPromptSubmit":
            return json.dumps({"decision": "block", "reason": reason})
        case _:
            return ""
