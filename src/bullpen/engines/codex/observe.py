"""What Codex says of itself, as observations. Pure."""

from collections.abc import Mapping
from typing import Any

from bullpen.model.state import Idle, State, Told, Working


def observe(hook: Mapping[str, Any], at: float) -> Told | None:
    """What a hook says; None for those that say nothing of the state."""
    event = str(hook.get("hook_event_name") or "")
    tool = str(hook.get("tool_name") or "")[:80]
    state = _state_of_hook(event, tool, hook)
    if state is None:
        return None
    says = tool or str(hook.get("source") or hook.get("trigger") or "received")[:80]
    return Told(at=at, source=f"hook {event}", says=says, state=state)


def _state_of_hook(event: str, tool: str, hook: Mapping[str, Any]) -> State | None:
    """A request for a permission is not among them: who waits for the answer says so."""
    match event:
        case "SessionStart" if hook.get("source") != "compact":
            return Idle()
        case "Stop" | "Interrupt":  # the latter also for a refusal in its dialog
            return Idle()
        case "PostCompact" if hook.get("trigger") == "manual":  # nothing follows it
            return Idle()
        case "UserPromptSubmit" | "PostToolUse" | "PostCompact":
            return Working(doing="thinking")
        case "PreToolUse" | "PreCompact":
            return Working(tool=tool) if tool else Working(doing="compacting")
        case _:
            return None
