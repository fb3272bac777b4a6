"""Codex without a terminal: one prompt from a file, lines of JSON out. Pure."""

import re
from collections.abc import Iterator
from typing import Any

from bullpen.engines import loose
from bullpen.engines.lines import Begun, Fault, Line, Outcome, Retrying, Said, Used, detail_of

PROMPT = "prompt.txt"  # in the directory of a run
RECONNECTING = re.compile(r"Reconnecting(?:\D*(\d+)/\d+)?")
STATUS = re.compile(r"\bstatus:? (\d{3})\b")
# What 0.166.0 says of errors that pass by themselves, where it names no status.
PASSING = re.compile(
    r"high demand|stream disconnected|error sending request|network error|timed? ?out"
    r"|connection (?:failed|reset|closed)|overloaded",
    re.IGNORECASE,
)


def read_line(line: bytes) -> tuple[Line, ...]:
    """What a line says; nothing for kinds that nobody needs, and for what is none of its lines."""
    return tuple(_read(loose.read_fields(line)))


def _read(fields: dict[str, Any]) -> Iterator[Line]:
    """The answer is what was said last: the end of a turn does not repeat it."""
    kind, item = fields.get("type"), fields.get("item")
    if isinstance(item, dict):
        yield from _read_item(kind, item)
    elif kind == "thread.started":
        yield Begun(loose.conversation_id(fields.get("thread_id")))
    elif kind == "error":
        if found := RECONNECTING.search(loose.text(fields.get("message"))):
            attempt = int(found[1][:9]) if found[1] else 0
            yield Retrying(attempt, 0.0, loose.text(fields.get("message"))[:200])
    elif kind == "turn.failed":
        why = loose.text(loose.fields(fields.get("error")).get("message"))
        status = _status(why)
        fault: Fault = "rate_limit" if status == 429 else "claude_error"
        passes = status >= 500 if status else PASSING.search(why) is not None
        yield Outcome(fault, "", "", why=why or "the turn failed", is_retryable=passes)
    elif kind == "turn.completed":
        counts = loose.fields(fields.get("usage"))
        yield Outcome(
            "",
            "",
            "",
            input_tokens=loose.count(counts.get("input_tokens")),
            output_tokens=loose.count(counts.get("output_tokens")),
        )


def _read_item(kind: object, item: dict[str, Any]) -> Iterator[Line]:
    match kind, item.get("type"):
        case "item.completed", "agent_message":
            yield Said(loose.text(item.get("text")))
        case "item.started", "command_execution":
            yield Used("Bash", detail_of(item, ("command",)))  # as its hooks call it
        case "item.started", "mcp_tool_call":
            yield Used(f"mcp__{loose.text(item.get('server'))}__{loose.text(item.get('tool'))}")
        case "item.completed", "file_change":
            paths = [loose.text(each.get("path")) for each in loose.dicts(item.get("changes"))]
            yield Used("apply_patch", detail_of({"paths": paths}, ("paths",)))
        case "item.started", "web_search":
            yield Used("web_search", detail_of(item, ("query",)))
        case _:
            return


def _status(why: str) -> int:
    """The HTTP status that it names; 0 if it names none."""
    found = STATUS.search(why)
    return int(found[1]) if found else 0
