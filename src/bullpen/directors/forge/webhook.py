"""The webhook of a forge director: lets a forge say where something has happened.

A route of the director (`director`), for whoever reaches its port: by a tunnel or a proxy that
people set up. What is genuine makes the director look there soon; the look reads the forge and
decides. So one that is lost, comes twice, late or from somebody who stole the secret costs a look
at most, and looks have a pace. Keeps nothing of a delivery, and logs nothing of one.

Whoever has not shown the secret yet is a stranger: what one holds (a request under way, its body)
is paid for before it is read, so the stock bounds how much all of them hold at once. The guard has
room for more than that (`SENDER_REQUESTS`, `SENDER_BYTES`): they never fill it up.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from bullpen.component.answers import RefusedError
from bullpen.component.guard import SENDER_BODY_BYTES
from bullpen.component.routes import parse_object
from bullpen.directors.forge.deliveries import Deliveries, Delivery

PATH = "/webhook"
MOST_BYTES = SENDER_BODY_BYTES
READ_SECONDS = 10.0  # for a whole body: GitHub waits no longer for an answer
LOOK_SECONDS = 5.0  # between two looks that deliveries cause
STOCK = 600.0  # of deliveries, which fills up again
PER_SECOND = 10.0
REFUSED_COST = 20.0  # what one takes of it that is not genuine, or not yet known to be


class Stock:
    """So many may come at once, and so many in the long run. Times are of a monotonic clock."""

    def __init__(self, most: float, per_second: float) -> None:
        self._most = most
        self._per_second = per_second
        self._left = most
        self._at = 0.0

    def wait_seconds(self, now: float) -> float:
        """How long until there is one; 0: there is."""
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = now
        return max(0.0, (1.0 - self._left) / self._per_second)

    def take(self, cost: float) -> None:
        """Also more than there is: requests that are under way are let through."""
        self._left -= cost

    def give_back(self, cost: float) -> None:
        self._left += cost


class Webhook:
    """Of one director. `secret`: empty if there is none, and then nothing is genuine; `heed` says
    whether a look is needed; `wake` makes it happen; `note` is the log, and not the journal: a
    stranger must not push out of that what a person wants to know."""

    def __init__(
        self,
        deliveries: Deliveries,
        secret: Callable[[], str],
        heed: Callable[[Delivery], bool],
        wake: Callable[[], None],
        note: Callable[[str], None],
    ) -> None:
        self._deliveries = deliveries
        self._secret = secret
        self._heed = heed
        self._wake = wake
        self._note = note
        self._stock = Stock(STOCK, PER_SECOND)
        self._is_busy = False
        self._looked = float("-inf")
        self._waking: asyncio.TimerHandle | None = None

    @property
    def route(self) -> Route:
        return Route(PATH, self._take, methods=["POST"])

    async def _take(self, request: Request) -> Response:
        self._check_stock()
        with self._paid_for():
            body = await self._read_genuine(request)
        if not request.headers.get("content-type", "").startswith("application/json"):
            raise RefusedError(415, "unsupported", "the webhook's content type: application/json")
        if self._heed(self._deliveries.parse(parse_object(body))):
            self._wake_soon()
        return Response(status_code=204)

    @contextlib.contextmanager
    def _paid_for(self) -> Iterator[None]:
        """Before it is read, and not only when it is refused: else who sends nothing, or leaves,
        would hold room for free. The cost bounds the notes, too."""
        self._stock.take(REFUSED_COST)
        try:
            yield
        except RefusedError as error:
            self._note(f"a delivery to the webhook was refused: {error.detail}")
            raise
        except ClientDisconnect:
            self._note("a delivery to the webhook was cut off by its sender")
            raise
        self._stock.give_back(REFUSED_COST - 1.0)

    async def _read_genuine(self, request: Request) -> bytes:
        """The body of who knows the secret. Nothing is read where the headers say enough."""
        unsigned = RefusedError(401, "unauthorized", "no right signature")
        secret = self._secret()
        if not secret or not self._deliveries.may_be_genuine(secret, request.headers):
            raise unsigned
        body = await _read(request)
        if not self._deliveries.is_genuine(secret, request.headers, body):
            raise unsigned
        return body

    def _check_stock(self) -> None:
        """Before anything is read: too many are refused cheaply."""
        wait = self._stock.wait_seconds(time.monotonic())
        if wait and not self._is_busy:
            self._note("too many deliveries to the webhook: some are refused")
        self._is_busy = wait > 0
        if wait:
            refused = RefusedError(429, "rate_limited", "too many deliveries")
            refused.headers = {"Retry-After": str(int(wait) + 1)}
            raise refused

    def _wake_soon(self) -> None:
        """At once, or when the last look is long enough ago. Of those between two looks one counts
        for all: what they name is put together."""
        if self._waking is None:
            loop = asyncio.get_running_loop()
            due = max(loop.time(), self._looked + LOOK_SECONDS)
            self._waking = loop.call_at(due, self._wake_now)

    def _wake_now(self) -> None:
        self._waking = None
        self._looked = asyncio.get_running_loop().time()
        self._wake()


async def _read(request: Request) -> bytes:
    too_large = RefusedError(413, "too_large", f"a delivery has at most {MOST_BYTES} bytes")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MOST_BYTES:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(READ_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > MOST_BYTES:
                    raise too_large
    except TimeoutError:
        raise RefusedError(408, "timeout", f"no whole body in {READ_SECONDS:g} s") from None
    return bytes(body)
