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

from bullpen.engines.base import (
    Begun,
    Denied,
    Fault,
    Line,
    Outcome,
    Retrying,
    Said,
    Spent,
    Start,
    Used,
    detail_of,
    sound,
)
from bullpen.engines.claude.observe import conversation_id

FORM = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
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


def read_line(line: bytes) -> tuple[Line, ...]:
    """What a line says; nothing for kinds that nobody needs, and for what is none of its lines."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return ()
    return tuple(_read(fields)) if isinstance(fields, dict) else ()


def _read(fields: dict[str, Any]) -> Iterator[Line]:
    match fields.get("type"), fields.get("subtype"):
        case "system", "init":
            servers = [each for each in _list(fields.get("mcp_servers")) if isinstance(each, dict)]
            yield Begun(
                conversation_id(fields.get("session_id")),
                tuple(
                    f"{each.get('name')}: {each.get('status')}"
                    for each in servers
                    if each.get("status") not in ("connected", "pending")
                ),
            )
        case "system", "api_retry":
            why = f"{fields.get('error_status') or ''} {fields.get('error') or ''}".strip()
            yield Retrying(
                int(_number(fields.get("attempt"))),
                _number(fields.get("retry_delay_ms")) / 1000,
                why,
            )
        case "system", "permission_denied":
            yield Denied(_text(fields.get("tool_name")))
        case "assistant", _:
            yield from _spent(fields)
            for block in _blocks(fields):
                if block.get("type") == "text":
                    yield Said(_text(block.get("text")))
                elif block.get("type") == "tool_use":
                    yield Used(_text(block.get("name")), detail_of(block.get("input"), ON))
        case "result", _:
            yield _outcome(fields)
        case _:
            return


def _spent(fields: dict[str, Any]) -> Iterator[Line]:
    """There is a line for each block of an answer, all with the same usage: what was known when
    the answer began."""
    message = _fields(fields.get("message"))
    used = _tokens(_fields(message.get("usage")))
    if any(used):  # what it says in the model's place used nothing
        yield Spent(*used, answer=_text(message.get("id")))


def _outcome(fields: dict[str, Any]) -> Outcome:
    used = _tokens(_fields(fields.get("usage")))
    text = _text(fields.get("result"))
    fault = _fault(fields)
    errors = "; ".join(map(_text, _list(fields.get("errors"))))
    denials = [each for each in _list(fields.get("permission_denials")) if isinstance(each, dict)]
    return Outcome(
        fault=fault,
        text="" if fault else text,
        conversation=conversation_id(fields.get("session_id")),
        why=(errors or text or _text(fields.get("terminal_reason"))) if fault else "",
        input_tokens=used[0],
        output_tokens=used[1],
        conversation_usd=_number(fields.get("total_cost_usd")),
        denied=tuple(_text(each.get("tool_name")) for each in denials),
        is_retryable=fault == "claude_error" and _passes(fields, text),
    )


def _tokens(usage: dict[str, Any]) -> tuple[int, int]:
    given = sum(int(_number(usage.get(name))) for name in INPUT)
    return given, int(_number(usage.get("output_tokens")))


INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def _fault(fields: dict[str, Any]) -> Fault:
    """Whatever does not say that it went well did not."""
    reason = fields.get("terminal_reason")
    if fields.get("is_error") is False and reason in (None, "completed"):
        return ""
    if reason in ABORTED:
        return "cancelled"
    if reason == "budget_exhausted":
        return "budget"
    return "rate_limit" if fields.get("api_error_status") == 429 else "claude_error"


def _passes(fields: dict[str, Any], text: str) -> bool:
    """Whether a failure passes by itself: those of the API that are its own, and of the way
    there."""
    if fields.get("terminal_reason") != "api_error":
        return False
    status = int(_number(fields.get("api_error_status")))
    return status >= 500 or status == 408 if status else NO_LOGIN.search(text) is None


def _blocks(fields: dict[str, Any]) -> list[dict[str, Any]]:
    content = _fields(fields.get("message")).get("content")
    return [block for block in _list(content) if isinstance(block, dict)]


def _fields(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return sound(value) if isinstance(value, str) else ""


def _number(value: object) -> float:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return max(0.0, float(value)) if is_one else 0.0  # type: ignore[arg-type]


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"
