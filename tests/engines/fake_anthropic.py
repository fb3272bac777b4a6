"""The model API that Claude Code speaks: POST /v1/messages, streaming or not.

Scripted by the prompt: see `script.py` for the language, `fake_model.py` for what a test can do
with a running fake. What the CLI asks for by itself (titles, summaries) is answered with `PLAIN`
and marked `side`.
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
from tests.engines.script import PLAIN

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


_COMPACT = "Respond with TEXT ONLY"  # how the request for a summary begins


class FakeAnthropic(FakeModel):
    """A fake of the Messages API."""

    def write(self, asked: ModelRequest, wire: Wire) -> BaseWriter | None:
        path = asked.path.partition("?")[0]
        if path == "/v1/messages/count_tokens":
            asked.side = True
            wire.send_json(200, {"input_tokens": INPUT_TOKENS})
        if path != "/v1/messages":
            return None
        return Writer(wire, asked.body, bool(asked.body.get("stream")))

    def read(self, body: Any) -> list[Entry]:
        entries = []
        for message in body["messages"]:
            if message["role"] == "assistant":
                entries.append(Entry("model"))
                continue
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for block in blocks:
                if block["type"] == "text":
                    entries.append(Entry("user", block["text"]))
                elif block["type"] == "tool_result":
                    entries.append(Entry("result", _text(block.get("content"))))
        return entries

    def side(self, body: Any) -> str | None:
        """A title and the like want JSON of a schema; a compaction wants a summary."""
        form = body.get("output_config", {}).get("format")
        if form:
            return json.dumps(
                {name: _filler(of) for name, of in form["schema"]["properties"].items()}
            )
        for entry in reversed(self.read(body)):
            if entry.who == "model":
                break
            if entry.who == "user" and _COMPACT in entry.text:
                return "<summary>ok</summary>"
        return None


def _text(content: Any) -> str:
    """Of a tool's result."""
    if isinstance(content, list):
        return "".join(block.get("text", "") for block in content)
    return str(content or "")


def _filler(schema: dict[str, Any]) -> Any:
    return {"boolean": True, "number": 1, "integer": 1}.get(schema.get("type", ""), PLAIN)


class Writer(BaseWriter):
    """One message."""

    def __init__(self, wire: Wire, body: Any, stream: bool) -> None:
        super().__init__(wire, body, stream)
        self._content: list[dict[str, Any]] = []

    def say(self, pieces: list[str], pause: float = 0.0, whole: bool = True) -> None:
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
        self._block({"type": "text", "text": ""}, deltas, pause, whole)
        self._content.append({"type": "text", "text": "".join(pieces)})

    def think(self, text: str) -> None:
        deltas = [
            {"type": "thinking_delta", "thinking": text},
            {"type": "signature_delta", "signature": "c2lnbmVk"},
        ]
        self._block({"type": "thinking", "thinking": "", "signature": ""}, deltas)
        self._content.append({"type": "thinking", "thinking": text, "signature": "c2lnbmVk"})

    def tool(self, name: str, value: dict[str, Any]) -> None:
        block = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:20]}", "name": name}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(value)}]
        self._block({**block, "input": {}}, deltas)
        self._content.append({**block, "input": value})

    def finish(self, called: bool) -> None:
        reason = "tool_use" if called else "end_turn"
        if self.stream:
            self._open()
        self.usage = (INPUT_TOKENS, OUTPUT_TOKENS)
        if not self.stream:
            message = self._message(self._content, reason, OUTPUT_TOKENS)
            return self.wire.send_json(200, message, _request_id())
        delta = {"stop_reason": reason, "stop_sequence": None}
        self._event("message_delta", delta=delta, usage={"output_tokens": OUTPUT_TOKENS})
        self._event("message_stop")

    def refuse(self, status: int, message: str, headers: dict[str, str]) -> None:
        kind = _KINDS.get(status, "api_error")
        error = {"type": "error", "error": {"type": kind, "message": message}}
        if self.wire.begun:
            return self._event("error", **error)
        self.wire.send_json(status, error, {**_request_id(), **headers})

    def _message(
        self, content: list[dict[str, Any]], reason: str | None, tokens: int
    ) -> dict[str, Any]:
        return {
            "id": f"msg_{uuid.uuid4().hex[:20]}",
            "type": "message",
            "role": "assistant",
            "model": self.body["model"],
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {
                "input_tokens": INPUT_TOKENS,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": tokens,
            },
        }

    def _open(self) -> None:
        if not self.wire.begun:
            self.wire.begin(200, "text/event-stream", _request_id())
            self.usage = (INPUT_TOKENS, 1)
            self._event("message_start", message=self._message([], None, 1))

    def _block(
        self,
        start: dict[str, Any],
        deltas: list[dict[str, Any]],
        pause: float = 0.0,
        whole: bool = True,
    ) -> None:
        if not self.stream:
            return
        self._open()
        index = len(self._content)
        self._event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            self._event("content_block_delta", index=index, delta=delta)
            time.sleep(pause)
        if whole:
            self._event("content_block_stop", index=index)

    def _event(self, name: str, **value: Any) -> None:
        self.wire.send_event({**value, "type": name}, name)


def _request_id() -> dict[str, str]:
    return {"request-id": f"req_{uuid.uuid4().hex[:20]}"}
