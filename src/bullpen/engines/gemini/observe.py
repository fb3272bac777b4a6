"""What Gemini CLI says of itself, as observations. Pure."""

from collections.abc import Mapping
from typing import Any

from bullpen.engines import loose
from bullpen.engines.gemini.rules import SHELL, TOOLS
from bullpen.model.state import Blocked, Idle, State, Told, Working

QUESTIONS = ("ask_user", "exit_plan_mode")


def observe(hook: Mapping[str, Any], at: float) -> Told | None:
    """What a hook says; None for those that say nothing of the state."""
    event = str(hook.get("hook_event_name") or "")
    tool = str(hook.get("tool_name") or "")[:80]
    state = _state_of_hook(event, tool, hook)
    if state is None:
        return None
    says = tool or str(hook.get("source") or hook.get("message") or "received")[:80]
    return Told(at=at, source=f"hook {event}", says=says, state=state)


def _state_of_hook(event: str, tool: str, hook: Mapping[str, Any]) -> State | None:
    """PreCompress is not among them: it fires before every turn, whether anything is to be
    compressed or not."""
    match event:
        case "SessionStart" | "AfterAgent":  # the latter also for an error and an interrupt
            return Idle()
        case "BeforeAgent" | "AfterTool":
            return Working(doing="thinking")
        case "BeforeTool":
            return Working(tool=tool)
        case "Notification" if hook.get("notification_type") == "ToolPermission":
            return _blocked(hook.get("details"))
        case _:
            return None


def _blocked(details: object) -> Blocked:
    fields = loose.fields(details)
    kind = str(fields.get("type") or "")
    if kind in QUESTIONS:
        return Blocked(on="question")
    tool = {"exec": SHELL, "edit": TOOLS["Edit"], "info": TOOLS["WebFetch"]}.get(kind)
    return Blocked(on="permission", tool=tool or str(fields.get("toolName") or kind)[:80])
