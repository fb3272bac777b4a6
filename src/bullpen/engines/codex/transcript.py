"""Codex's transcripts: one file per conversation, a line of JSON for each item. Pure."""

from collections.abc import Iterator
from typing import Any

from bullpen.engines import entries, parse
from bullpen.engines.codex.first_prompt import find_prompt
from bullpen.engines.lines import detail_of
from bullpen.model.transcript import Entry

ON = ("cmd", "command", "path", "query", "prompt", "message")
# What the program itself tells the model in the user's name.
CONTEXT = (
    "<environment_context>",
    "<user_instructions>",
    "<turn_aborted>",
    "<skill>",
    "# AGENTS.md ",
)


def read_entries(fields: dict[str, Any]) -> Iterator[Entry]:
    """What a line says; nothing for what the program wrote for itself."""
    if fields.get("type") != "response_item":
        return
    item, at = parse.fields(fields.get("payload")), entries.moment(fields.get("timestamp"))
    key, call = parse.text(item.get("id")), item.get("call_id")
    match item.get("type"), item.get("role"):
        case "message", "user":
            text = _text(item)
            prompt = find_prompt(text) or ("" if text.startswith(CONTEXT) else text)
            if prompt:
                yield entries.prompt(prompt, at, key)
        case "message", "assistant":
            yield entries.answer(_text(item), at, key)
        case "function_call", _:
            arguments = parse.read_fields(parse.text(item.get("arguments")).encode())
            detail = detail_of(arguments, ON)
            yield entries.tool(item.get("name"), detail, at, key, call, arguments)
        case "custom_tool_call", _:
            given = {"input": item.get("input")}
            yield entries.tool(item.get("name"), detail_of(given, ("input",)), at, key, call, given)
        case (("function_call_output" | "custom_tool_call_output"), _):
            yield entries.result(item.get("output"), at, key, call)


def _text(item: dict[str, Any]) -> str:
    return "\n".join(parse.text(part.get("text")) for part in parse.dicts(item.get("content")))
