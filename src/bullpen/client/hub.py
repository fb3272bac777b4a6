"""The hub's API for commands: JSON in and out, its errors raised again as our own.

Starts the hub when it is down (`start=False`: says so instead). Synchronous; for the hot
verbs there is `cli.fast`.
"""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

from bullpen import __version__, marker
from bullpen.client import reach, wire
from bullpen.client.start import start_hub
from bullpen.errors import BullpenError, Kind
from bullpen.paths import HUB, Home

ANSWER_SECONDS = 900.0  # set-up commands of worktrees take their time
LOOK_SECONDS = 60.0
TRIES = 5  # with a hub that is killed again and again


class HubClient:
    """One home's hub."""

    def __init__(
        self, home: Home, *, start: bool = True, notice: Callable[[str], None] | None = None
    ) -> None:
        self.home = home
        self.start = start
        # In a sandbox the home is not to be seen; the agent's own door is.
        is_seen = marker.is_home(home.root)
        self._door = None if is_seen else reach.find_door(dict(os.environb))
        self.notice = notice  # told once when the hub is of another version
        self.first_start: Callable[[], None] | None = None  # told when this home never had one
        self._socket = os.fsdecode(self._door) if self._door else str(home.socket(HUB))

    def get(self, *path: str, **query: Any) -> Any:
        return self._json("GET", path, query)

    def text(self, *path: str, **query: Any) -> str:
        """The finished text in place of JSON."""
        answer = self._request("GET", path, {**query, "text": 1}, b"", again=True)
        return answer.body.decode()

    def post_text(self, *path: str, body: Any, again: bool = False, **query: Any) -> str:
        """The same for what changes something; `again` as for `post`."""
        data = json.dumps(body).encode()
        answer = self._request("POST", path, {**query, "text": 1}, data, again=again)
        return answer.body.decode()

    def post(self, *path: str, body: Any = None, again: bool = False, **query: Any) -> Any:
        """`again`: asking twice is the same as asking once, so a hub that dies is asked again."""
        return self._json("POST", path, query, body, again=again)

    def delete(self, *path: str, **query: Any) -> Any:
        return self._json("DELETE", path, query, again=True)

    def stream(self, *path: str, body: Any, again: bool = False) -> Iterator[Any]:
        """A JSON value per line, as they come. `again`: as for `post`; the lines of a hub that
        dies half-way are followed by those of the next."""
        data = json.dumps(body).encode()
        target, headers = _target(path, {}), self._headers(data)
        left = TRIES
        while True:
            left -= 1
            try:
                answer = wire.stream(self._socket, "POST", target, headers, data, ANSWER_SECONDS)
                yield from _lines(answer)
            except wire.HubError as error:
                was_sent = not isinstance(error, wire.NoHub)
                if not left or isinstance(error, wire.HubSlow) or (was_sent and not again):
                    raise _gone(error) from error
            else:
                return
            if not was_sent:
                self._ensure()

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
        answer = self._ask(method, _target(path, query), body, again)
        version = answer.headers.get("bullpen-version", __version__)
        if version != __version__ and self.notice is not None:
            self.notice(version)
            self.notice = None
        if answer.status >= 400:
            raise _raised(answer)
        return answer

    def _ask(self, method: str, target: str, body: bytes, again: bool) -> wire.Response:
        headers = self._headers(body)
        seconds = LOOK_SECONDS if method == "GET" else ANSWER_SECONDS
        left = TRIES
        while True:
            left -= 1
            try:
                return wire.request(self._socket, method, target, headers, body, seconds)
            except wire.HubError as error:
                was_sent = not isinstance(error, wire.NoHub)
                if not left or isinstance(error, wire.HubSlow) or (was_sent and not again):
                    raise _gone(error) from error
            if not was_sent:
                self._ensure()

    def _ensure(self) -> None:
        if self._door:
            raise BullpenError(
                "the hub is down, and an agent may not start it",
                hint="outside of agents: bullpen hub start",
                kind=Kind.UNAVAILABLE,
            )
        if not self.start:
            raise BullpenError("the hub is down", hint="bullpen hub start", kind=Kind.UNAVAILABLE)
        is_first = not (self.home.root / "hub.json").exists()
        start_hub(self.home, os.environ)
        if is_first and self.first_start is not None:
            self.first_start()

    def _headers(self, body: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json"} if body else {}
        token = os.environ.get("BULLPEN_TOKEN")
        return {**headers, "Authorization": f"Bearer {token}"} if token else headers


def _lines(answer: wire.Stream) -> Iterator[Any]:
    if answer.status >= 400:
        raise _raised(wire.Response(answer.status, answer.headers, b"".join(answer)))
    rest = b""
    for piece in answer:
        *lines, rest = (rest + piece).split(b"\n")
        yield from map(json.loads, filter(None, lines))


def _gone(error: wire.HubError) -> BullpenError:
    """What to say of an answer that never came."""
    if isinstance(error, wire.NoHub):
        return BullpenError(
            "the hub ends as soon as it has started", hint="bullpen hub logs", kind=Kind.UNAVAILABLE
        )
    what = str(error) if isinstance(error, wire.HubSlow) else "the hub went away before it answered"
    return BullpenError(
        f"{what}; what was asked may have been done", hint="bullpen list", kind=Kind.UNAVAILABLE
    )


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
