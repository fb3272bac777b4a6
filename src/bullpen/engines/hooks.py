"""Hooks of the common names: what they say of a state, and how they are answered. Pure.

An engine whose program has other names, or other answers, knows those itself.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from bullpen.errors import BullpenError, Kind
from bullpen.model.role import EngineHooks, Role, ShortHook
from bullpen.model.state import Blocked, EngineReport, Idle, State, Working

REFUSED = "The person in charge of this agent said no."


def told_by(
    hook: Mapping[str, Any], at: float, state: State | None, *keys: str
) -> EngineReport | None:
    """The observation that a hook is, given the state that it proves; None if it proves none. It
    is shown with its tool, or else with the first of these keys that says something."""
    if state is None:
        return None
    words = next((hook[key] for key in ("tool_name", *keys) if hook.get(key)), "received")
    source = f"hook {hook.get('hook_event_name') or ''}"
    return EngineReport(at=at, source=source, says=str(words)[:80], state=state)


def event_and_tool(hook: Mapping[str, Any]) -> tuple[str, str]:
    """The names of the event and of the tool."""
    return str(hook.get("hook_event_name") or ""), str(hook.get("tool_name") or "")[:80]


def observe_hook(hook: Mapping[str, Any], at: float) -> EngineReport | None:
    """`observe` of a program whose hooks have the common names and keys."""
    return told_by(hook, at, _state_of_hook(*event_and_tool(hook)))


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


def command_hooks(
    role: Role, entry: ShortHook | EngineHooks, program: str, to_timeout: Callable[[float], float]
) -> dict[str, Any]:
    """A role's hook for a program that runs commands only. `to_timeout` turns the seconds of a
    short hook into what the program counts in; a long one is written for the program already."""
    if isinstance(entry, ShortHook):
        actions: list[dict[str, Any]] = [{"type": "command", "command": entry.command}]
        if entry.timeout is not None:
            actions[0]["timeout"] = to_timeout(entry.timeout)
    else:
        actions = [action.model_dump(mode="json", exclude_none=True) for action in entry.hooks]
    if any(action["type"] != "command" or "command" not in action for action in actions):
        raise BullpenError(
            f"role {role.name}: {program} runs only hooks of type command", kind=Kind.UNSUPPORTED
        )
    return {**({"matcher": entry.matcher} if entry.matcher else {}), "hooks": actions}


def permission_answer(
    *,
    is_allowed: bool,
    reason: str = "",
    rule: str = "",
    tool_input: Mapping[str, Any] | None = None,
) -> str:
    """What the hook PermissionRequest is answered, whichever program has it. A rule is for the
    running session: Claude Code does not read a file given with --settings again. `tool_input`:
    what the tool is to run with, if not with what was asked for."""
    fields: dict[str, Any] = {"behavior": "allow" if is_allowed else "deny"}
    if not is_allowed:
        fields["message"] = reason or REFUSED
    if is_allowed and rule:
        fields["updatedPermissions"] = [_session_rule(rule)]
    if is_allowed and tool_input is not None:
        fields["updatedInput"] = tool_input
    output = {"hookEventName": "PermissionRequest", "decision": fields}
    return json.dumps({"hookSpecificOutput": output})


def _session_rule(rule: str) -> Mapping[str, Any]:
    tool, bracket, content = rule.partition("(")
    added = {"toolName": tool, "ruleContent": content[:-1]} if bracket else {"toolName": tool}
    return {
        "type": "addRules",
        "rules": [added],
        "behavior": "allow",
        "destination": "session",
    }


def addition(event: str, text: str) -> str:
    """`add` of every engine, for the hooks of its own that can show the model a text."""
    added = {"hookEventName": event, "additionalContext": text}
    return json.dumps({"hookSpecificOutput": added})


def blocked_turn(reason: str) -> str:
    """`hold` of every engine whose hook at the end of a turn has the common answers."""
    return json.dumps({"decision": "block", "reason": reason})


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
