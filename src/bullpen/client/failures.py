"""What a call raises when it fails: the hub's own error again, or that no answer came.

Called by both transports. Pure.
"""

import json
from typing import TYPE_CHECKING

from bullpen.errors import BullpenError, Kind
from bullpen.hot import wire

if TYPE_CHECKING:
    from bullpen.model.pod_step import ErrorFields

TRIES = 5  # with a hub that is killed again and again

KINDS = {
    400: Kind.INVALID,
    401: Kind.DENIED,
    403: Kind.DENIED,
    404: Kind.NOT_FOUND,
    409: Kind.CONFLICT,
    413: Kind.INVALID,
    503: Kind.UNAVAILABLE,
}


NO_METHOD = 405  # no call of ours gets that from a hub of its own version


def refusal(status: int, body: bytes) -> BullpenError:
    """The error that the hub raised; or what is to be said of an answer that is none of ours."""
    try:
        fields = json.loads(body)
        if status == NO_METHOD:
            return _is_not_known()
        details = fields["details"]
        kind = Kind(details.pop("kind", KINDS.get(status, Kind.COMMAND_FAILED).value))
        return BullpenError(
            fields["message"], hint=details.pop("hint", ""), kind=kind, details=details
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return BullpenError(f"the hub answered with status {status}", kind=Kind.COMMAND_FAILED)


def _is_not_known() -> BullpenError:
    """A hub of before goes on when another version was installed."""
    return BullpenError(
        "the hub that runs does not know this request: it is of another version than this command",
        hint="bullpen hub restart (agents go on)",
        kind=Kind.UNSUPPORTED,
    )


def error_of(fields: "ErrorFields") -> BullpenError:
    """The error of a `BullpenError.to_json`, to be raised again."""
    return BullpenError(
        fields["message"],
        hint=fields["hint"],
        kind=Kind(fields["error"]),
        details=fields["details"],
    )


def check_repeat(
    error: wire.HubError, may_repeat: bool, tries_left: int, *, only_reads: bool = False
) -> bool:
    """Whether the hub has to be started before the request is sent again. Raises if it is not to
    be sent again."""
    was_sent = not isinstance(error, wire.NoHub)
    if not tries_left or isinstance(error, wire.HubSlow) or (was_sent and not may_repeat):
        raise _no_answer(error, only_reads) from error
    return not was_sent


def _no_answer(error: wire.HubError, only_reads: bool) -> BullpenError:
    if isinstance(error, wire.NoHub):
        return BullpenError(
            "the hub ends as soon as it has started", hint="bullpen hub logs", kind=Kind.UNAVAILABLE
        )
    what = str(error) if isinstance(error, wire.HubSlow) else "the hub went away before it answered"
    if not only_reads:
        what += "; what was asked may have been done"
    return BullpenError(what, hint="bullpen list", kind=Kind.UNAVAILABLE)


def hub_is_down(is_agent: bool = False) -> BullpenError:
    """For who may not start it, or does not want to."""
    if is_agent:
        return BullpenError(
            "the hub is down, and an agent may not start it",
            hint="outside of agents: bullpen hub start",
            kind=Kind.UNAVAILABLE,
        )
    return BullpenError("the hub is down", hint="bullpen hub start", kind=Kind.UNAVAILABLE)
