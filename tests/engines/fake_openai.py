"""The model API that Codex speaks: POST /v1/responses, streaming.

Scripted by the prompt: see `script.py` and `fake_model.py`. Codex names its tools by model; what a
request offers is in `requests[0].body["tools"]`.
"""

import json
import time
import uuid
from typing import Any

from tests.engines.fake_model import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    Entry,
    FakeModel,
    ModelRequest,
    Wire,
)
from tests.engines.fake_model import Writer as BaseWriter


class FakeOpenAI(FakeModel):
    """A fake of the Responses API."""

    def write(self, asked: ModelRequest, wire: Wire) -> BaseWriter | None:
        if asked.path.partition("?")[0] != "/v1/responses" or not isinstance(asked.body, dict):
            return None
        return Writer(wire, asked.body, stream=True)

    def read(self, body: Any) -> list[Entry]:
        entries = []
        for item in body["input"]:
            if item.get("role") == "user":
                text = "".join(part.get("text", "") for part in item["content"])
                entries.append(Entry("user", text))
            elif item["type"].endswith("_output"):
                entries.append(Entry("result"))
            elif item["type"] in ("function_call", "reasoning") or item.get("role") == "assistant":
                entries.append(Entry("model"))
        return entries


class Writer(BaseWriter):
    """One response."""

    def __init__(self, wire: Wire, body: Any, stream: bool) -> None:
        super().__init__(wire, body, stream)
        self._response = {"id": f"resp_{uuid.uuid4().hex}", "object": "response"}
        self._items: list[dict[str, Any]] = []

    def say(self, pieces: list[str], pause: float = 0.0, whole: bool = True) -> None:
        item = {
            "type": "message",
            "role": "assistant",
            "id": f"msg_{uuid.uuid4().hex}",
            "content": [],
        }
        self._event("response.output_item.added", output_index=len(self._items), item=item)
        for piece in pieces:
            self._event("response.output_text.delta", item_id=item["id"], delta=piece)
            time.sleep(pause)
        if whole:
            text = {"type": "output_text", "text": "".join(pieces), "annotations": []}
            self._done({**item, "content": [text]})

    def think(self, text: str) -> None:
        summary = [{"type": "summary_text", "text": text}]
        self._done({"type": "reasoning", "id": f"rs_{uuid.uuid4().hex}", "summary": summary})

    def tool(self, name: str, value: dict[str, Any]) -> None:
        call = {"type": "function_call", "id": f"fc_{uuid.uuid4().hex}", "name": name}
        identity = {"call_id": f"call_{uuid.uuid4().hex}", "arguments": json.dumps(value)}
        # A tool of an MCP server is called as NAMESPACE/NAME.
        if "/" in name:
            call["namespace"], _, call["name"] = name.partition("/")
        self._done({**call, **identity})

    def finish(self, called: bool) -> None:
        del called
        self.usage = (INPUT_TOKENS, OUTPUT_TOKENS)
        usage = {
            "input_tokens": INPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": OUTPUT_TOKENS,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        response = {**self._response, "status": "completed", "output": self._items, "usage": usage}
        self._event("response.completed", response=response)

    def refuse(self, status: int, message: str, headers: dict[str, str]) -> None:
        error = {"message": message, "type": "scripted", "code": None}
        if self.wire.begun:
            response = {**self._response, "status": "failed", "error": error}
            return self._event("response.failed", response=response)
        self.wire.send_json(status, {"error": error}, headers)

    def _done(self, item: dict[str, Any]) -> None:
        self._event("response.output_item.done", output_index=len(self._items), item=item)
        self._items.append(item)

    def _event(self, name: str, **value: Any) -> None:
        if not self.wire.begun:
            created = {**self._response, "status": "in_progress", "output": []}
            self.wire.send_event(
                {"type": "response.created", "response": created}, "response.created"
            )
        self.wire.send_event({"type": name, **value}, name)
