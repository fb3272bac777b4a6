"""Codex without a terminal: one prompt from a file, lines of JSON out. Pure."""

import re
from collections.abc import Iterator
from typing import Any

from bullpen.engines import parse
from bullpen.engines.lines import (
    Fault,
    Line,
    ModelText,
    Retrying,
    RunOutcome,
    ToolUsed,
    TurnBegun,
    detail_of,
)

RECONNECTING = re.compile(r"Reconnecting(?:\D*(\d+)/\d+)?")
STATUS = re.compile(r"\bstatus:? (\d{3})\b")
# What 0.166.0 says of errors that pass by themselves, where it names no status.
PASSING = re.compile(
    r"high demand|stream disconnected|error sending request|network error|timed? ?out"
    r"|connection (?:failed|reset|closed)|overloaded",
    re.IGNORECASE,
)


def read_fields(fields: dict[str, Any]) -> Iterator[Line]:
    """The answer is what was said last: the end of a turn does not repeat it."""
    kind, item = fields.get("type"), fields.get("item")
    if isinstance(item, dict):
        yield from _read_item(kind, item)
    elif kind == "thread.started":
        yield TurnBegun(parse.conversation_id(fields.get("thread_id")))
    elif kind == "error":
        if matched := RECONNECTING.search(parse.text(fields.get("message"))):
            attempt = int(matched[1][:9]) if matched[1] else 0
            yield Retrying(attempt, 0.0, parse.text(fields.get("message"))[:200])
    elif kind == "turn.failed":
        why = parse.text(parse.fields(fields.get("error")).get("message"))
        status = _status(why)
        fault: Fault = "rate_limit" if status == 429 else "engine_error"
        passes = status >= 500 if status else PASSING.search(why) is not None
        yield RunOutcome(fault, "", "", why=why or "the turn failed", is_retryable=passes)
    elif kind == "turn.completed":
        counts = parse.fields(fields.get("usage"))
        yield RunOutcome(
            "",
            "",
            "",
            input_tokens=parse.count(counts.get("input_tokens")),
            output_tokens=parse.count(counts.get("output_tokens")),
        )


def _read_item(kind: object, item: dict[str, Any]) -> Iterator[Line]:
    match kind, item.get("type"):
        case "item.completed", "agent_message":
            yield ModelText(parse.text(item.get("text")))
        case "item.started", "command_execution":
            yield ToolUsed("Bash", detail_of(item, ("command",)))  # as its hooks call it
        case "item.started", "mcp_tool_call":
            yield ToolUsed(f"mcp__{parse.text(item.get('server'))}__{parse.text(item.get('tool'))}")
        case "item.completed", "file_change":
            paths = [parse.text(each.get("path")) for each in parse.dicts(item.get("changes"))]
            yield ToolUsed("apply_patch", detail_of({"paths": paths}, ("paths",)))
        case "item.started", "web_search":
            yield ToolUsed("web_search", detail_of(item, ("query",)))
        case _:
            return


def _status(why: str) -> int:
    """The HTTP status that it names; 0 if it names none."""
    matched = STATUS.search(why)
    return int(matched[1]) if matched else 0
