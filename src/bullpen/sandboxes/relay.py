"""Connects ports on the loopback of a sandbox without network to sockets in a directory.

Started first inside, as a script with the standard library only. It listens, leaves a process
behind that copies bytes, and becomes the program, so that signals, exit code and terminal are the
program's own. It connects anew each time, because a restarted hub has new sockets.

    relay.py LC_CTYPE DIRECTORY PORT=SOCKET[=HOST:PORT]... -- PROGRAM [WORD]...
"""

# Light imports at the top: the program waits for them. The rest is imported by what is left behind.
import os
import sys
from _signal import SIG_DFL, SIGPIPE, SIGXFSZ, signal  # type: ignore[import-not-found]
from _socket import AF_INET, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

HUB = "hub.sock"
TUNNEL = "tunnel.sock"
WAIT_SECONDS = 10.0  # since nobody listens: a hub that is being restarted comes sooner
RETRY_SECONDS = 0.1
CHUNK = 1 << 16
BACKLOG = 128

_away_since: dict[str, float] = {}  # by the path of a socket on which nobody listens


def route(port: int, path: str, host: str = "") -> str:
    """One word of the command line; with `host` the tunnel is asked to connect to it."""
    return f"{port}={path}={host}" if host else f"{port}={path}"


def main(words: list[str]) -> None:
    """Listen, leave a process behind that copies bytes, become the program."""
    split = words.index("--")
    ctype, sockets, *routes = words[:split]
    argv = words[split + 1 :]
    listeners = []
    for word in routes:
        port, path, *host = word.split("=", 2)
        try:
            listeners.append((_listen(int(port)), f"{sockets}/{path}", host[0] if host else ""))
        except OSError as error:
            sys.exit(f"bullpen: the sandbox cannot listen on port {port}: {error.strerror}")
    # Twice, so that the program has no child that it did not start.
    first = os.fork()
    if first == 0:
        if os.fork() == 0:
            _stay(listeners)
        os._exit(0)
    os.waitpid(first, 0)
    # Python's own doing, which the program must not inherit.
    for number in (SIGPIPE, SIGXFSZ):
        signal(number, SIG_DFL)
    os.environ.pop("LC_CTYPE", None)
    if ctype:
        os.environ["LC_CTYPE"] = ctype
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.stderr.write(f"bullpen: cannot start {argv[0]}: {error.strerror}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def _listen(port: int) -> socket:
    listener = socket(AF_INET, SOCK_STREAM)
    listener.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    return listener


def _stay(listeners: list[tuple[socket, str, str]]) -> None:
    """A session of its own: keys of the terminal and signals to the group are not for us."""
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        import asyncio

        asyncio.run(_serve(listeners))
        code = 0
    finally:
        os._exit(code)


async def _serve(listeners: list[tuple[socket, str, str]]) -> None:
    import asyncio
    from socket import socket as full_socket

    servers = []
    for listener, path, host in listeners:

        async def relay(
            reader: "StreamReader", writer: "StreamWriter", path: str = path, host: str = host
        ) -> None:
            await _relay(reader, writer, path, host)

        whole = full_socket(fileno=listener.detach())
        servers.append(await asyncio.start_server(relay, sock=whole, limit=CHUNK))
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def _relay(reader: "StreamReader", writer: "StreamWriter", path: str, host: str) -> None:
    """One connection, to its end."""
    import asyncio

    onward = None
    try:
        away, onward = await _connect(path)
        if host:
            await _ask(away, onward, host)
        async with asyncio.TaskGroup() as both:
            both.create_task(_pass_on(reader, onward))
            both.create_task(_pass_on(away, writer))
    except* (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # either side left; both are closed
    finally:
        for each in (writer, onward):
            if each is not None:
                each.transport.abort() if each.is_closing() else each.close()


async def _connect(path: str) -> "tuple[StreamReader, StreamWriter]":
    import asyncio

    now = asyncio.get_running_loop().time
    while True:
        try:
            both = await asyncio.open_unix_connection(path, limit=CHUNK)
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            # Once it has been away for so long, nobody waits for it any more.
            if now() > _away_since.setdefault(path, now()) + WAIT_SECONDS:
                raise
        else:
            _away_since.pop(path, None)
            return both
        await asyncio.sleep(RETRY_SECONDS)


async def _ask(away: "StreamReader", onward: "StreamWriter", host: str) -> None:
    """Have the tunnel connect to one host; raises where it does not."""
    onward.write(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = await away.readuntil(b"\r\n\r\n")
    if answer.split(b" ", 2)[1:2] != [b"200"]:
        raise ConnectionRefusedError


async def _pass_on(source: "StreamReader", target: "StreamWriter") -> None:
    while block := await source.read(CHUNK):
        target.write(block)
        await target.drain()
    if target.can_write_eof():
        target.write_eof()


if __name__ == "__main__":
    main(sys.argv[1:])
