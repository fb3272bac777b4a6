"""Every failure of the library is a `WorktreeError` with a code."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from bullpen.errors import BullpenError, Kind


class Code(Enum):
    """What went wrong, for programs; the message says it to people."""

    NOT_A_REPO = "NOT_A_REPO"
    WORKTREE_EXISTS = "WORKTREE_EXISTS"
    WORKTREE_NOT_FOUND = "WORKTREE_NOT_FOUND"
    WORKTREE_CORRUPT = "WORKTREE_CORRUPT"
    BRANCH_EXISTS = "BRANCH_EXISTS"
    REF_NOT_FOUND = "REF_NOT_FOUND"
    ROLE_NOT_FOUND = "ROLE_NOT_FOUND"
    DIRTY = "DIRTY"
    LOCKED = "LOCKED"
    DEPTH_EXCEEDED = "DEPTH_EXCEEDED"
    SETUP_FAILED = "SETUP_FAILED"
    GIT_FAILED = "GIT_FAILED"
    CLEANUP_FAILED = "CLEANUP_FAILED"
    NO_PORTS = "NO_PORTS"
    INVALID = "INVALID"


KINDS = {
    Code.NOT_A_REPO: Kind.NOT_FOUND,
    Code.WORKTREE_EXISTS: Kind.CONFLICT,
    Code.WORKTREE_NOT_FOUND: Kind.NOT_FOUND,
    Code.WORKTREE_CORRUPT: Kind.CONFLICT,
    Code.BRANCH_EXISTS: Kind.CONFLICT,
    Code.REF_NOT_FOUND: Kind.NOT_FOUND,
    Code.ROLE_NOT_FOUND: Kind.NOT_FOUND,
    Code.DIRTY: Kind.CONFLICT,
    Code.LOCKED: Kind.CONFLICT,
    Code.DEPTH_EXCEEDED: Kind.DENIED,
    Code.SETUP_FAILED: Kind.COMMAND_FAILED,
    Code.GIT_FAILED: Kind.COMMAND_FAILED,
    Code.CLEANUP_FAILED: Kind.COMMAND_FAILED,
    Code.NO_PORTS: Kind.UNAVAILABLE,
    Code.INVALID: Kind.INVALID,
}


class WorktreeError(BullpenError):
    """A `BullpenError` that also carries a code."""

    def __init__(
        self, code: Code, message: str, *, hint: str = "", details: dict[str, object] | None = None
    ) -> None:
        super().__init__(message, hint=hint, kind=KINDS[code], details=details)
        self.code = code

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), "code": self.code.value}


@contextmanager
def reported(what: str, code: Code = Code.GIT_FAILED) -> Iterator[None]:
    """Turn failures of the system into a `WorktreeError` with that code; pass ours through."""
    try:
        yield
    except WorktreeError:
        raise
    except BullpenError as error:
        raise WorktreeError(code, f"{what}: {error.message}", hint=error.hint) from error
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise WorktreeError(
            code, f"{what}: {error.strerror or error}{where}", details={"errno": error.errno}
        ) from error
