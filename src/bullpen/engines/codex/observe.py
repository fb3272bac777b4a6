"""What Codex says of itself, as observations. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from bullpen.engines.codex import headless
from bullpen.engines.hooks import event_and_tool, told_by
from bullpen.engines.lines import Line
from bullpen.engines.parts import ModelObserve
from bullpen.model.state import EngineReport, Idle, State, Working

# Its dialogs at a start (0.166.0), by what they say.
DIALOGS = {
    "Trust this folder?": "trust",
    "hooks, and exec policies from untrusted folders stay disabled": "trust",
    "Sign in with ChatGPT": "login",
}


class CodexObserve(ModelObserve):
    """`Observe` of Codex."""

    missing = "Codex says nothing before its first prompt"
    dialogs: Mapping[str, str] = DIALOGS

    def observe(self, hook: Mapping[str, Any], at: float) -> EngineReport | None:
        state = _state_of_hook(*event_and_tool(hook), hook)
        return told_by(hook, at, state, "source", "trigger")

    def read_fields(self, fields: dict[str, Any]) -> Iterator[Line]:
        return headless.read_fields(fields)


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
