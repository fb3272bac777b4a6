"""What `run`, `send` and `task` say when a text came as several words."""

import shlex
from collections.abc import Sequence

from bullpen.errors import BullpenError


def forgotten_quotes(what: str, words: Sequence[str], before: Sequence[str]) -> BullpenError:
    """`words` were meant as one text, `before` is what has to stand in front of it."""
    return BullpenError(
        f"the {what} ends at {words[0]!r}, before: {' '.join(words[1:])} · quote it as a whole",
        hint=shlex.join([*before, " ".join(words)]),
    )
