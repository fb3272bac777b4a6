"""The hub's API for commands: JSON in and out, its errors raised again as our own.

Starts the hub when it is down (`start=False`: says so instead). Synchronous; for the hot
verbs there is `cli.fast`.
"""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

from bullpen import __version__
from bullpen.client import wire
from bullpen.client.start import start_hub
from bullpen.errors import BullpenError, Kind
from bullpen.paths import HUB, Home

ANSWER_SECONDS = 900.0  # set-up commands of worktrees take their time


class HubClient:
    """One home's hub."""

    def __init__(
        self, home: Home, *, start: bool = True, notice: Callable[[str], None] | None = None
    ) -> None:
        self.home = home
        self.start = start
        self.notice = notice  # told once when the hub is of another version
        self._socket = str(home.socket(HUB))

    def get(self, *path: str, **query: Any) -> Any:
        return self._json("GET", path, query)

    def text(self, *path: str, **query: Any) -> str:
        """The finished text in place of JSON."""
        answer = self._request("GET", path, {**query, "text": 1}, b"", again=True)
        return answer.body.decode()

    def post(self, *path: str, body: Any = None, again: bool = False, **query: Any) -> Any:
        """`again`: asking twice is the same as asking once, so a hub that dies is asked again."""
        return self._json("POST", path, query, body, again=again)

    def delete(self, *path: str, **query: Any) -> Any:
        return self._json("DELETE", path, query, again=True)

    def stream(self, *path: str, body: Any) -> Iterator[Any]:
        """A JSON value per line, as they come."""
        rest = b""
        data = json.dumps(body).encode()
        target, headers = _target(path, {}), self._headers(data)
        try:
            answer = wire.stream(self._socket, "POST", target, headers, data, ANSWER_SECONDS)
        except wire.NoHub:
            self._ensure()
            answer = wire.stream(self._socket, "POST", target, headers, data, ANSWER_SECONDS)
        if answer.status >= 400:
            raise _raised(wire.Response(answer.status, answer.headers, b"".join(answer)))
        for piece in answer:
            *lines, rest = (rest + piece).split(b"\n")
            yield from map(json.loads, filter(None, lines))

    def _json(
        self,
        method: str,
        path: tuple[str, ...],
        query: dict[str, Any],
        body: Any = None,
        again: bool = False,
    ) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        answer = self._request(method, path, query, data, again=again or method == "GET")
        return json.loads(answer.body)

    def _request(
        self, method: str, path: tuple[str, ...], query: dict[str, Any], body: bytes, again: bool
    ) -> wire.Response:
        target = _target(path, query)
        try:
            answer = self._ask(method, target, body)
        except wire.HubGone as error:
            if not again:
                raise BullpenError(
                    "the hub went away before it answered; what was asked may have been done",
                    hint="bullpen list",
                    kind=Kind.UNAVAILABLE,
                ) from error
            answer = self._ask(method, target, body)
        version = answer.headers.get("bullpen-version", __version__)
        if version != __version__ and self.notice is not None:
            self.notice(version)
            self.notice = None
        if answer.status >= 400:
            raise _raised(answer)
        return answer

    def _ask(self, method: str, target: str, body: bytes) -> wire.Response:
        headers = self._headers(body)
        try:
            return wire.request(self._socket, method, target, headers, body, ANSWER_SECONDS)
        except wire.NoHub:
            self._ensure()
            return wire.request(self._socket, method, target, headers, body, ANSWER_SECONDS)

    def _ensure(self) -> None:
        if not self.start:
            raise BullpenError("the hub is down", hint="bullpen hub start", kind=Kind.UNAVAILABLE)
        start_hub(self.home, os.environ)

    def _headers(self, body: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json"} if body else {}
        token = os.environ.get("BULLPEN_TOKEN")
        return {**headers, "Authorization": f"Bearer {token}"} if token else headers


def _target(path: tuple[str, ...], query: dict[str, Any]) -> str:
    given = {key: value for key, value in query.items() if value is not None}
    place = "/" + "/".join(quote(part, safe="") for part in path)
    return place + ("?" + urlencode(given) if given else "")


def raised(fields: dict[str, Any]) -> BullpenError:
    """The error of a `to_json`, to be raised again."""
    return BullpenError(
        fields["message"],
        hint=fields["hint"],
        kind=Kind(fields["error"]),
        details=fields["details"],
    )


def _raised(answer: wire.Response) -> BullpenError:
    """The error that the hub raised; or what is to be said of an answer that is none of ours."""
    try:
        fields = json.loads(answer.body)
        details = fields["details"]
        kind = Kind(details.pop("kind", _KINDS.get(answer.status, Kind.COMMAND_FAILED.value)))
        return BullpenError(
            fields["message"], hint=details.pop("hint", ""), kind=kind, details=details
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return BullpenError(
            f"the hub answered with status {answer.status}", kind=Kind.COMMAND_FAILED
        )


_KINDS = {
    400: "invalid",
    401: "denied",
    403: "denied",
    404: "not_found",
    409: "conflict",
    413: "invalid",
    503: "unavailable",
}
