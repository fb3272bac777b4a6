"""`Hub`: runs calls against the hub of a home, synchronously, over its Unix socket. For commands.

Starts the hub when it is down, unless the call or `start=False` says otherwise. Raises the hub's
errors again. Knows no route: those are in `client/<noun>.py`. The hot verbs do not come here
(`hot/fast.py`).
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bullpen import __version__
from bullpen.client.address import address_of, home_of
from bullpen.client.call import Call, Request, Stream, path
from bullpen.client.failures import TRIES, check_repeat, hub_is_down, refusal
from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.hot import find_hub, wire

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

    from bullpen.client.streams import EventStream
    from bullpen.client.terminals import Terminal

T = TypeVar("T")


class Hub:
    """The hub of one home, this one if none is named. `seconds` is how long an answer is waited
    for, else the call says so.
    `notice` is called once if it is of another version, with that;
    `first_start` when the home never had one before."""

    def __init__(
        self,
        home: Home | Path | str | None = None,
        *,
        start: bool = True,
        seconds: float | None = None,
        notice: Callable[[str], None] | None = None,
        first_start: Callable[[], None] | None = None,
    ) -> None:
        self.home = home = home_of(home)
        self.start = start
        self._seconds = seconds
        self._notice = notice
        self._first_start = first_start
        self._address = address_of(home)
        self.host = ""  # another machine, if it is the hub of one
        self._prefix = ""  # of every path

    def at(self, host: str) -> "Hub":
        """The hub of another machine of the fleet: this one carries the calls there."""
        other = copy(self)
        other.host = host
        other._prefix, other._notice = path("hosts", host) if host else "", None
        return other

    def named(self, name: str | int) -> str:
        """An agent or a task of that hub, as commands of this machine name it."""
        return f"{self.host}/{name}" if self.host else str(name)

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
                if check_repeat(error, call.may_repeat, tries, only_reads=call.only_reads):
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
                if check_repeat(error, call.again, tries, only_reads=call.only_reads):
                    self._start(call)
            else:
                return

    def follow(self, call: "EventStream[T]", patience_seconds: float | None = None) -> Iterator[T]:
        """The values of a stream to its end, or for ever. A hub that dies, restarts or is silent is
        asked again after the last value: nothing is missing, nothing comes twice. One that stays
        away is waited for, three minutes if nothing else is said."""
        from bullpen.client.follow import AGAIN_SECONDS, Following

        following = Following(call, time.monotonic(), patience_seconds)
        while True:
            failure = None
            try:
                for value in self.stream(following.rest()):
                    yield value
                    if following.is_over:
                        return
            except BullpenError as error:
                failure = error
            following.broke_off(failure, time.monotonic())
            time.sleep(AGAIN_SECONDS)

    @contextmanager
    def open(self, call: "Terminal") -> "Iterator[ClientConnection]":
        """A connection to a terminal, closed at the end."""
        from websockets.sync.client import unix_connect

        from bullpen.client.web_socket import opening_errors, options

        target = f"ws://localhost{self._prefix}{call.target}"
        with ExitStack() as closing:
            with opening_errors():
                opening = unix_connect(self._address.socket, target, **options(self._headers(call)))
                line = closing.enter_context(opening)
            yield line

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
