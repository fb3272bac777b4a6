"""What was said and done in a conversation, as its engine wrote it down. Values only."""

from typing import Annotated, Any, Literal

from pydantic import Field

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
    call: Annotated[str, Field(description="a tool and its result have the same; may be empty")] = (
        ""
    )
    input: Annotated[
        dict[str, Any] | None, Field(description="what the tool was given; long texts are cut")
    ] = None


class Transcript(Value):
    """A page. The next begins at `offset`; `more`: there is one already."""

    conversation: str
    entries: tuple[Entry, ...]
    offset: int
    more: bool
