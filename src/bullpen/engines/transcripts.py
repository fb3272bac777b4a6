"""Looking for messages in the transcripts that engines write. Reads files, writes none."""

from collections.abc import Callable, Iterable
from pathlib import Path

CLOCKS = 5.0  # seconds by which times of files and ours may differ


def find_told(
    files: Iterable[Path], ids: set[str], since: float, told: Callable[[bytes], set[str]]
) -> set[str]:
    """Which of the ids are in files written since then; `told` says which a line proves."""
    found: set[str] = set()
    for file in files:
        try:
            if file.stat().st_mtime < since - CLOCKS:
                continue
            with file.open("rb") as lines:
                for line in lines:
                    here = {id for id in ids - found if id.encode() in line}
                    found |= here & told(line) if here else set()
        except OSError:
            continue  # deleted in the meantime
    return found
