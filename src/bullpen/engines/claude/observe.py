"""What Claude Code says of itself, as observations. Pure.

Its state file is right after an interrupt and a refusal, which fire no hook; hooks name the tool.
A prompt that is typed while it works fires its hook when it is queued, not when it begins: where
there is a state file, hooks only add detail.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from bullpen.engines import parse
from bullpen.engines.base import RateLimited, StateFile
from bullpen.engines.claude import failures, headless, limits
from bullpen.engines.hooks import event_and_tool, told_by
from bullpen.engines.lines import Line
from bullpen.engines.parts import ModelObserve
from bullpen.model.state import STATE_FILE, Blocked, EngineReport, Idle, State, Working

# Tools by which it asks the person something: they end when they are answered.
QUESTIONS = frozenset({"AskUserQuestion", "ExitPlanMode"})
# Its dialogs at a start (2.1.325), by what they say; the last is below any of them.
DIALOGS = {
    "Is this a project you created or one you trust": "trust",
    "Choose the text style": "theme",
    "Select login method": "login",
    "Detected a custom API key": "API key",
    "MCP server found in this project": "MCP server",
    "MCP servers found in this project": "MCP server",
    "Bypass Permissions mode, Claude Code will not ask": "permission mode",
    "Make auto mode your default": "permission mode",
    "Enter to confirm": "other",
}
LAST_MILLISECOND = 2**32 * 1000


def read_state_file(text: bytes) -> StateFile | None:
    """What the file says; None for a file that is being written or is none of these."""
    fields = parse.read_fields(text)
    session, pid = parse.conversation_id(fields.get("sessionId")), fields.get("pid")
    if not session or not isinstance(pid, int):
        return None
    ticks = str(fields.get("procStart") or "")
    status, since = fields.get("status"), fields.get("statusUpdatedAt")
    state = _state(status, fields.get("waitingFor"))
    # One that no calendar holds is an agent's own idea: it may have written the file.
    if state is None or not isinstance(since, int | float) or not 0 <= since < LAST_MILLISECOND:
        return StateFile(session, pid, None, ticks)
    says = f"{status}: {fields['waitingFor']}" if fields.get("waitingFor") else str(status)
    report = EngineReport(
        at=since / 1000, source=STATE_FILE, says=says[:80], state=state, rung="file"
    )
    return StateFile(session, pid, report, ticks)


def _state(status: object, waiting_for: object) -> State | None:
    match status:
        case "idle":
            return Idle()
        case "busy":
            return Working()
        case "waiting":
            is_permission = "permission" in str(waiting_for)
            return Blocked(on="permission" if is_permission else "question")
        case _:
            return None


def observe(hook: Mapping[str, Any], at: float) -> EngineReport | None:
    """What a hook says; None for those that say nothing of the state, or say it too late."""
    event, tool = event_and_tool(hook)
    if event == "StopFailure":
        return told_by(hook, at, Idle(failed=failures.find_failure(hook)), "error")
    state = _state_of_hook(event, tool, str(hook.get("source") or ""))
    return told_by(hook, at, state, "source")


def _state_of_hook(event: str, tool: str, source: str) -> State | None:
    if event == "SessionStart" and source == "compact":
        return None  # in the middle of a turn
    if event == "PreToolUse":
        is_question = tool in QUESTIONS
        return Blocked(on="question", tool=tool) if is_question else Working(tool=tool)
    return STATES.get(event)


STATES: dict[str, State] = {
    "SessionStart": Idle(),
    "Stop": Idle(),
    "UserPromptSubmit": Working(doing="thinking"),
    "PostToolUse": Working(doing="thinking"),
    "PostToolUseFailure": Working(doing="thinking"),
    "PreCompact": Working(doing="compacting"),
    "PostCompact": Working(doing="thinking"),
}


class ClaudeObserve(ModelObserve):
    """`Observe` of Claude Code."""

    questions = QUESTIONS
    dialogs: Mapping[str, str] = DIALOGS

    def observe(self, hook: Mapping[str, Any], at: float) -> EngineReport | None:
        return observe(hook, at)

    def read_state_file(self, text: bytes) -> StateFile | None:
        return read_state_file(text)

    def limited(self, hook: Mapping[str, Any], now: float) -> RateLimited | None:
        return limits.limited(hook, now)

    def find_reset(self, words: str, now: float) -> float | None:
        return limits.find_reset(words, now)

    def read_fields(self, fields: dict[str, Any]) -> Iterator[Line]:
        return headless.read_fields(fields)
