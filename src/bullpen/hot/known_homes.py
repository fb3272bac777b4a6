"""Which homes this person made or accepted, and whether one lies where an agent works.

Called by both searches for a home, `hot/find_hub` and `home/accepted`: they refuse the same. An
agent can write a marker, so a home that is found by walking up counts only if it is in this list:
`bullpen/homes` in the person's configuration, a line per home, its id and its path. Reads only;
`home/accepted` writes. As light as `wire`.
"""

import posix

MARKER = b".bullpen-dir.txt"
ID = b".bullpen-id.txt"
ID_BYTES = 16
LIST = b"/bullpen/homes"
LIST_BYTES = 1 << 20
RECORDS = b".records"  # beside worktrees: a file for each
# In these directories of a home agents work.
WORKING = (b"worktrees", b"sessions", b"projects")

Environment = dict[bytes, bytes]


def list_path(environ: Environment, person: bytes) -> bytes:
    """Where the list is."""
    configured = environ.get(b"XDG_CONFIG_HOME", b"")
    return (configured if configured.startswith(b"/") else person + b"/.config") + LIST


def is_accepted(root: bytes, environ: Environment, person: bytes) -> bool:
    """Whether a home that was found by walking up may be used. `root` has no links in it."""
    if root == person + b"/.bullpen":
        return True  # found from everywhere: the person's own, as ~/.bashrc is
    if agents_directory(root) is not None:
        return False
    home_id = read_id(root)
    return home_id is not None and line(home_id, root) in read_list(list_path(environ, person))


def agents_directory(path: bytes) -> bytes | None:
    """The directory around `path`, or itself, that an agent or a task was given by Bullpen."""
    directory, below = path, b""
    while directory:
        above, _, name = directory.rpartition(b"/")
        if below in WORKING and _is_there(directory + b"/" + MARKER):
            return directory + b"/" + below
        if name and _is_there(b"%s/%s/%s.json" % (above, RECORDS, name)):
            return directory
        directory, below = above, name
    return None


def read_id(root: bytes) -> bytes | None:
    """The home's id; None if it has none."""
    try:
        content = _read(root + b"/" + ID, ID_BYTES + 2)
    except OSError:
        return None
    home_id = content[:-1]
    return home_id if len(home_id) == ID_BYTES and home_id.isalnum() else None


def read_list(path: bytes) -> list[bytes]:
    """Its lines. None of it is believed if others could have written it."""
    try:
        status = posix.stat(path)
        if status.st_uid != posix.getuid() or status.st_mode & 0o022:
            return []
        return _read(path, LIST_BYTES).split(b"\n")
    except OSError:
        return []


def line(home_id: bytes, root: bytes) -> bytes:
    """How a home is listed. A path may hold a line break."""
    return home_id + b" " + root.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")


def _is_there(path: bytes) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def _read(path: bytes, most: int) -> bytes:
    """Never waits: a pipe may lie there."""
    descriptor = posix.open(path, posix.O_RDONLY | posix.O_NONBLOCK | posix.O_CLOEXEC)
    try:
        return posix.read(descriptor, most)
    finally:
        posix.close(descriptor)
