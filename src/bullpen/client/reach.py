"""How a light command reaches its hub: the home's socket or, in a sandbox, where the home is not to
be seen, the agent's own door; and the headers to send.

The same rule as `paths.find_home`, for the hot commands: on plain bytes, without
`os` and `pathlib` (whose import costs more than the whole command may). It answers
None whenever it is not sure, and its caller then asks `paths`: so it never migrates,
adopts, refuses or explains anything.
"""

import posix

from bullpen import __version__

MARKER = b".bullpen-dir.txt"
SOCKET_BYTES = 100
DOORS, SOCKET = b"/api", b"/hub.sock"  # in the agent's session
DESCRIPTORS = b"/proc/self/fd"

Environment = dict[bytes, bytes]


def find_socket(environ: Environment) -> bytes | None:
    """What to connect to; that somebody listens there is not checked."""
    found = find_home_socket(environ)
    if found and _is_there(found):
        return found
    return find_door(environ) or found


def find_door(environ: Environment) -> bytes | None:
    """The agent's own way to the hub, if there is one. Whose it is the hub knows by itself."""
    session = environ.get(b"BULLPEN_SESSION_DIR")
    if not session or not session.startswith(b"/"):
        return None
    place = session + DOORS
    if not _is_there(place + SOCKET):
        return None
    if len(place + SOCKET) <= SOCKET_BYTES:
        return place + SOCKET
    # The path of a deep home is longer than an address may be; its descriptor's is not. It stays
    # open for as long as the command lives.
    if not _is_there(DESCRIPTORS):
        return None
    descriptor = posix.open(place, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
    return b"%s/%d%s" % (DESCRIPTORS, descriptor, SOCKET)


def find_home_socket(environ: Environment) -> bytes | None:
    """The one for all that know the home; it may not be there."""
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
        found = root if _is_marked(root) else None
    else:
        found = _home_above(cwd, person)
    return found if found and _is_ours(found) and _is_current(found) else None


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
