"""How Codex is given prompts, and which messages its transcripts show. Reads files, writes none."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bullpen.engines import parse
from bullpen.engines.codex import transcript
from bullpen.engines.parts import ModelConverse
from bullpen.engines.paste import clearing, plain
from bullpen.model.message import ids_in
from bullpen.model.transcript import Entry


class CodexConverse(ModelConverse):
    """`Converse` of Codex."""

    taken = "UserPromptSubmit"
    at_end = "Stop"
    adds = ("PreToolUse", "PostToolUse")
    # A turn goes on for a moment after its Stop. A prompt that comes then is taken into that turn,
    # and never answered.
    typing_seconds = 0.5
    tools_seconds = 4.0  # less than its hook waits for an answer

    def typed(self, text: str) -> tuple[bytes, ...]:
        # After `@x` or `$x` Enter would choose from a list: so a line break comes between.
        keys = f"\x1b[200~{plain(text)}\n\x1b[201~\r"
        return clearing(text), keys.encode("utf-8", "replace")

    def transcripts(self, state_files: Path) -> Iterable[Path]:
        return state_files.glob("*/*/*/rollout-*.jsonl")

    def entries_of(self, fields: dict[str, Any]) -> Iterator[Entry]:
        return transcript.read_entries(fields)

    def message_ids(self, line: bytes) -> set[str]:
        try:
            fields = json.loads(line)
            payload = fields["payload"]
            kind = fields["type"], payload["type"], payload["role"]
            texts = [parse.text(part["text"]) for part in payload["content"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            return set()
        if kind not in (("response_item", "message", who) for who in ("user", "developer")):
            return set()
        return set().union(*map(ids_in, texts))
