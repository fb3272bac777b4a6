"""Codex's transcripts: which conversations there are, and which messages they show. Reads files,
writes none.
"""

import json
from pathlib import Path

from bullpen.engines import loose
from bullpen.engines.transcripts import find_told
from bullpen.model.message import ids_in

TRANSCRIPTS = "sessions"  # in the agent's own home


def has_conversation(own: Path, id: str) -> bool:
    """Whether there is anything to resume."""
    return any(own.glob(f"sessions/*/*/*/rollout-*-{loose.conversation_id(id)}.jsonl"))


def find_shown(directory: Path, ids: set[str], since: float) -> set[str]:
    """Which of the ids are in a transcript below that directory that was written since then."""
    return find_told(directory.glob("*/*/*/rollout-*.jsonl"), ids, since, _told)


def _told(line: bytes) -> set[str]:
    """The ids in what a line of a transcript shows the model to have been told: a prompt, or what
    a hook added. What it said itself, or read with a tool, proves nothing."""
    try:
        fields = json.loads(line)
        payload = fields["payload"]
        kind = fields["type"], payload["type"], payload["role"]
        texts = [loose.text(part["text"]) for part in payload["content"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return set()
    if kind not in (("response_item", "message", who) for who in ("user", "developer")):
        return set()
    return set().union(*map(ids_in, texts))
