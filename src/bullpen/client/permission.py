"""What `bullpen permission-request` does: ask the hub whether a tool may run, and wait.

Called by an engine for every permission that none of its own rules decides; by `main` from the
line that `hook_line` writes into its settings. It waits for as long as a person takes, and
through a hub that is restarted meanwhile: the question has an id, so asking again is the same
question. It never opens a permission by itself: whatever fails, it says nothing, and the
engine's own dialog decides. As light as `wire`.
"""

import posix
import select
import sys
import time

from bullpen.client import hook, reach, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # `signal` builds enums of all of them first

ASK_AGAIN_SECONDS = 0.5
WAIT_SECONDS = 24 * 3600.0
LOOK_SECONDS = 2.0


def main() -> None:
    """Entry of the generated line: the agent's name is the last word."""
    agent = sys.argv[1]
    sockets = find_sockets(posix.environ)
    if not sockets:
        # Only the whole command line can tell. Nothing has been read yet.
        words = [sys.executable, "-m", "bullpen", "permission-request", "--agent", agent]
        posix.execv(sys.executable, words)
    try:
        hook.write(1, ask(sockets, agent, posix.environ))
    except OSError:
        posix._exit(0)  # the engine left
    posix._exit(0)


def find_sockets(environ: reach.Environment) -> list[bytes]:
    """Where the hub may be reached: the agent's own door, which is there in a sandbox too, and
    the home's socket, where its token says who asks."""
    door = reach.find_door(environ)
    socket = reach.find_home_socket(environ)
    return [each for each in (door, socket) if each]


def ask(sockets: list[bytes], agent: str, environ: reach.Environment) -> bytes:
    """Standard input is the question. The decision in the engine's own form; empty: none."""
    began, at = time.monotonic(), time.time()
    request = hook.read_input()
    if not agent:
        return b""
    if not request.lstrip().startswith(b"{"):
        # No question at all: noted like any other hook that makes no sense, and not waited for.
        hook.hand_over(sockets[0] if sockets else None, agent, environ, request)
        return b""
    headers = {"content-type": "application/json", **reach.headers(environ)}
    # Since when, because a dialog may have been answered before the hub was back.
    question = f"ask={posix.urandom(16).hex()}&at={at:.3f}"
    target = f"/agents/{wire.quoted(agent)}/permission?{question}"
    _end_with_the_engine()
    while (waited := time.monotonic() - began) < WAIT_SECONDS:
        for socket in sockets:
            try:
                left = WAIT_SECONDS - waited
                answer = wire.request(socket, "POST", target, headers, request, left)
            except (wire.HubError, OSError):
                continue  # it is away
            except ValueError:
                return b""  # a token that cannot be sent opens nothing, now or later
            if answer.status < 500:
                return answer.body if answer.status == 200 else b""
        time.sleep(ASK_AGAIN_SECONDS)
    return b""


def _end_with_the_engine() -> None:
    """An engine that was killed waits for nothing: it is no longer our parent, and nobody reads
    what we would say (a shell in between may still be our parent)."""
    engine = posix.getppid()
    reader = select.poll()
    reader.register(1, 0)  # only that it was closed is of interest

    def look(*_: object) -> None:
        if posix.getppid() != engine or reader.poll(0):
            posix._exit(0)

    _signal.signal(_signal.SIGALRM, look)
    _signal.setitimer(_signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
