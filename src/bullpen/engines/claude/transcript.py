"""Claude Code's transcripts: one file per conversation, a line of JSON for each block. Pure."""

from collections.abc import Iterator
from typing import Any

from bullpen.engines import entries, parse
from bullpen.engines.claude.headless import ON
from bullpen.engines.lines import detail_of
from bullpen.model.transcript import Entry


def read_entries(fields: dict[str, Any]) -> Iterator[Entry]:
    """What a line says; nothing for what the program wrote for itself or of its subagents."""
    if fields.get("isMeta") or fields.get("isSidechain"):
        return
    at, key = entries.moment(fields.get("timestamp")), parse.text(fields.get("uuid"))
    content = parse.fields(fields.get("message")).get("content")
    kind = fields.get("type")
    if kind == "user" and isinstance(content, str):
        yield entries.prompt(content, at, key)
    for block in parse.dicts(content) if kind in ("user", "assistant") else ():
        match kind, block.get("type"):
            case "user", "text":
                yield entries.prompt(block.get("text"), at, key)
            case "user", "tool_result":
                text = _text(block.get("content"))
                yield entries.result(text, at, key, block.get("tool_use_id"))
            case "assistant", "text":
                yield entries.answer(block.get("text"), at, key)
            case "assistant", "tool_use":
                given = block.get("input")
                detail = detail_of(given, ON)
                yield entries.tool(block.get("name"), detail, at, key, block.get("id"), given)


def _text(content: object) -> str:
    """Of a tool's result: a text, or several, and pictures."""
    if isinstance(content, str):
        return content
    return "\n".join(parse.text(block.get("text")) for block in parse.dicts(content))
