"""Asks a server of this home how it is, or to leave, over its socket in the home.

Called by `discover`, `shutdown`, `kill`, `director` and `schedule`. No port is asked, and no token
sent: any program may take a free port and say that it is ours, an agent too. Ports are looked at by
`component/discovery` alone, for no more than their `/status`. Everything else is asked of the hub,
by `client`.
"""

from pathlib import Path
from typing import TypeVar

from bullpen.client.call import Call, Model, given
from bullpen.client.failures import refusal
from bullpen.errors import BullpenError, Kind
from bullpen.home import credentials
from bullpen.home.paths import Home
from bullpen.hot import wire
from bullpen.model.component import Leaving, Status

T = TypeVar("T")

ANSWER_SECONDS = 5.0


class NoAnswerError(Exception):
    """Nobody listens, or no whole answer came."""


def get_status(socket: Path) -> Status:
    """What the server says of itself."""
    return do(socket, Call("GET", "/status", read=Model[Status]("component.Status")))


def shut_down(socket: Path, *, timeout_seconds: float | None, force: bool) -> Leaving:
    """Tell it to leave; answered before it has left."""
    body = given(timeout_seconds=timeout_seconds, force=force or None) or None
    read = Model[Leaving]("component.Leaving")
    return do(socket, Call("POST", "/shutdown", body=body, read=read))


def do(socket: Path, call: Call[T]) -> T:
    """The answer of whoever listens at that socket of this home."""
    headers = {} if call.body is None else {"content-type": "application/json"}
    try:
        answer = wire.request(
            str(socket), call.method, call.target, headers, call.data, ANSWER_SECONDS
        )
        if answer.status < 400:
            return call.read(answer.body)
    except (wire.HubError, ValueError, RecursionError) as error:
        raise NoAnswerError(f"{socket}: {type(error).__name__}") from error
    raise refusal(answer.status, answer.body)


def owner_token(home: Home) -> str:
    """The token of the home's owner, which the hub makes. A file that others can read is
    refused."""
    token = credentials.load(home, credentials.API_TOKEN)
    if token is None:
        raise BullpenError(
            f"there is no {home.credentials / credentials.API_TOKEN}",
            hint="the hub makes it: bullpen hub start",
            kind=Kind.UNAVAILABLE,
        )
    return token
