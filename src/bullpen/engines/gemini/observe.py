"""What Gemini CLI says of itself, as observations. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from bullpen.engines import parse
from bullpen.engines.gemini import headless
from bullpen.engines.gemini.rules import SHELL, TOOLS
from bullpen.engines.hooks import event_and_tool, told_by
from bullpen.engines.lines import Line
from bullpen.engines.parts import ModelObserve
from bullpen.model.state import Blocked, EngineReport, Idle, State, Working

QUESTIONS = ("ask_user", "exit_plan_mode")


# Its dialogs at a start (0.61.0), by what they say.
DIALOGS = {
    "Do you trust the files in this folder?": "trust",
    "How would you like to authenticate": "login",
    "Waiting for auth": "login",
    "Select Theme": "theme",
}


class GeminiObserve(ModelObserve):
    """`Observe` of Gemini CLI."""

    missing = "Gemini CLI has said nothing yet"
    dialogs: Mapping[str, str] = DIALOGS

    def observe(self, hook: Mapping[str, Any], at: float) -> EngineReport | None:
        state = _state_of_hook(*event_and_tool(hook), hook)
        return told_by(hook, at, state, "source", "message")

    def read_fields(self, fields: dict[str, Any]) -> Iterator[Line]:
        return headless.read_fields(fields)


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
    fields = parse.fields(details)
    kind = str(fields.get("type") or "")
    if kind in QUESTIONS:
        return Blocked(on="question")
    tool = {"exec": SHELL, "edit": TOOLS["Edit"], "info": TOOLS["WebFetch"]}.get(kind)
    return Blocked(on="permission", tool=tool or str(fields.get("toolName") or kind)[:80])
