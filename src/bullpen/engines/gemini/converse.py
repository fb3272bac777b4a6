"""How Gemini CLI is given prompts, and which messages its transcripts show. Reads files, writes
none.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bullpen.engines import parse
from bullpen.engines.gemini import transcript
from bullpen.engines.parts import ModelConverse
from bullpen.engines.paste import clearing, plain
from bullpen.model.message import ids_in
from bullpen.model.transcript import Entry

READ_BYTES = 32 << 10  # of a paste, in `typing_seconds`


class GeminiConverse(ModelConverse):
    """`Converse` of Gemini CLI."""

    taken = "BeforeAgent"
    at_end = "AfterAgent"  # what it is refused with is its next prompt (0.61.0)
    adds = ("AfterTool",)  # it passes over what is added before one
    # It takes an Enter that it reads within 40 ms of a paste as part of it, and reads slowly at
    # the end of a turn; right after its start it loses what is typed.
    typing_seconds = 0.7

    def typed(self, text: str) -> tuple[bytes, ...]:
        # What follows an @ would be read as a file, or asked for in a dialog.
        escaped = plain(text).replace("@", "\\@")
        # A backslash before Enter, or `@x`, would keep it from being sent: a line break does not.
        paste = f"\x1b[200~{escaped}\n\x1b[201~".encode("utf-8", "replace")
        pauses = (b"",) * (len(paste) // READ_BYTES)
        return clearing(text), paste, *pauses, b"\r"

    def transcripts(self, state_files: Path) -> Iterable[Path]:
        return state_files.glob("*/chats/session-*.jsonl")

    def name_in_file(self, conversation: str) -> str:
        return conversation[:8]

    def entries_of(self, fields: dict[str, Any]) -> Iterator[Entry]:
        return transcript.read_entries(fields)

    def message_ids(self, line: bytes) -> set[str]:
        fields = parse.read_fields(line)
        if fields.get("type") != "user":
            return set()
        texts = []
        for part in map(parse.fields, parse.items(fields.get("content"))):
            of_tool = parse.fields(parse.fields(part.get("functionResponse")).get("response"))
            added = parse.text(of_tool.get("output")).rpartition("<hook_context>")
            texts += [parse.text(part.get("text")), added[2] if added[1] else ""]
        return set().union(*map(ids_in, texts))
