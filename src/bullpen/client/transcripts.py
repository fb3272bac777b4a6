"""Calls of `/agents/{name}/transcript`. No I/O."""

from typing import TYPE_CHECKING

from bullpen.client.call import Call, Model, path

if TYPE_CHECKING:
    from bullpen.model.transcript import Transcript


def get_transcript(name: str, task: str = "", offset: int = 0) -> "Call[Transcript]":
    """A page of what was said and done; the next begins at the `offset` of this one."""
    return Call(
        "GET",
        path("agents", name, "transcript"),
        {"task": task or None, "offset": offset or None},
        read=Model("transcript.Transcript"),
    )
