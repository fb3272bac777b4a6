"""Gemini CLI's transcripts: one file per conversation, a line of JSON for each message. Pure.

A message with tools comes twice: when it was said, and again with the tools and their results.
"""

from collections.abc import Iterator
from typing import Any

from bullpen.engines import entries, parse
from bullpen.engines.gemini.headless import ON
from bullpen.engines.lines import detail_of
from bullpen.model.transcript import Entry


def read_entries(fields: dict[str, Any]) -> Iterator[Entry]:
    """What a line says; nothing for what the program wrote for itself."""
    at, key = entries.moment(fields.get("timestamp")), parse.text(fields.get("id"))
    content = fields.get("content")
    if fields.get("type") == "user":
        texts = [parse.text(part.get("text")) for part in parse.dicts(content)]
        if any(texts):
            yield entries.prompt("\n".join(texts), at, key)
    elif fields.get("type") == "gemini":
        if content:
            yield entries.answer(content, at, key)
        for call in parse.dicts(fields.get("toolCalls")):
            id, when = parse.text(call.get("id")), entries.moment(call.get("timestamp"))
            given = call.get("args")
            yield entries.tool(call.get("name"), detail_of(given, ON), at, id, id, given)
            for part in parse.dicts(call.get("result")):
                response = parse.fields(parse.fields(part.get("functionResponse")).get("response"))
                output = response.get("output") or response.get("error")
                yield entries.result(output, when, f"{id} result", id)
