"""The difference of two trees as text, up to a limit, with a list of what was left out.

Git runs in an empty directory without an index, so that no `.gitattributes` of an agent's says that
its files are not to be shown. Called by `changes`. Writes nothing.
"""

import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bullpen.worktrees.commits import log_words, plain_line
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import Checkout, git
from bullpen.worktrees.own_index import HONEST, Look

MOST_DIFF_BYTES = 1 << 20
MOST_LOG_BYTES = 1 << 18
MOST_NAMES_BYTES = 1 << 20
MOST_FILE_BYTES = 1 << 20  # a larger one is not looked into
MOST_OTHERS = 100
PIECE_BYTES = 1 << 16
DIFF = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")
HEADER = b"diff --git "  # begins the part of each file, and no other line
CUT = "\n… the rest is left out\n"


@dataclass(frozen=True)
class Trees:
    """Shows trees; `objects` are directories of objects besides the repository's own."""

    look: Look
    empty: Path  # a directory
    objects: tuple[Path, ...]

    def log(self, base: str) -> str:
        """The commits since `base`, each with its files."""
        output, is_cut = self._beginning(log_words(self.look.head, base), MOST_LOG_BYTES)
        lines = [plain_line(line) for line in output.split(b"\n")]
        return "\n".join(lines) + (CUT if is_cut else "")

    def diff(self, old: str, new: str, names: Iterable[str] = ()) -> str:
        """What git shows, and the names of files that it does not show whole."""
        words = (*DIFF, old, new, "--", *names)
        output, is_cut = self._beginning(words, MOST_DIFF_BYTES)
        text = output.decode("utf-8", "backslashreplace")
        if not is_cut:
            return text
        words = (*DIFF, "--name-only", "-z", old, new, "--", *names)
        listed, is_list_cut = self._beginning(words, MOST_NAMES_BYTES)
        shown = output.count(b"\n" + HEADER) + output.startswith(HEADER)
        left_out = [name for name in listed.split(b"\0") if name][max(0, shown - 1) :]
        more = "# and more, too many to name\n" if is_list_cut else ""
        return text + CUT + list_of(left_out, "not shown, or not to its end") + more

    def numstat(self, old: str, new: str) -> str:
        """Of each file the lines that came and went; entries end in NUL."""
        words = (*DIFF, "--numstat", "-z", "--no-renames", old, new)
        output, is_cut = self._beginning(words, MOST_NAMES_BYTES)
        whole = output[: output.rindex(b"\0") + 1] if is_cut else output
        return os.fsdecode(whole)

    def _beginning(self, words: Iterable[str], most: int) -> tuple[bytes, bool]:
        """What git prints, up to a limit: there its pipe is closed, which ends it."""
        ours, theirs = os.pipe()
        output = bytearray()
        reading = threading.Thread(target=_read, args=(ours, output, most))
        reading.start()
        try:
            with os.fdopen(theirs, "wb") as pipe:
                done = git(
                    self.look.repo,
                    *words,
                    at=Checkout(self.empty, self.look.own.admin),
                    env={
                        **HONEST,
                        "GIT_LITERAL_PATHSPECS": "1",
                        "GIT_INDEX_FILE": str(self.empty / "none"),
                        "GIT_ALTERNATE_OBJECT_DIRECTORIES": quoted(self.objects),
                    },
                    timeout=max(0.1, self.look.deadline - time.monotonic()),
                    output=pipe,
                    accept=range(-64, 256),  # a closed pipe ends it by a signal
                )
        finally:
            reading.join()
        if len(output) > most:
            return bytes(output[:most]), True
        if done.code:
            raise WorktreeError(Code.GIT_FAILED, f"git failed: {plain_line(bytes(output[-500:]))}")
        return bytes(output), False


def quoted(paths: Iterable[Path]) -> str:
    """As in git's variables: a colon parts directories, so each is in quotes."""
    texts = (str(path).replace("\\", "\\\\").replace('"', '\\"') for path in paths)
    return ":".join(f'"{text}"' for text in texts)


def list_of(names: list[bytes], what: str) -> str:
    """Names under a heading, as comments; empty if there are none."""
    if not names:
        return ""
    lines = [plain_line(name) for name in names[:MOST_OTHERS]]
    more = [f"and {len(names) - MOST_OTHERS} more"] if len(names) > MOST_OTHERS else []
    return "\n".join([f"# {what}:", *(f"#   {line}" for line in [*lines, *more])]) + "\n"


def _read(descriptor: int, output: bytearray, most: int) -> None:
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while len(output) <= most and (piece := file.read(PIECE_BYTES)):
            output += piece
