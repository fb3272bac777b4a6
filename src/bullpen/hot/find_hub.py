"""Finds the hub's socket for a hot command, and the headers to send.

The socket is the home's or, in a sandbox, where the home is masked, the agent's own. Same rule as
`find_home` in `home/paths.py`, on plain bytes, without `os` and `pathlib`, whose import is too
slow. Returns None when it is not sure; its caller then uses `home/paths.py`. Never migrates,
adopts, refuses or explains.
"""

import posix

from bullpen import __version__
from bullpen.hot import known_homes
from bullpen.hot.known_homes import MARKER

SOCKET_BYTES = 100
API_DIRECTORY, SOCKET = b"/api", b"/hub.sock"  # in the agent's session
DESCRIPTORS = b"/proc/self/fd"

Environment = dict[bytes, bytes]


def find_socket(environ: Environment) -> bytes | None:
    """The socket to connect to. Whether a hub listens there is not checked."""
    socket = find_home_socket(environ)
    if socket and _is_there(socket):
        return socket
    return find_agent_socket(environ) or socket


def find_agent_socket(environ: Environment) -> bytes | None:
    """The agent's own socket to the hub, if there is one. The hub knows which agent it belongs
    to."""
    session = environ.get(b"BULLPEN_SESSION_DIR")
    if not session or not session.startswith(b"/"):
        return None
    directory = session + API_DIRECTORY
    if not _is_there(directory + SOCKET):
        return None
    if len(directory + SOCKET) <= SOCKET_BYTES:
        return directory + SOCKET
    # The path of a deep home is longer than an address may be; its descriptor's is not. It stays
    # open for as long as the command lives.
    if not _is_there(DESCRIPTORS):
        return None
    descriptor = posix.open(directory, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
    return b"%s/%d%s" % (DESCRIPTORS, descriptor, SOCKET)


def find_home_socket(environ: Environment) -> bytes | None:
    """The home's socket; it may not exist."""
    try:
        root = find_home(environ, posix.getcwdb())
    except OSError:
        return None
    path = root and root + b"/sockets/hub.sock"
    return path if path and len(path) <= SOCKET_BYTES else None


def find_home(environ: Environment, cwd: bytes) -> bytes | None:
    """The home, perhaps by another name than the resolved one: it leads to the same sockets."""
    person = environ.get(b"HOME", b"")
    if not person.startswith(b"/") or not cwd.startswith(b"/"):
        return None
    named = environ.get(b"BULLPEN_DIR")
    if named:
        root = _absolute(named, cwd, person)
        home = root if _is_marked(root) else None
    else:
        home = _home_above(cwd, person)
        if home and not known_homes.is_accepted(home, environ, person):
            return None
    return home if home and _is_ours(home) and _is_current(home) else None


def headers(environ: Environment) -> dict[str, str]:
    """Who asks: an agent says so by its token."""
    token = environ.get(b"BULLPEN_TOKEN")
    return {"authorization": f"Bearer {token.decode('latin-1')}"} if token else {}


def _is_there(path: bytes) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def _absolute(text: bytes, cwd: bytes, person: bytes) -> bytes:
    if text == b"~" or text.startswith(b"~/"):
        return person + text[1:]
    return text if text.startswith(b"/") else cwd + b"/" + text


def _home_above(cwd: bytes, person: bytes) -> bytes | None:
    directory = cwd.rstrip(b"/")
    while True:
        for root in (directory or b"/", directory + b"/.bullpen"):
            if _is_marked(root):
                return root
        if not directory:
            break
        directory = directory[: directory.rindex(b"/")]
    root = person + b"/.bullpen"
    return root if _is_marked(root) else None


def _is_marked(root: bytes) -> bool:
    try:
        return posix.stat(root + b"/" + MARKER).st_mode & 0o170000 == 0o100000
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False


def _is_ours(root: bytes) -> bool:
    return posix.stat(root).st_uid == posix.getuid()


def _is_current(root: bytes) -> bool:
    """Neither a migration nor a refusal is due."""
    descriptor = posix.open(root + b"/" + MARKER, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        return posix.read(descriptor, 100) == b"v%s\n" % __version__.encode()
    finally:
        posix.close(descriptor)
