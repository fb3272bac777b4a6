"""Claude Code's transcripts: which messages they show. Reads files, writes none.

A prompt is there as a line of type `user` when it is taken, what a hook added as an attachment.
That something was queued is there, too, and proves nothing: the queue ends with the program.
"""

import json
from pathlib import Path

from bullpen.engines.transcripts import CLOCKS, read_lines

# Lines that hold prompts which nobody has taken yet, or what was sent to the model once more.
NO_PROOF = ("queue-operation", "api-request", "api-request-blob", "api-request-shape")


def find_shown(config: Path, ids: set[str], since: float) -> set[str]:
    """Which of the ids are in a transcript of that directory that was written since then."""
    found: set[str] = set()
    # As they stand at the head of a message: whoever only mentions one proves nothing.
    wanted = {f"· {id}]".encode(): id for id in ids}
    for file in config.glob("projects/*/*.jsonl"):
        try:
            if file.stat().st_mtime < since - CLOCKS:
                continue
        except OSError:
            continue  # deleted in the meantime
        for line in read_lines(file):
            here = {id for text, id in wanted.items() if text in line}
            if here - found and _is_proof(line):
                found |= here
    return found


def _is_proof(line: bytes) -> bool:
    try:
        return json.loads(line).get("type") not in NO_PROOF
    except (ValueError, AttributeError, RecursionError):
        return False
