"""How errors look: what the API promises of them, and the handlers that keep the promise."""

from typing import Annotated, Any

from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from bullpen.component.answers import (
    answer_error,
    answer_failure,
    answer_refused,
    error_response,
)
from bullpen.errors import BullpenError

PROBLEMS = 20  # are enough to begin with
PROBLEM_CHARACTERS = 300


class Details(BaseModel):
    """What a program can act on; more keys than these may come."""

    model_config = ConfigDict(extra="allow")

    retryable: Annotated[bool, Field(description="whether the same request may succeed later")]
    kind: Annotated[str | None, Field(description="the kind of failure inside Bullpen")] = None
    hint: Annotated[str | None, Field(description="what a person can do about it")] = None
    problems: Annotated[
        list[str | dict[str, Any]] | None,
        Field(description="each part that does not fit; of a file with its line and key"),
    ] = None


class Problem(BaseModel):
    """Every answer from 400 on."""

    error: Annotated[str, Field(description="a name for programs", examples=["not_found"])]
    message: Annotated[str, Field(description="what failed, with which value, for people")]
    details: Details


REFERENCE = "#/components/schemas/{model}"
CONTENT = {"application/json": {"schema": {"$ref": REFERENCE.format(model=Problem.__name__)}}}
TOO_MUCH: dict[str, Any] = {
    "description": "`rate_limited`: an agent has sent too much; `Retry-After` says when to go on",
    "content": CONTENT,
}
RESPONSES: dict[str, dict[str, Any]] = {
    str(status): {"description": text, "content": CONTENT}
    for status, text in {
        400: "`validation_error`: the request does not fit; `details.problems` says where",
        401: "`unauthorized`: no token, or none that is known",
        403: "`forbidden`: not for this agent, this site or this Host",
        404: "`not_found`: there is nothing of that name",
        405: "`method_not_allowed`",
        409: "`conflict`: not in the present state, or the name is taken",
        413: "`too_large`: more than 8 MiB",
        422: "`unsupported` or `command_failed`: understood, but it cannot be done",
        431: "`too_large`: path, query and headers have more than 64 KiB",
        503: "`starting`: an agent whose engine is looked for; `unavailable`: not at the moment, or"
        " an agent that leaves; `details.retryable` says whether to ask again",
    }.items()
}


def describe(api: dict[str, Any]) -> None:
    """Add to a description what is the same for every route. The framework could do so itself,
    but would then make a model of each error for each route whenever a hub starts."""
    schemas = api["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):  # what nobody is ever answered
        schemas.pop(name, None)
    problem = Problem.model_json_schema(ref_template=REFERENCE)
    schemas.update({**problem.pop("$defs"), Problem.__name__: problem})
    for methods in api["paths"].values():
        for operation in methods.values():
            own: dict[str, Any] = operation["responses"]
            own.pop("422", None)
            own.update(
                {status: answer for status, answer in RESPONSES.items() if status not in own}
            )


async def own(connection: HTTPConnection, error: Exception) -> Response | None:
    """An error of ours."""
    assert isinstance(error, BullpenError)
    return await _answered(connection, answer_error(error))


async def invalid(connection: HTTPConnection, error: Exception) -> Response | None:
    """A request that does not fit what the route takes."""
    assert isinstance(error, RequestValidationError | WebSocketRequestValidationError)
    problems = [_problem(problem)[:PROBLEM_CHARACTERS] for problem in error.errors()[:PROBLEMS]]
    answer = error_response(400, "validation_error", "; ".join(problems), {"problems": problems})
    return await _answered(connection, answer)


def _problem(problem: dict[str, Any]) -> str:
    """`prompt is required`, `body.timeout_seconds: Input should be …`."""
    where = [str(part) for part in problem["loc"]]
    if len(where) > 1 and (problem["type"] == "missing" or _is_blank_text(problem)):
        return f"{'.'.join(where[1:])} is required"
    return f"{'.'.join(where)}: {problem['msg']}"


def _is_blank_text(problem: dict[str, Any]) -> bool:
    """Whether it was refused because nothing is in it."""
    is_length = problem["type"] in ("string_too_short", "string_pattern_mismatch")
    return is_length and not problem["input"].strip()


async def refused(connection: HTTPConnection, error: Exception) -> Response | None:
    """No such route, or method; also what the guard refused while a body was read."""
    assert isinstance(error, HTTPException)
    return await _answered(connection, answer_refused(error))


async def failed(connection: HTTPConnection, error: Exception) -> Response | None:
    """A failure of ours. The guard gets it afterwards all the same, and logs it."""
    return await _answered(connection, answer_failure(error))


async def no_route(scope: Scope, receive: Receive, send: Send) -> None:
    """For paths that nothing is at; a WebSocket is not asked for one by mistake either."""
    answer = error_response(404, "not_found", "there is nothing at this path")
    await answer(scope, receive, send)


async def _answered(connection: HTTPConnection, answer: Response) -> Response | None:
    """As the framework wants it: returned, or to a WebSocket sent in place of its acceptance."""
    if not isinstance(connection, WebSocket):
        return answer
    await connection.send_denial_response(answer)
    return None
