"""What `bullpen permission-request` does: asks the hub whether a tool may run, and waits.

Called by an engine for every permission that none of its own rules decides; by `main` from the
line that `hook_line` writes into its settings. Waits as long as a person takes, also while the hub
is restarted: the question has an id, so asking again is the same question. After any failure it
prints nothing, and the engine's own dialog decides. As light as `wire`.
"""

import posix
import select
import sys
import time

from bullpen.hot import find_hub, hook, wire
from bullpen.hot.own_python import TRUSTED_DIRECTORY, module_command

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
        posix.chdir(TRUSTED_DIRECTORY)
        posix.execv(
            sys.executable, module_command("bullpen", "permission-request", "--agent", agent)
        )
    try:
        hook.write(1, ask(sockets, agent, posix.environ))
    except OSError:
        posix._exit(0)  # the engine left
    posix._exit(0)


def find_sockets(environ: find_hub.Environment) -> list[bytes]:
    """Where the hub may be reached: the agent's own socket, which exists in a sandbox too, and the
    home's socket, where its token says who asks."""
    agent_socket = find_hub.find_agent_socket(environ)
    home_socket = find_hub.find_home_socket(environ)
    return [each for each in (agent_socket, home_socket) if each]


def ask(sockets: list[bytes], agent: str, environ: find_hub.Environment) -> bytes:
    """Standard input is the question. The decision in the engine's own form; empty: none."""
    began, at = time.monotonic(), time.time()
    request = hook.read_input()
    if not agent:
        return b""
    if not request.lstrip().startswith(b"{"):
        # No question at all: noted like any other hook that makes no sense, and not waited for.
        hook.hand_over(sockets[0] if sockets else None, agent, environ, request)
        return b""
    headers = {"content-type": "application/json", **find_hub.headers(environ)}
    # Since when, because a dialog may have been answered before the hub was back.
    question = f"ask={posix.urandom(16).hex()}&at={at:.3f}"
    target = f"/agents/{wire.quoted(agent)}/permission?{question}"
    _end_with_the_engine()
    try:
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
    finally:
        # An interpreter that is being taken down has no handler any more, and would be killed.
        _signal.setitimer(_signal.ITIMER_REAL, 0)


def _end_with_the_engine() -> None:
    """End when the engine was killed: it is no longer our parent, and nobody reads our answer (a
    shell in between may still be our parent)."""
    engine = posix.getppid()
    reader = select.poll()
    reader.register(1, 0)  # only that it was closed is of interest

    def look(*_: object) -> None:
        if posix.getppid() != engine or reader.poll(0):
            posix._exit(0)

    _signal.signal(_signal.SIGALRM, look)
    _signal.setitimer(_signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
