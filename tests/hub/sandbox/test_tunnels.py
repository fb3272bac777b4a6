"""The way out of a sandbox without network: where it leads to, and nowhere else."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from bullpen.home.paths import Home, make_directories
from bullpen.hub.sandbox.tunnels import Tunnels
from tests.hub.parts import run

pytestmark = pytest.mark.slow

SECONDS = 60.0


@pytest.fixture
def far() -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers everything with `pong`: its address, and what it was told."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        heard.append(connection.recv(1 << 16))
                        connection.sendall(b"pong")

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}", heard


class Way:
    """A tunnel, and a client in the sandbox's place."""

    def __init__(self, root: Path, hosts: tuple[str, ...]) -> None:
        root.mkdir(exist_ok=True)
        make_directories(root)
        self.home = Home(root)
        (self.home.session("amy") / "api").mkdir(parents=True)
        self.hosts = hosts

    async def _ask(self, *pieces: bytes) -> bytes:
        tunnels = Tunnels(self.home)
        await tunnels.open("amy", self.hosts)
        path = self.home.session("amy") / "api" / "tunnel.sock"
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_unix_connection(str(path))
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            writer.write_eof()
            answer = await reader.read()
        writer.close()
        tunnels.leave()
        return answer

    def ask(self, *pieces: bytes) -> bytes:
        return asyncio.run(self._ask(*pieces))


ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def connect(target: str) -> bytes:
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()


def test_x2_it_leads_to_the_models_api(tmp_path: Path, far: tuple[str, list[bytes]]) -> None:
    target, heard = far
    answer = Way(tmp_path, (target,)).ask(connect(target) + b"ping")
    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\npong"
    assert heard == [b"ping"]


def test_x2_bytes_in_pieces_arrive_whole(tmp_path: Path, far: tuple[str, list[bytes]]) -> None:
    target, heard = far
    head = connect(target)
    answer = Way(tmp_path, (target,)).ask(head[:9], head[9:])
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert heard == [b""]


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(connect, id="another host"),
        pytest.param(lambda target: connect(f"{target}/../"), id="a path behind it"),
        pytest.param(lambda target: connect(target.replace("127.0.0.1", "127.1")), id="by a pun"),
        pytest.param(lambda target: f"GET http://{target}/ HTTP/1.1\r\n\r\n".encode(), id="GET"),
        pytest.param(
            lambda target: f"CONNECT allowed:443\r\nCONNECT {target} HTTP/1.1\r\n\r\n".encode(),
            id="two requests",
        ),
        pytest.param(lambda _target: b"\r\n\r\n", id="nothing"),
        pytest.param(lambda _target: b"\0" * 500 + b"\r\n\r\n", id="rubbish"),
        pytest.param(lambda _target: b"x" * (1 << 17), id="no end"),
    ],
)
def test_x5_and_nowhere_else(tmp_path: Path, far: tuple[str, list[bytes]], asked) -> None:  # type: ignore[no-untyped-def]
    target, heard = far
    with contextlib.suppress(ConnectionError):
        answer = Way(tmp_path, ("allowed:443",)).ask(asked(target))
        assert not answer.startswith(b"HTTP/1.1 200"), answer
    assert heard == []


def test_x5_another_port_of_the_same_host_is_not_reached(
    tmp_path: Path, far: tuple[str, list[bytes]]
) -> None:
    target, heard = far
    host, _, port = target.rpartition(":")
    allowed = f"{host}:{int(port) % 65535 + 1}"
    answer = Way(tmp_path, (allowed,)).ask(connect(target))
    assert answer.startswith(b"HTTP/1.1 403 "), answer
    assert heard == []


class Open:
    """The tunnel of amy, while a story is told."""

    def __init__(self, home: Home) -> None:
        self.tunnels = Tunnels(home)
        self.path = home.session("amy") / "api" / "tunnel.sock"

    async def enter(self, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Through it, to there; the answer is read."""
        reader, writer = await asyncio.open_unix_connection(str(self.path))
        writer.write(connect(target))
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        return reader, writer


def in_tunnel(root: Path, story: Callable[[Open], Awaitable[None]]) -> None:
    async def told() -> None:
        opened = Open(Way(root, ()).home)
        async with asyncio.timeout(SECONDS):
            await story(opened)
        opened.tunnels.leave()

    run(told())


def test_x5_who_is_in_there_is_cut_off_with_the_agent(
    tmp_path: Path, far: tuple[str, list[bytes]]
) -> None:
    target, heard = far

    async def story(way: Open) -> None:
        await way.tunnels.open("amy", (target,))
        reader, writer = await way.enter(target)
        way.tunnels.close("amy")
        assert not way.path.exists()
        assert await reader.read() == b""  # the far end has not closed: it waits for our bytes
        writer.close()

    in_tunnel(tmp_path, story)
    assert heard in ([], [b""])


def test_x5_who_comes_in_as_it_is_shut_is_not_led_anywhere(
    tmp_path: Path, far: tuple[str, list[bytes]]
) -> None:
    """Accepted before, and heard after: at each step between the two."""
    target, heard = far

    async def story(way: Open) -> None:
        for steps in range(6):
            await way.tunnels.open("amy", (target,))
            with socket.socket(socket.AF_UNIX) as talk:
                talk.connect(str(way.path))
                talk.sendall(connect(target))
                for _ in range(steps):
                    await asyncio.sleep(0)
                way.tunnels.close("amy")
                talk.setblocking(False)
                reader, writer = await asyncio.open_connection(sock=talk)
                with contextlib.suppress(ConnectionResetError):
                    answer = await reader.read()  # to the end: it is cut off
                    assert answer in (b"", ESTABLISHED), steps
                writer.close()

    in_tunnel(tmp_path, story)
    assert set(heard) <= {b""}


def test_x5_a_way_that_is_led_elsewhere_leads_nobody_to_the_first(
    tmp_path: Path, far: tuple[str, list[bytes]]
) -> None:
    target, heard = far

    async def story(way: Open) -> None:
        await way.tunnels.open("amy", (target,))
        reader, writer = await way.enter(target)
        await way.tunnels.open("amy", ("allowed:443",))
        assert await reader.read() == b""
        writer.close()
        reader, writer = await asyncio.open_unix_connection(str(way.path))
        writer.write(connect(target))
        assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
        writer.close()
        await way.tunnels.open("amy", ())
        assert not way.path.exists()

    in_tunnel(tmp_path, story)
    assert heard in ([], [b""])


def test_x2_the_same_way_again_cuts_nobody_off(
    tmp_path: Path, far: tuple[str, list[bytes]]
) -> None:
    target, heard = far

    async def story(way: Open) -> None:
        await way.tunnels.open("amy", (target,))
        reader, writer = await way.enter(target)
        await way.tunnels.open("amy", (target,))
        writer.write(b"ping")
        assert await reader.read() == b"pong"
        writer.close()

    in_tunnel(tmp_path, story)
    assert heard == [b"ping"]


def test_x5_one_agent_has_so_many_connections_and_no_more(
    tmp_path: Path, far: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, _heard = far
    monkeypatch.setattr("bullpen.hub.sandbox.tunnels.MOST_CONNECTIONS", 2)

    async def story(way: Open) -> None:
        await way.tunnels.open("amy", (target,))
        waiting = [await asyncio.open_unix_connection(str(way.path)) for _ in range(2)]
        reader, writer = await asyncio.open_unix_connection(str(way.path))
        assert await reader.read() == b""  # one too many
        writer.close()
        for reader, writer in waiting:
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 405 ")
            writer.close()
        # Who has left makes room.
        reader, writer = await way.enter(target)
        writer.close()

    in_tunnel(tmp_path, story)


def test_x5_the_agent_cannot_put_something_in_its_place(tmp_path: Path) -> None:
    """Its directory is writable for it: a link there must not lead the hub elsewhere."""
    way = Way(tmp_path / "home", ("allowed:443",))
    api = way.home.session("amy") / "api"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    api.rmdir()
    api.symlink_to(elsewhere)
    with pytest.raises(OSError):
        way.ask(connect("allowed:443"))
    assert list(elsewhere.iterdir()) == []
