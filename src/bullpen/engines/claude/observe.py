"""What Claude Code says of itself, as observations. Pure.

Its state file is right after an interrupt and a refusal, which fire no hook; hooks name the tool.
A prompt that is typed while it works fires its hook when it is queued, not when it begins: where
there is a state file, hooks only add detail.
"""

from collections.abc import Mapping
from typing import Any

from bullpen.engines import loose
from bullpen.engines.base import StateFile
from bullpen.model.state import STATE_FILE, Blocked, Idle, State, Told, Working

# Tools by which it asks the person something: they end when they are answered.
QUESTIONS = frozenset({"AskUserQuestion", "ExitPlanMode"})
LAST_MILLISECOND = 2**32 * 1000


def read_state_file(text: bytes) -> StateFile | None:
    """What the file says; None for a file that is being written or is none of these."""
    fields = loose.read_fields(text)
    session, pid = loose.conversation_id(fields.get("sessionId")), fields.get("pid")
    if not session or not isinstance(pid, int):
        return None
    ticks = str(fields.get("procStart") or "")
    status, since = fields.get("status"), fields.get("statusUpdatedAt")
    state = _state(status, fields.get("waitingFor"))
    # One that no calendar holds is an agent's own idea: it may have written the file.
    if state is None or not isinstance(since, int | float) or not 0 <= since < LAST_MILLISECOND:
        return StateFile(session, pid, None, ticks)
    says = f"{status}: {fields['waitingFor']}" if fields.get("waitingFor") else str(status)
    told = Told(at=since / 1000, source=STATE_FILE, says=says[:80], state=state, rung="file")
    return StateFile(session, pid, told, ticks)


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


def observe(hook: Mapping[str, Any], at: float) -> Told | None:
    """What a hook says; None for those that say nothing of the state, or say it too late."""
    event = str(hook.get("hook_event_name") or "")
    tool = str(hook.get("tool_name") or "")[:80]
    state = _state_of_hook(event, tool, str(hook.get("source") or ""))
    if state is None:
        return None
    says = tool or str(hook.get("error") or hook.get("source") or "received")[:80]
    return Told(at=at, source=f"hook {event}", says=says, state=state)


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
    "StopFailure": Idle(),
    "UserPromptSubmit": Working(doing="thinking"),
    "PostToolUse": Working(doing="thinking"),
    "PostToolUseFailure": Working(doing="thinking"),
    "PreCompact": Working(doing="compacting"),
    "PostCompact": Working(doing="thinking"),
}
