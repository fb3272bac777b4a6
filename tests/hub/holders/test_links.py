"""The hub's side of a holder's socket, and agents' own ports: told once, asked in turn, closed."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.component.http_server import HttpServer
from bullpen.component.ports import listen
from bullpen.errors import BullpenError, Kind
from bullpen.holder.frames import FrameReader, frame, json_frame
from bullpen.hub.holders import link as holder_link
from bullpen.hub.kept_ports import KeptPorts
from bullpen.hub.tasks.ports import AgentPorts
from tests.hub.parts import run
from tests.ports import reserved_port

SECONDS = 60.0


class SaidHolder:
    """Greets, and then says what the test has it say; what it was asked is in `asked`."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[bytes] = asyncio.Queue()
        self.line: asyncio.StreamWriter | None = None
        self.left = asyncio.Event()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.line = writer
        writer.write(json_frame(b"H", {"tag": "x"}))
        frames = FrameReader()
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                for kind, _payload in frames.feed(data):
                    self.asked.put_nowait(kind)
        self.left.set()

    def say(self, *pieces: bytes) -> None:
        assert self.line is not None
        self.line.write(b"".join(pieces))


@contextlib.asynccontextmanager
async def linked(path: Path) -> AsyncIterator[tuple[SaidHolder, holder_link.Link, list[Any]]]:
    """A link that is followed: what it told is in the list."""
    holder = SaidHolder()
    server = await asyncio.start_unix_server(holder.talk, str(path))
    told: list[Any] = []
    async with asyncio.timeout(SECONDS):
        link = await holder_link.connect(path)
        link.follow(told.append, lambda: told.append("lost"))
        yield holder, link, told
    link.close()
    server.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


def until(condition: Any) -> Any:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0)

    return wait()


@pytest.mark.parametrize("also", ["nothing", "again", "the connection's end"])
def test_k4_an_end_is_told_once(path: Path, also: str) -> None:
    async def story() -> None:
        async with linked(path) as (holder, link, told):
            holder.say(json_frame(b"E", {"code": 3}))
            if also == "again":
                holder.say(json_frame(b"E", {"code": 4}))
            elif also == "the connection's end":
                assert holder.line is not None
                holder.line.close()
            await until(lambda: told)
            asking = asyncio.ensure_future(link.ask(b"S"))
            if also == "the connection's end":
                with pytest.raises(OSError):
                    await asking
            else:
                assert await holder.asked.get() == b"S"
                holder.say(json_frame(b"S", {}))
                await asking
            assert told == [{"code": 3}]

    run(story())


def test_k4_a_connection_that_breaks_is_lost_and_whoever_asks_is_told(path: Path) -> None:
    async def story() -> None:
        async with linked(path) as (holder, link, told):
            asking = asyncio.ensure_future(link.ask(b"S"))
            await holder.asked.get()
            assert holder.line is not None
            holder.line.close()
            with pytest.raises(ConnectionResetError):
                await asking
            assert told == ["lost"]
            with pytest.raises(ConnectionResetError):
                await link.ask(b"S")

    run(story())


def test_k4_who_closes_a_link_is_told_nothing(path: Path) -> None:
    async def story() -> None:
        async with linked(path) as (holder, link, told):
            link.close()
            await holder.left.wait()
            for _ in range(10):
                await asyncio.sleep(0)
            assert told == []

    run(story())


def test_k4_questions_are_asked_one_after_the_other(path: Path) -> None:
    async def story() -> None:
        async with linked(path) as (holder, link, _told):
            asking = [asyncio.ensure_future(link.ask(b"S")) for _ in range(3)]
            for number in range(3):
                assert await holder.asked.get() == b"S"
                for _ in range(10):
                    await asyncio.sleep(0)
                assert holder.asked.empty()  # the next waits for this answer
                holder.say(json_frame(b"S", {"number": number}))
            assert [(await each)["number"] for each in asking] == [0, 1, 2]

    run(story())


@pytest.mark.parametrize("why", ["late", "given up", "attached again"])
def test_k4_an_answer_that_nobody_waits_for_is_no_answer_to_the_next_question(
    path: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with linked(path) as (holder, link, _told):
            earlier = json_frame(b"S", {"alive": True})
            if why == "attached again":
                holder.say(json_frame(b"D", {}))
                assert await holder.asked.get() == b"A"
                earlier = json_frame(b"K", {"for": "A"})
            elif why == "given up":
                asking = asyncio.ensure_future(link.ask(b"S"))
                assert await holder.asked.get() == b"S"
                asking.cancel()
            else:
                with monkeypatch.context() as patched, pytest.raises(TimeoutError):
                    patched.setattr(holder_link, "ANSWER_SECONDS", 0.01)
                    await link.ask(b"S")
                assert await holder.asked.get() == b"S"
            asking = asyncio.ensure_future(link.ask(b"X", {"grace": 1}))
            assert await holder.asked.get() == b"X"
            holder.say(earlier, json_frame(b"K", {"for": "X"}))
            assert await asking == {"for": "X"}

    run(story())


def test_k4_a_refusal_is_raised_and_rubbish_is_an_end(path: Path) -> None:
    async def story() -> None:
        async with linked(path) as (holder, link, told):
            asking = asyncio.ensure_future(link.ask(b"X", {"grace": -1}))
            await holder.asked.get()
            holder.say(json_frame(b"F", {"message": "a grace of -1"}))
            with pytest.raises(BullpenError, match="a grace of -1"):
                await asking
            holder.say(b"\xff" * 100)
            await until(lambda: told)
            assert told == ["lost"]

    run(story())


def test_k4_one_that_listens_is_told_of_output_and_attaches_again_when_it_was_too_slow(
    path: Path,
) -> None:
    async def story() -> None:
        async with linked(path) as (holder, link, _told):
            heard: list[int] = []
            listening = asyncio.ensure_future(link.listen(lambda: heard.append(1)))
            assert await holder.asked.get() == b"A"
            holder.say(json_frame(b"K", {"for": "A"}))
            await listening
            holder.say(frame(b"O", b"x"), frame(b"e", b"x"))
            await until(lambda: len(heard) == 2)
            holder.say(json_frame(b"D", {}))
            assert await holder.asked.get() == b"A"
            assert len(heard) == 3

    run(story())


def test_b2_a_socket_is_dead_when_the_kernel_says_so(path: Path) -> None:
    assert holder_link.is_dead(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert holder_link.is_dead(path)
        listener.listen(0)
        others = []
        for _ in range(3):  # more than it lets wait: no answer is not death
            assert not holder_link.is_dead(path)
            other = socket.socket(socket.AF_UNIX)
            other.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                other.connect(str(path))
            others.append(other)
        for other in others:
            other.close()
    assert holder_link.is_dead(path)


# ── ports of agents ──


async def _nothing(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_c4_a_port_is_closed_moved_and_left_with_its_agent() -> None:
    async def answers(port: int) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return False
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        try:
            return b" 204 " in await reader.readline()
        except ConnectionResetError:
            return False
        finally:
            writer.close()

    async def story(one: int, two: int) -> None:
        kept = KeptPorts()
        ports = AgentPorts(kept=kept)
        await ports.open("amy", one)
        await ports.serve(HttpServer(_nothing, asyncio.Event()))
        assert await answers(one)
        await ports.open("amy", two)
        assert (await answers(one), await answers(two)) == (False, True)
        assert ports.number("amy") == two
        # Closed as it is opened: nobody is let in by what comes late.
        opening = asyncio.ensure_future(ports.open("bob", one))
        while ports.number("bob") is None:
            await asyncio.sleep(0)
        ports.close("bob")
        await opening
        assert (ports.number("bob"), await answers(one)) == (None, False)
        ports.leave()
        with pytest.raises(OSError, match="in use"):  # it is kept for the next hub
            listen(two)
        kept.release(two)
        assert not await answers(two)

    with reserved_port() as one, reserved_port() as two:
        run(asyncio.wait_for(story(one, two), SECONDS))


# ── a holder with more callers than its socket keeps waiting ──


@contextlib.contextmanager
def full_backlog(path: Path) -> Iterator[socket.socket]:
    """A listener that takes nobody, and has no room for one more."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen(1)
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(str(path))
        yield listener


def test_b8_a_full_backlog_is_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        with full_backlog(tmp_path / "s") as listener:
            coming = asyncio.create_task(holder_link.open_streams(tmp_path / "s"))
            await asyncio.sleep(0)
            assert not coming.done()
            taken = []
            listener.setblocking(False)
            while not coming.done():  # the holder takes one after the other
                with contextlib.suppress(BlockingIOError):
                    taken.append(listener.accept()[0])
                await asyncio.wait({coming}, timeout=0.05)
            _, writer = coming.result()
            writer.close()
            for one in taken:
                one.close()

    run(main())


def test_b8_a_backlog_that_stays_full_says_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder_link, "BUSY_SECONDS", 0.05)

    async def main() -> None:
        with full_backlog(tmp_path / "s"), pytest.raises(BullpenError) as caught:
            await holder_link.open_streams(tmp_path / "s")
        assert caught.value.kind is Kind.UNAVAILABLE
        assert caught.value.hint == "try again"

    run(main())


def test_b8_no_holder_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run(holder_link.open_streams(tmp_path / "none"))
