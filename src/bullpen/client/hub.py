"""`Hub`: runs calls against the hub of a home, synchronously, over its Unix socket. For commands.

Starts the hub when it is down, unless the call or `start=False` says otherwise. Raises the hub's
errors again. Knows no route: those are in `client/<noun>.py`. The hot verbs do not come here
(`hot/fast.py`).
"""

import os
from collections.abc import Callable, Iterator
from copy import copy
from typing import TypeVar

from bullpen import __version__
from bullpen.client.address import address_of
from bullpen.client.call import Call, Request, Stream, path
from bullpen.client.failures import TRIES, check_repeat, hub_is_down, refusal
from bullpen.home.paths import Home
from bullpen.hot import find_hub, wire

T = TypeVar("T")


class Hub:
    """The hub of one home. `seconds` is how long an answer is waited for, else the call says so.
    `notice` is called once if it is of another version, with that;
    `first_start` when the home never had one before."""

    def __init__(
        self,
        home: Home,
        *,
        start: bool = True,
        seconds: float | None = None,
        notice: Callable[[str], None] | None = None,
        first_start: Callable[[], None] | None = None,
    ) -> None:
        self.home = home
        self.start = start
        self._seconds = seconds
        self._notice = notice
        self._first_start = first_start
        self._address = address_of(home)
        self._prefix = ""  # of every path

    def at(self, host: str) -> "Hub":
        """The hub of another machine of the fleet: this one carries the calls there."""
        other = copy(self)
        other._prefix, other._notice = path("hosts", host) if host else "", None
        return other

    def do(self, call: Call[T]) -> T:
        """The answer to a call."""
        tries = TRIES
        while True:
            tries -= 1
            try:
                answer = wire.request(
                    self._address.socket,
                    call.method,
                    self._prefix + call.target,
                    self._headers(call),
                    call.data,
                    self._seconds or call.seconds,
                )
            except wire.HubError as error:
                if check_repeat(error, call.may_repeat, tries):
                    self._start(call)
                continue
            self._check_version(answer.headers.get("bullpen-version", __version__))
            if answer.status >= 400:
                raise refusal(answer.status, answer.body)
            return call.read(answer.body)

    def stream(self, call: Stream[T]) -> Iterator[T]:
        """The values of a stream as they come. If the call may be sent again, those of a hub that
        dies half-way are followed by those of the next."""
        tries = TRIES
        while True:
            tries -= 1
            try:
                yield from self._read(call)
            except wire.HubError as error:
                if check_repeat(error, call.again, tries):
                    self._start(call)
            else:
                return

    def _read(self, call: Stream[T]) -> Iterator[T]:
        with wire.stream(
            self._address.socket,
            call.method,
            self._prefix + call.target,
            self._headers(call),
            call.data,
            call.seconds,
        ) as answer:
            if answer.status >= 400:
                raise refusal(answer.status, b"".join(answer))
            reader = call.reader()
            for piece in answer:
                yield from reader.feed(piece)

    def _headers(self, call: Request) -> dict[str, str]:
        content = {"content-type": "application/json"} if call.body is not None else {}
        return {**call.headers, **content, **find_hub.headers(dict(os.environb))}

    def _start(self, call: Request) -> None:
        if self._address.is_agents_own:
            raise hub_is_down(is_agent=True)
        if not self.start or not call.starts_hub:
            raise hub_is_down()
        is_first = not (self.home.root / "hub.json").exists()
        from bullpen.client.start import start_hub  # most calls find one

        start_hub(self.home, os.environ)
        if is_first and self._first_start is not None:
            self._first_start()

    def _check_version(self, version: str) -> None:
        if version != __version__ and self._notice is not None:
            self._notice(version)
            self._notice = None
