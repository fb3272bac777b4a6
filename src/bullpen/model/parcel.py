"""A git bundle on its way between machines. Pure."""

from bullpen.model.letter_fields import Commit
from bullpen.model.value import Value


class Parcel(Value):
    """A git bundle that a host has sent: what makes sure that it is that, and what is in it."""

    host: str
    id: str
    pieces: int
    bytes: int
    sha256: str
    commit: Commit
