"""Claude Code without a terminal: one prompt from a file, lines of JSON out. Pure.

The prompt is a line of JSON, too. With its input at an end from the beginning, it (2.1.325) does
the whole turn, waits for hooks that ask for a permission, and ends by itself.

A run has succeeded when its result says so: its exit code is 0 also after an interrupt, and its
"subtype" says success also after an error of the model's API.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from bullpen.engines import parse
from bullpen.engines.base import Start
from bullpen.engines.lines import (
    Fault,
    Line,
    ModelText,
    Partial,
    Retrying,
    RunOutcome,
    TokensSpent,
    ToolDenied,
    ToolUsed,
    TurnBegun,
    detail_of,
)

FORM = (
    *("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
    "--include-partial-messages",
)
# By itself it would ask a dead API for three minutes.
RETRIES = {"CLAUDE_CODE_MAX_RETRIES": "3"}
ABORTED = ("aborted_streaming", "aborted_tools")
PROMPT = "prompt.json"  # in the directory of the run
# Errors without a status of the API's: no answer came, unless it is one of these.
NO_LOGIN = re.compile(
    r"log ?in\b|logged in|authenticat|api key|oauth|credit balance", re.IGNORECASE
)
# The arguments that say on what a tool is used.
ON = (
    *("command", "file_path", "notebook_path", "path", "pattern", "url", "query", "skill"),
    *("description", "prompt"),
)


def user_line(text: str) -> bytes:
    """A prompt."""
    return _line({"type": "user", "message": {"role": "user", "content": text}})


def limits(start: Start) -> tuple[str, ...]:
    """The flags for the limits of one run; those of USD count from where it begins."""
    turns = ("--max-turns", str(start.max_turns)) if start.max_turns > 0 else ()
    usd = ("--max-budget-usd", f"{start.max_usd:f}") if start.max_usd > 0 else ()
    return (*turns, *usd)


def read_fields(fields: dict[str, Any]) -> Iterator[Line]:
    """What a line says."""
    match fields.get("type"), fields.get("subtype"):
        case "system", "init":
            servers = parse.dicts(fields.get("mcp_servers"))
            yield TurnBegun(
                parse.conversation_id(fields.get("session_id")),
                tuple(
                    f"{each.get('name')}: {each.get('status')}"
                    for each in servers
                    if each.get("status") not in ("connected", "pending")
                ),
            )
        case "system", "api_retry":
            why = f"{fields.get('error_status') or ''} {fields.get('error') or ''}".strip()
            yield Retrying(
                int(parse.number(fields.get("attempt"))),
                parse.number(fields.get("retry_delay_ms")) / 1000,
                why,
            )
        case "system", "permission_denied":
            yield ToolDenied(parse.text(fields.get("tool_name")))
        case "assistant", _:
            yield from _spent(fields)
            for block in _blocks(fields):
                if block.get("type") == "text":
                    yield ModelText(parse.text(block.get("text")))
                elif block.get("type") == "tool_use":
                    yield ToolUsed(parse.text(block.get("name")), detail_of(block.get("input"), ON))
        case "stream_event", _ if not fields.get("parent_tool_use_id"):  # none of a subagent's
            yield from _partial(parse.fields(fields.get("event")))
        case "result", _:
            yield _outcome(fields)
        case _:
            return


def _partial(event: dict[str, Any]) -> Iterator[Line]:
    """What is written before its block is whole; of texts only."""
    delta, block = parse.fields(event.get("delta")), parse.fields(event.get("content_block"))
    match event.get("type"):
        case "content_block_start" if block.get("type") == "text":
            yield Partial(parse.text(block.get("text")), is_first=True)
        case "content_block_delta" if delta.get("type") == "text_delta":
            yield Partial(parse.text(delta.get("text")))


def _spent(fields: dict[str, Any]) -> Iterator[Line]:
    """There is a line for each block of an answer, all with the same usage: what was known when
    the answer began."""
    message = parse.fields(fields.get("message"))
    used = _tokens(parse.fields(message.get("usage")))
    if any(used):  # what it says in the model's place used nothing
        yield TokensSpent(*used, answer=parse.text(message.get("id")))


def _outcome(fields: dict[str, Any]) -> RunOutcome:
    used = _tokens(parse.fields(fields.get("usage")))
    text = parse.text(fields.get("result"))
    fault = _fault(fields)
    errors = "; ".join(map(parse.text, parse.items(fields.get("errors"))))
    denials = parse.dicts(fields.get("permission_denials"))
    return RunOutcome(
        fault=fault,
        text="" if fault else text,
        conversation=parse.conversation_id(fields.get("session_id")),
        why=(errors or text or parse.text(fields.get("terminal_reason"))) if fault else "",
        input_tokens=used[0],
        output_tokens=used[1],
        conversation_usd=parse.number(fields.get("total_cost_usd")),
        denied=tuple(parse.text(each.get("tool_name")) for each in denials),
        is_retryable=fault == "engine_error" and _passes(fields, text),
    )


def _tokens(usage: dict[str, Any]) -> tuple[int, int]:
    given = sum(int(parse.number(usage.get(name))) for name in INPUT)
    return given, int(parse.number(usage.get("output_tokens")))


INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def _fault(fields: dict[str, Any]) -> Fault:
    """Whatever does not say that it went well did not."""
    reason = fields.get("terminal_reason")
    if fields.get("is_error") is False and reason in (None, "completed"):
        return ""
    if reason == "budget_exhausted" or fields.get("subtype") == "error_max_budget_usd":
        return "budget"  # perhaps in the middle of a tool, which is aborted then
    if reason in ABORTED:
        return "cancelled"
    return "rate_limit" if fields.get("api_error_status") == 429 else "engine_error"


def _passes(fields: dict[str, Any], text: str) -> bool:
    """Whether a failure passes by itself: those of the API that are its own, and of the way
    there."""
    if fields.get("terminal_reason") != "api_error":
        return False
    status = int(parse.number(fields.get("api_error_status")))
    return status >= 500 or status == 408 if status else NO_LOGIN.search(text) is None


def _blocks(fields: dict[str, Any]) -> list[dict[str, Any]]:
    return parse.dicts(parse.fields(fields.get("message")).get("content"))


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"
