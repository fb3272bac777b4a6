"""Calls of `/directors`: how they stand, and which may give tasks. No I/O."""

from typing import TYPE_CHECKING

from bullpen.client.call import Call, Model, Models, path

if TYPE_CHECKING:
    from bullpen.model.director import DirectorLetIn, DirectorShown


def list_directors() -> "Call[list[DirectorShown]]":
    """All directors of the home and how they stand, by name."""
    return Call("GET", path("directors"), read=Models("director.DirectorShown"))


def admit_director(name: str, token_hash: str) -> "Call[DirectorLetIn]":
    """Let a director in, by the SHA-256 of its token, in hex. The same again is the same."""
    return Call(
        "PUT",
        path("directors", name),
        body={"token_hash": token_hash},
        again=True,
        read=Model("director.DirectorLetIn"),
    )


def revoke_director(name: str) -> "Call[DirectorLetIn]":
    """Its token counts no more."""
    return Call("DELETE", path("directors", name), read=Model("director.DirectorLetIn"))
