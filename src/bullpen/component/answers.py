"""How every answer looks: the one format of errors, and the common headers.

Used by the hub (`hub/http`) and by `component/guard`, `component/routes` and
`component/connection`. Decides nothing and sends nothing.
"""

import json
import time
from email.utils import formatdate
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from bullpen import __version__
from bullpen.errors import BullpenError, Kind

RETRYABLE = frozenset({408, 429, 500, 502, 503, 504})
RETRYABLE_ERRORS = frozenset({"agent_busy", "task_in_progress"})
# Details that programs ask for so often that they stand beside the error, too.
AT_THE_TOP = ("current_task", "task_id", "final_state")

# kind -> status and name of the error
ANSWERS = {
    Kind.INVALID: (400, "validation_error"),
    Kind.NOT_FOUND: (404, "not_found"),
    Kind.CONFLICT: (409, "conflict"),
    Kind.DENIED: (403, "forbidden"),
    Kind.UNAVAILABLE: (503, "unavailable"),
    Kind.UNSUPPORTED: (422, "unsupported"),
    Kind.COMMAND_FAILED: (422, "command_failed"),
}

# Errors of the framework, which have a status only.
NAMES = {400: "validation_error", 404: "not_found", 405: "method_not_allowed", 413: "too_large"}

# Errors with a name of their own, whatever kind they are of.
STATUS = {"engine_error": 502, "timeout": 504, "rate_limited": 429, "starting": 503}


class RefusedError(HTTPException):
    """An answer that ends the request; also from inside the reading of a body."""

    def __init__(self, status: int, error: str, message: str) -> None:
        super().__init__(status, message)
        self.error = error


def error_body(status: int, error: str, message: str, details: dict[str, Any]) -> bytes:
    """The one format of errors. ASCII: half a surrogate in a message can be sent like that."""
    is_retryable = status in RETRYABLE or error in RETRYABLE_ERRORS
    body = {"error": error, "message": message, "details": {"retryable": is_retryable, **details}}
    body |= {key: _id_of(details[key]) for key in AT_THE_TOP if key in details}
    return json.dumps(body, default=str).encode()


def _id_of(value: Any) -> Any:
    """Of a task the id: everything else of it is in the details."""
    return value["id"] if isinstance(value, dict) and "id" in value else value


def error_response(
    status: int, error: str, message: str, details: dict[str, Any] | None = None
) -> Response:
    """The same as an answer."""
    return Response(
        error_body(status, error, message, details or {}),
        status,
        {"WWW-Authenticate": "Bearer"} if status == 401 else None,
        "application/json",
    )


def answer_error(error: BullpenError) -> Response:
    """The answer for one of our own errors; the client raises the same again from it."""
    status, name = ANSWERS[error.kind]
    details = {**error.details, "kind": error.kind.value, "hint": error.hint}
    name = str(details.pop("error", name))
    answer = error_response(STATUS.get(name, status), name, error.message, details)
    if "retry_after" in details:
        answer.headers["Retry-After"] = str(details["retry_after"])
    return answer


def answer_refused(error: HTTPException) -> Response:
    """The answer for a missing route or method, and for what a guard refused."""
    name = error.error if isinstance(error, RefusedError) else NAMES.get(error.status_code)
    answer = error_response(error.status_code, name or "refused", str(error.detail))
    answer.headers.update(error.headers or {})
    return answer


def answer_failure(error: Exception, who: str = "the hub") -> Response:
    """The answer for what should not happen."""
    message = f"{who} failed ({type(error).__name__}); its log says where"
    return error_response(500, "internal_error", message)


def common_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """What every answer has, unless it says otherwise itself."""
    given = {name.lower() for name, _ in headers}
    common = [
        (b"bullpen-version", __version__.encode()),
        (b"date", formatdate(time.time(), usegmt=True).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    return [(name, value) for name, value in common if name not in given]
