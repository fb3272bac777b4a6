"""What `bullpen hook` does: hand an engine's event to the hub, or leave it for later.

Called by the hot command, by the whole command line, and by `main` from the line that
`hook_line` writes into an engine's settings. It must never break or hold up an agent:
every wait has a limit, and every failure ends in silence. An event that no hub has
acknowledged goes to a file in the agent's session (in a sandbox, where that cannot be written,
beside the agent's door), which the hub reads when it is back; one that arrived twice is better
than one that is lost. As light as `wire`.
"""

import posix
import sys
import time

from bullpen.client import reach, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # `signal` builds enums of all of them first

INPUT_SECONDS = 5.0
ANSWER_SECONDS = 5.0
INPUT_BYTES = 8 << 20  # the hub takes no larger body
SPOOL = b"hooks.spool"
SPOOL_BYTES = 16 << 20


def main() -> None:
    """Entry of the generated line: the agent's name is the last word."""
    agent = sys.argv[1]
    socket = reach.find_socket(posix.environ)
    if socket is None:
        # Only the whole command line can tell. Nothing has been read yet.
        words = [sys.executable, "-m", "bullpen", "hook", "--agent", agent]
        posix.execv(sys.executable, words)
    try:
        write(1, pass_on(socket, agent, posix.environ))
    except OSError:
        posix._exit(0)  # the engine left
    # No tidying up of modules: that takes a tenth of the whole.
    posix._exit(0)


def pass_on(socket: str | bytes | None, agent: str, environ: reach.Environment) -> bytes:
    """Hand standard input to the hub; its answer is what the engine is to read."""
    event = read_input()
    return hand_over(socket, agent, environ, event) if agent else b""


def hand_over(
    socket: str | bytes | None, agent: str, environ: reach.Environment, event: bytes
) -> bytes:
    """The same with what was read."""
    if socket is None:
        _spool(environ, event)
        return b""
    headers = {"content-type": "application/json", **reach.headers(environ)}
    target = f"/agents/{wire.quoted(agent)}/hooks"
    try:
        answer = wire.request(socket, "POST", target, headers, event, ANSWER_SECONDS)
    except (wire.HubError, OSError):
        _spool(environ, event)
        return b""
    except ValueError:
        return b""  # a token that cannot be sent opens nothing, now or later
    if answer.status >= 500:
        _spool(environ, event)
    return answer.body if answer.status == 200 else b""


def write(descriptor: int, data: bytes) -> None:
    """All of it, also into a pipe that its owner made non-blocking."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[posix.write(descriptor, rest) :]
        except BlockingIOError:
            time.sleep(0.002)


def read_input() -> bytes:
    """All of standard input. Nothing, if it is too much, does not end, or is closed."""

    def give_up(*_: object) -> None:
        raise TimeoutError

    before = _signal.signal(_signal.SIGALRM, give_up)
    _signal.setitimer(_signal.ITIMER_REAL, INPUT_SECONDS)
    try:
        return _read_all()
    except OSError:
        return b""
    finally:
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        _signal.signal(_signal.SIGALRM, before or _signal.SIG_DFL)


def _read_all() -> bytes:
    pieces = []
    size = 0
    # To the end even when it is too much: an engine that is still writing would get SIGPIPE.
    while piece := posix.read(0, 1 << 16):
        size += len(piece)
        if size <= INPUT_BYTES:
            pieces.append(piece)
    return b"".join(pieces) if size <= INPUT_BYTES else b""


def _spool(environ: reach.Environment, event: bytes) -> None:
    directory = environ.get(b"BULLPEN_SESSION_DIR")
    if not directory:
        return
    # Between the tokens of JSON a line break means no more than a space, and inside a string
    # it cannot stand.
    text = event.replace(b"\r", b" ").replace(b"\n", b" ")
    line = b"%.3f\t%s\n" % (time.time(), text)
    for place in (directory, directory + reach.DOORS):
        if _append(place + b"/" + SPOOL, line):
            return


def _append(path: bytes, line: bytes) -> bool:
    """Add the line to that file; False if it cannot be opened."""
    flags = posix.O_RDWR | posix.O_APPEND | posix.O_CREAT | posix.O_NOFOLLOW | posix.O_CLOEXEC
    try:
        descriptor = posix.open(path, flags | posix.O_NONBLOCK, 0o600)
    except OSError:
        return False
    try:
        size = posix.fstat(descriptor).st_size
        # A full disk may have cut the last line short: ours must not become its rest.
        if size and posix.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        if size + len(line) <= SPOOL_BYTES:
            posix.write(descriptor, line)
    except OSError:
        return True
    finally:
        posix.close(descriptor)
    return True
