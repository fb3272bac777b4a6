"""How Claude Code is given prompts, how its hooks are answered, and which messages its transcripts
show. Reads files, writes none.

A prompt is there as a line of type `user` when it is taken, what a hook added as an attachment.
That something was queued is there, too, and proves nothing: the queue ends with the program.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bullpen.engines import parse
from bullpen.engines.claude import headless, transcript
from bullpen.engines.hooks import refusal
from bullpen.engines.parts import ModelConverse
from bullpen.engines.paste import pasted
from bullpen.model.message import ids_in
from bullpen.model.transcript import Entry

# Lines that hold prompts which nobody has taken yet, or what was sent to the model once more.
NO_PROOF = ("queue-operation", "api-request", "api-request-blob", "api-request-shape")


class ClaudeConverse(ModelConverse):
    """`Converse` of Claude Code."""

    taken = "UserPromptSubmit"
    at_end = "Stop"
    tools_seconds = 20.0  # in a terminal (2.1.325), whatever its variables say
    adds = ("PreToolUse", "PostToolUse")

    def typed(self, text: str) -> tuple[bytes, ...]:
        # What an interrupt put back into the input line would come before it.
        return (b"\x15" + pasted(text),)

    def message_line(self, text: str) -> bytes:
        return headless.user_line(text)

    def refuse(self, event: str, reason: str) -> str:
        return refusal(event, reason)

    def transcripts(self, state_files: Path) -> Iterable[Path]:
        return state_files.parent.glob("projects/*/*.jsonl")

    def entries_of(self, fields: dict[str, Any]) -> Iterator[Entry]:
        return transcript.read_entries(fields)

    def message_ids(self, line: bytes) -> set[str]:
        fields = parse.read_fields(line)
        if not fields or fields.get("type") in NO_PROOF:
            return set()
        return ids_in(line.decode("utf-8", "replace"))
