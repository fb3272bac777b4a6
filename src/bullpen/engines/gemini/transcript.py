"""Gemini CLI's transcripts: which conversations there are, and which messages they show. Reads
files, writes none.
"""

from pathlib import Path

from bullpen.engines import loose
from bullpen.engines.transcripts import find_told, read_lines
from bullpen.model.message import ids_in

TRANSCRIPTS = "tmp"  # in `.gemini`


def has_conversation(own: Path, id: str) -> bool:
    """Whether there is anything to resume: one that was killed in its first turn left a file
    without an answer in it."""
    for file in own.glob(f".gemini/tmp/*/chats/session-*-{loose.conversation_id(id)[:8]}.jsonl"):
        if any(b'"type":"gemini"' in line for line in read_lines(file)):
            return True
    return False


def find_shown(directory: Path, ids: set[str], since: float) -> set[str]:
    """Which of the ids are in a transcript below that directory that was written since then."""
    return find_told(directory.glob("*/chats/session-*.jsonl"), ids, since, _told)


def _told(line: bytes) -> set[str]:
    """The ids in what a line of a transcript shows the model to have been told: a prompt, or what
    a hook added. What it said itself, or read with a tool, proves nothing."""
    fields = loose.read_fields(line)
    if fields.get("type") != "user":
        return set()
    texts = []
    for part in map(loose.fields, loose.items(fields.get("content"))):
        of_tool = loose.fields(loose.fields(part.get("functionResponse")).get("response"))
        added = loose.text(of_tool.get("output")).rpartition("<hook_context>")
        texts += [loose.text(part.get("text")), added[2] if added[1] else ""]
    return set().union(*map(ids_in, texts))
