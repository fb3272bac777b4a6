"""Gemini CLI without a terminal: one prompt from a file, lines of JSON out. Pure."""

import re
from collections.abc import Iterator
from typing import Any

from bullpen.engines import parse
from bullpen.engines.lines import (
    Fault,
    Line,
    ModelText,
    RunOutcome,
    ToolDenied,
    ToolUsed,
    TurnBegun,
    detail_of,
)

CODE = re.compile(r'"code": ?(\d{3})\b')
LIMIT = re.compile(r"RESOURCE_EXHAUSTED|Please wait and try again later|\bquota\b")
# The arguments that say on what a tool is used.
ON = ("command", "file_path", "absolute_path", "dir_path", "path", "pattern", "query", "prompt")


def read_fields(fields: dict[str, Any]) -> Iterator[Line]:
    """What is said comes in pieces; the end of a run does not repeat it."""
    match fields.get("type"):
        case "init":
            yield TurnBegun(parse.conversation_id(fields.get("session_id")))
        case "message" if fields.get("role") == "assistant":
            yield ModelText(parse.text(fields.get("content")))
        case "tool_use":
            yield ToolUsed(
                parse.text(fields.get("tool_name")), detail_of(fields.get("parameters"), ON)
            )
        case "tool_result" if fields.get("status") == "error":
            why = parse.text(parse.fields(fields.get("error")).get("message"))
            if "denied by policy" in why or "requires user confirmation" in why:
                yield ToolDenied(parse.text(fields.get("tool_id")).partition("__")[0])
        case "result":
            yield _outcome(fields)
        case _:
            return


def _outcome(fields: dict[str, Any]) -> RunOutcome:
    """Whatever does not say that it went well did not."""
    stats = parse.fields(fields.get("stats"))
    tokens = parse.count(stats.get("input_tokens")), parse.count(stats.get("output_tokens"))
    if fields.get("status") == "success":
        return RunOutcome("", "", "", input_tokens=tokens[0], output_tokens=tokens[1])
    why = parse.text(parse.fields(fields.get("error")).get("message"))
    code = CODE.search(why)
    status = int(code[1]) if code else 0
    is_limit = status == 429 or LIMIT.search(why) is not None
    fault: Fault = "rate_limit" if is_limit else "engine_error"
    # It names no status for an API that is overloaded or out of reach, and no error at all for
    # an answer that broke off.
    passes = status >= 500 if status else not why or why.startswith("[API Error:")
    is_retryable = passes and not is_limit
    return RunOutcome(fault, "", "", why or "the run failed", *tokens, is_retryable=is_retryable)
