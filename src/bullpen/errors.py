"""The one exception of the package, its kinds, and the exit code of each kind.

Raised anywhere. Caught at the boundaries: the command line, HTTP, supervised tasks. Not for
control flow inside a function.
"""

from enum import Enum


class Kind(Enum):
    """What sort of failure it is; decides the exit code."""

    INVALID = "invalid"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    DENIED = "denied"
    UNAVAILABLE = "unavailable"
    UNSUPPORTED = "unsupported"
    COMMAND_FAILED = "command_failed"


EXIT_CODES = {
    Kind.COMMAND_FAILED: 1,
    Kind.INVALID: 2,
    Kind.UNAVAILABLE: 3,
    Kind.NOT_FOUND: 4,
    Kind.CONFLICT: 5,
    Kind.DENIED: 6,
    Kind.UNSUPPORTED: 7,
}


class BullpenError(Exception):
    """What failed, with which value; `hint` says what to do about it."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        kind: Kind = Kind.INVALID,
        details: dict[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.kind = kind
        self.details = details or {}

    def to_json(self) -> dict[str, object]:
        """The form that `--json` prints and that the API will send."""
        return {
            "error": self.kind.value,
            "message": self.message,
            "hint": self.hint,
            "details": self.details,
        }
