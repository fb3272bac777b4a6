"""What a failure means to a director: try later, try a few times, give up, or tell a person. Pure.

Called by `loop`. What an action raises says enough, mostly by its kind; an adapter of a forge that
knows better raises `ActionError`.
"""

from enum import StrEnum

from bullpen.errors import BullpenError, Kind
from bullpen.model.value import Value

FIRST_SECONDS = 5.0
MOST_SECONDS = 900.0
GIVE_UP_AFTER = 5


class Verdict(StrEnum):
    """What is done about a failure."""

    LATER = "later"  # the other side is away: tried for as long as that takes
    AGAIN = "again"  # may succeed the next time: tried a few times, then given up
    HOPELESS = "hopeless"  # given up at once
    PERSON = "person"  # a person has to do something; said once, looked at again slowly


class ActionError(BullpenError):
    """A failure whose meaning is known where it happens. `retry_after_seconds`: not before that."""

    def __init__(
        self, message: str, verdict: Verdict, *, hint: str = "", retry_after_seconds: float = 0.0
    ) -> None:
        super().__init__(message, hint=hint, kind=Kind.COMMAND_FAILED)
        self.verdict = verdict
        self.retry_after_seconds = retry_after_seconds


class LimitError(ActionError):
    """The other side wants nothing at all to be asked for so long, whatever it is about."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message, Verdict.LATER, retry_after_seconds=seconds)


VERDICTS = {
    Kind.UNAVAILABLE: Verdict.LATER,
    Kind.COMMAND_FAILED: Verdict.AGAIN,
    Kind.CONFLICT: Verdict.AGAIN,
    Kind.DENIED: Verdict.PERSON,
    Kind.INVALID: Verdict.HOPELESS,
    Kind.NOT_FOUND: Verdict.HOPELESS,
    Kind.UNSUPPORTED: Verdict.HOPELESS,
}


class Trouble(Value):
    """Why a subject does not go on, how often that was so, and when it is tried again."""

    verdict: Verdict
    reason: str
    hint: str = ""
    failures: int = 1
    at: float = 0.0  # of the last failure, in seconds since 1970
    wait_seconds: float = 0.0  # from then on
    is_given_up: bool = False
    is_limit: bool = False  # before it is over nothing is asked, by no process
    is_hub_away: bool = False  # tried as soon as it is back

    def remaining_seconds(self, now: float) -> float:
        """How long it is not tried yet. A clock that was set back costs no more than the wait."""
        return min(self.wait_seconds, self.at + self.wait_seconds - now)

    def blocks(self, now: float) -> bool:
        """Whether nothing is done about the subject now."""
        return self.is_given_up or self.remaining_seconds(now) > 0


def judge(
    error: Exception, before: Trouble | None, now: float, give_up_after: int = GIVE_UP_AFTER
) -> Trouble:
    """The trouble after one more failure; `before` is that of the failure before it."""
    verdict, reason, hint, at_least = _read(error)
    failures = before.failures + 1 if before is not None else 1
    wait = min(MOST_SECONDS, FIRST_SECONDS * 2 ** min(failures - 1, 20))
    is_hopeless = verdict is Verdict.HOPELESS
    return Trouble(
        verdict=verdict,
        reason=reason,
        hint=hint,
        failures=failures,
        at=now,
        wait_seconds=max(wait, at_least),
        is_given_up=is_hopeless or (verdict is Verdict.AGAIN and failures >= give_up_after),
        is_limit=isinstance(error, LimitError),
        is_hub_away=isinstance(error, BullpenError) and error.kind is Kind.UNAVAILABLE,
    )


def _read(error: Exception) -> tuple[Verdict, str, str, float]:
    if isinstance(error, ActionError):
        return error.verdict, error.message, error.hint, error.retry_after_seconds
    if isinstance(error, BullpenError):
        after = error.details.get("retry_after")
        seconds = float(after) if isinstance(after, int | float) else 0.0
        return VERDICTS[error.kind], error.message, error.hint, seconds
    if isinstance(error, OSError):  # a full disk, a lost network
        words = (error.strerror or str(error), error.filename)
        return Verdict.LATER, ": ".join(str(word) for word in words if word), "", 0.0
    return Verdict.AGAIN, f"a bug: {type(error).__name__}: {error}", "its log has more", 0.0
