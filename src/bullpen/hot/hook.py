"""What `bullpen hook` does: sends an engine's event to the hub, or stores it for later.

Called by the hot command, by `bullpen.cli`, and by `main` from the line that `hook_line` writes
into an engine's settings. Must never break or delay an agent: every wait has a limit, every failure
is silent. An event that no hub acknowledged goes to a file in the agent's session (in a sandbox,
to its `api/`), which the next hub reads. An event that arrives twice is better than a lost one.
As light as `wire`.
"""

import posix
import sys
import time

from bullpen.hot import find_hub, wire
from bullpen.hot.own_python import TRUSTED_DIRECTORY, module_command

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
    socket = find_hub.find_socket(posix.environ)
    if socket is None:
        # Only the whole command line can tell. Nothing has been read yet.
        posix.chdir(TRUSTED_DIRECTORY)
        posix.execv(sys.executable, module_command("bullpen", "hook", "--agent", agent))
    try:
        write(1, pass_on(socket, agent, posix.environ))
    except OSError:
        posix._exit(0)  # the engine left
    # No tidying up of modules: that takes a tenth of the whole.
    posix._exit(0)


def pass_on(socket: str | bytes | None, agent: str, environ: find_hub.Environment) -> bytes:
    """Hand standard input to the hub; its answer is what the engine is to read."""
    event = read_input()
    return hand_over(socket, agent, environ, event) if agent else b""


def hand_over(
    socket: str | bytes | None, agent: str, environ: find_hub.Environment, event: bytes
) -> bytes:
    """The same with what was read."""
    if socket is None:
        _spool(environ, event)
        return b""
    headers = {"content-type": "application/json", **find_hub.headers(environ)}
    target = f"/agents/{wire.quoted(agent)}/hooks"
    try:
        answer = wire.request(socket, "POST", target, headers, event, ANSWER_SECONDS)
    except (wire.HubError, OSError):
        _spool(environ, event)
        return b""
    except ValueError:
        return b""  # a token that cannot be sent opens nothing, now or later
    if answer.status == 429 or answer.status >= 500:
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


def _spool(environ: find_hub.Environment, event: bytes) -> None:
    directory = environ.get(b"BULLPEN_SESSION_DIR")
    if not directory:
        return
    # Between the tokens of JSON a line break means no more than a space, and inside a string
    # it cannot stand.
    text = event.replace(b"\r", b" ").replace(b"\n", b" ")
    line = b"%.3f\t%s\n" % (time.time(), text)
    for target in (directory, directory + find_hub.API_DIRECTORY):
        if _append(target + b"/" + SPOOL, line):
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
