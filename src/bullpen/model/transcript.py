"""What was said and done in a conversation, as its engine wrote it down. Values only."""

from typing import Literal

from bullpen.model.value import Value

TEXT_CHARACTERS = 100_000
RESULT_CHARACTERS = 4_000


class Entry(Value):
    """One thing: a prompt, what the agent answered, a tool that it used, or what came of that. A
    line of a transcript may come twice, with more in it: `key` is the same then."""

    kind: Literal["prompt", "answer", "tool", "result"]
    at: float  # 0: not known
    text: str
    tool: str = ""
    key: str = ""


class Transcript(Value):
    """A page. The next begins at `offset`; `more`: there is one already."""

    conversation: str
    entries: tuple[Entry, ...]
    offset: int
    more: bool
