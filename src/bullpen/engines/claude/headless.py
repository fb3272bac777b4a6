"""Claude Code without a terminal: one prompt on pipes, lines of JSON in and out. Pure.

A run has succeeded when its result says so: its exit code is 0 also after an interrupt, and its
"subtype" says success also after an error of the model's API.
"""

import json
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
    Used,
)
from bullpen.engines.claude.observe import conversation_id

FORM = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
# By itself it would ask a dead API for three minutes.
RETRIES = {"CLAUDE_CODE_MAX_RETRIES": "3"}
ABORTED = ("aborted_streaming", "aborted_tools")


def user_line(text: str) -> bytes:
    """A prompt."""
    return _line({"type": "user", "message": {"role": "user", "content": text}})


INTERRUPT = (
    b'{"type":"control_request","request_id":"interrupt","request":{"subtype":"interrupt"}}\n'
)


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
            for block in _blocks(fields):
                if block.get("type") == "text":
                    yield Said(_text(block.get("text")))
                elif block.get("type") == "tool_use":
                    yield Used(_text(block.get("name")))
        case "result", _:
            yield _outcome(fields)
        case _:
            return


def _outcome(fields: dict[str, Any]) -> Outcome:
    usage = fields.get("usage") if isinstance(fields.get("usage"), dict) else {}
    assert isinstance(usage, dict)
    text = _text(fields.get("result"))
    fault = _fault(fields)
    errors = "; ".join(map(_text, _list(fields.get("errors"))))
    denials = [each for each in _list(fields.get("permission_denials")) if isinstance(each, dict)]
    return Outcome(
        fault=fault,
        text="" if fault else text,
        conversation=conversation_id(fields.get("session_id")),
        why=(errors or text or _text(fields.get("terminal_reason"))) if fault else "",
        input_tokens=sum(int(_number(usage.get(name))) for name in INPUT),
        output_tokens=int(_number(usage.get("output_tokens"))),
        conversation_usd=_number(fields.get("total_cost_usd")),
        denied=tuple(_text(each.get("tool_name")) for each in denials),
    )


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


def _blocks(fields: dict[str, Any]) -> list[dict[str, Any]]:
    message = fields.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in _list(content) if isinstance(block, dict)]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return max(0.0, float(value)) if is_one else 0.0  # type: ignore[arg-type]


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"
