"""The model API that Gemini CLI speaks: generateContent and streamGenerateContent.

Scripted by the prompt: see `script.py` and `fake_model.py`. The CLI's own questions (which model
should answer, is the model done) want JSON of a schema, and get it.
"""

import json
import time
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
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
}


class FakeGemini(FakeModel):
    """A fake of the Gemini API."""

    def write(self, asked: ModelRequest, wire: Wire) -> BaseWriter | None:
        verb = asked.path.partition("?")[0].rpartition(":")[2]
        if verb == "countTokens":
            asked.side = True
            wire.send_json(200, {"totalTokens": INPUT_TOKENS})
        if verb not in ("generateContent", "streamGenerateContent"):
            return None
        return Writer(wire, asked.body, stream=verb == "streamGenerateContent")

    def read(self, body: Any) -> list[Entry]:
        entries = []
        for content in body["contents"]:
            for part in content["parts"]:
                if content.get("role") == "model":
                    entries.append(Entry("model"))
                elif "functionResponse" in part:
                    entries.append(Entry("result"))
                else:
                    entries.append(Entry("user", part.get("text", "")))
        return entries

    def side(self, body: Any) -> str | None:
        """Questions that want JSON are the CLI's own."""
        config = body.get("generationConfig", {})
        schema = config.get("responseJsonSchema") or config.get("responseSchema")
        if schema is None:
            return None
        return json.dumps({name: _filler(of) for name, of in schema["properties"].items()})


def _filler(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    kind = str(schema.get("type", "")).lower()
    return {"boolean": True, "number": 1, "integer": 1}.get(kind, PLAIN)


class Writer(BaseWriter):
    """One answer: a list of parts, streamed or in one."""

    def __init__(self, wire: Wire, body: Any, stream: bool) -> None:
        super().__init__(wire, body, stream)
        self._parts: list[dict[str, Any]] = []

    def say(self, pieces: list[str], pause: float = 0.0, whole: bool = True) -> None:
        for piece in pieces:
            self._part({"text": piece})
            time.sleep(pause)

    def think(self, text: str) -> None:
        self._part({"text": text, "thought": True})

    def tool(self, name: str, value: dict[str, Any]) -> None:
        self._part({"functionCall": {"name": name, "args": value}})

    def finish(self, called: bool) -> None:
        del called
        self.usage = (INPUT_TOKENS, OUTPUT_TOKENS)
        usage = {
            "promptTokenCount": INPUT_TOKENS,
            "candidatesTokenCount": OUTPUT_TOKENS,
            "totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        if self.stream:
            self.wire.send_event({**_answer([], "STOP"), "usageMetadata": usage})
        else:
            self.wire.send_json(200, {**_answer(self._parts, "STOP"), "usageMetadata": usage})

    def refuse(self, status: int, message: str, headers: dict[str, str]) -> None:
        kind = _KINDS.get(status, "UNAVAILABLE")
        error = {"error": {"code": status, "message": message, "status": kind}}
        if self.wire.begun:
            return self.wire.send_event(error)
        self.wire.send_json(status, error, headers)

    def _part(self, part: dict[str, Any]) -> None:
        self._parts.append(part)
        if self.stream:
            self.wire.send_event(_answer([part]))


def _answer(parts: list[dict[str, Any]], finish: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate]}
