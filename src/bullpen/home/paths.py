"""Where the home is, and every path derived from it.

`current_home` is what commands call; `find_home` is the same rule with its inputs
given. Light enough for the hot commands: nothing heavy is imported at the top.
"""

import contextlib
import functools
import os
import re
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.home import accepted, marker
from bullpen.model import names

# Parents before children. `sockets` comes last, because adoption looks for it: a home that
# init left half-made, without its starter files, must not be taken for an old one.
DIRECTORIES = (
    "roles",
    "sessions",
    "claude-config",
    "claude-config/default",
    "projects",
    "worktrees",
    "pods",
    "pods/roles",
    "pods/templates",
    "agents",
    "directors",
    "credentials",
    "logs",
    "instructions",
    "sockets",
)
PRIVATE = (".", "credentials", "sockets")

HUB = "hub"
PRIVATE_DIRECTORY = "private"  # in a session
# A file in a session, or in the directory of a task's run: a person ended the run that it names,
# without the hub.
KILLED = "killed"
# The kernel's limit is 108 bytes with the final zero, 104 on macOS.
SOCKET_BYTES = 100
TEMP = Path("/tmp")

MOUNTINFO = Path("/proc/self/mountinfo")
NETWORK_TYPES = frozenset(
    {"afs", "cifs", "coda", "davfs", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
    | {"drvfs", "prl_fs", "vboxsf", "vmhgfs"}
    | {f"fuse.{name}" for name in ("davfs2", "gcsfuse", "rclone", "s3fs", "sshfs", "vmhgfs-fuse")}
)
# The Windows drives of WSL come over protocols that are fine for other uses.
DRIVE_TYPES = frozenset({"9p", "virtiofs"})


class _Inside:
    """An attribute of a home that is a path inside it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __get__(self, home: "Home", owner: type["Home"]) -> Path:
        return home.root / self.path


@dataclass(frozen=True)
class Home:
    """One installation's directory: absolute, symlinks resolved."""

    root: Path

    config_file = _Inside("config.yaml")
    roles = _Inside("roles")
    sessions = _Inside("sessions")
    sockets = _Inside("sockets")
    worktrees = _Inside("worktrees")
    pod_roles = _Inside("pods/roles")
    pod_templates = _Inside("pods/templates")
    agents = _Inside("agents")
    directors = _Inside("directors")
    projects = _Inside("projects")
    credentials = _Inside("credentials")
    logs = _Inside("logs")
    instructions = _Inside("instructions")
    claude_config = _Inside("claude-config/default")

    @property
    def id(self) -> str:
        return marker.home_id(self.root)

    def landing_log(self, id: str) -> Path:
        """The output of the command that verified an entry of a landing queue."""
        return self.logs / "landings" / f"{id}.log"

    def private(self, agent: str) -> Path:
        """What an agent in a sandbox does not see of its own session."""
        return self.session(agent) / PRIVATE_DIRECTORY

    def session(self, agent: str) -> Path:
        return self.sessions / names.check_worktree_name(agent)

    def socket(self, name: str, temp: Path = TEMP) -> Path:
        """What to bind or connect to: an agent's socket, or that of `HUB`.

        No agent is called that: the name is reserved.
        """
        if name == HUB:
            return self._socket(f"{HUB}.sock", temp)
        return self._socket(f"agent.{names.check_worktree_name(name)}.sock", temp)

    def message_socket(self, name: str) -> Path:
        """Where an agent's program may listen for messages."""
        return self._socket(f"message.{names.check_worktree_name(name)}.sock", TEMP)

    @property
    def factory_socket(self) -> Path:
        """Where the process listens that holders are forked from."""
        return self._socket("factory.sock", TEMP)

    def component_socket(self, pid: int) -> Path:
        """Where a director, view or bridge is commanded."""
        return self._socket(f"component.{pid}.sock", TEMP)

    def _socket(self, file: str, temp: Path) -> Path:
        path = self.sockets / file
        if len(os.fsencode(path)) > SOCKET_BYTES:
            return short_sockets(self, temp) / path.name
        return path


@functools.cache
def current_home() -> Home:
    """The home of this process."""
    return find_home(os.environ, current_directory(), person_home())


def find_home(env: Mapping[str, str], cwd: Path, person_home: Path) -> Home:
    """BULLPEN_DIR, else the nearest home at or above `cwd`, else `~/.bullpen`. The one above counts
    only if this person made or accepted it."""
    named = env.get("BULLPEN_DIR")
    if named:
        root = absolute(named, cwd, person_home)
        if not marker.is_home(root):
            inside = root / ".bullpen"
            raise BullpenError(
                f"BULLPEN_DIR is {root}, which has no {marker.MARKER}",
                hint=f"export BULLPEN_DIR={shlex.quote(str(inside))}"
                if marker.is_home(inside)
                else "unset BULLPEN_DIR, point it to a home, or make one: bullpen init DIR",
            )
    else:
        above = home_above(cwd)
        root = above or _global_home(person_home)
        _refuse_other_owner(root)
        if above:
            accepted.check(above, env, person_home)
    root = root.resolve()
    refuse_unfit_filesystem(root)
    marker.bring_up_to_date(root, [((0, 1, 0), make_directories)])
    return Home(root)


def current_directory() -> Path:
    """Where the person is; in a deleted directory, where it was."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        before = os.environ.get("PWD", "")
        if not before.startswith("/"):
            raise BullpenError(
                "the current directory is gone", hint="cd to another", kind=Kind.NOT_FOUND
            ) from error
        return Path(before)


def person_home() -> Path:
    """Where `~` is."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise BullpenError(
            f"HOME is not set, and user {os.getuid()} has no account to take it from",
            hint="set HOME",
            kind=Kind.UNAVAILABLE,
        ) from error


def absolute(text: str, cwd: Path, person_home: Path) -> Path:
    """A path as a person writes it: `~` expands, the rest is relative to `cwd`."""
    if text == "~" or text.startswith("~/"):
        return person_home / text[1:].lstrip("/")
    return cwd / text


def short_path(path: Path) -> str:
    """The path as a person writes it, with `~` where that is shorter."""
    for base in (person_home(), person_home().resolve()):
        if path.is_relative_to(base):
            return str(Path("~", path.relative_to(base)))
    return str(path)


def make_directories(root: Path) -> None:
    """Every directory of a home that is not there yet; the private ones are closed."""
    for name in DIRECTORIES:
        (root / name).mkdir(mode=0o700, exist_ok=True)
    for name in PRIVATE:
        (root / name).chmod(0o700)


def home_at(directory: Path) -> Path | None:
    """The home that the directory is or holds."""
    return next(filter(marker.is_home, (directory, directory / ".bullpen")), None)


def home_above(cwd: Path) -> Path | None:
    """The nearest home at or above it, whether it counts or not."""
    return next(filter(None, map(home_at, (cwd, *cwd.parents))), None)


def _global_home(person_home: Path) -> Path:
    root = person_home / ".bullpen"
    if not marker.is_home(root):
        if not _is_adoptable(root):
            raise BullpenError(
                "no home here, above, or in ~/.bullpen", hint="bullpen init", kind=Kind.NOT_FOUND
            )
        # Older than every version, so that all migrations run.
        marker.create(root, "0.0.0")
    return root


def _is_adoptable(root: Path) -> bool:
    try:
        return all((root / name).is_dir() for name in ("roles", "sessions", "sockets"))
    except PermissionError:
        return False


def _refuse_other_owner(root: Path) -> None:
    # Roles say what to execute: a home planted in /tmp must not serve whoever works below.
    owner = root.stat().st_uid
    if owner != os.getuid():
        raise BullpenError(
            f"the home {root} belongs to {_user(owner)}",
            hint=f"if you trust it: BULLPEN_DIR={root}",
            kind=Kind.DENIED,
        )


@dataclass(frozen=True)
class Mount:
    """A line of mountinfo: where, and what is there."""

    point: Path
    type: str
    source: str
    options: str


def filesystem_of(path: Path, mountinfo: str) -> Mount | None:
    """The mount that holds an absolute path: the deepest, and of those the last."""
    best = None
    for line in filter(None, mountinfo.split("\n")):
        left, _, right = line.partition(" - ")
        point = Path(_unescape(left.split(" ")[4]))
        if path.is_relative_to(point) and (
            best is None or len(point.parts) >= len(best.point.parts)
        ):
            kind, source, options = right.split(" ", 2)
            best = Mount(point, kind, _unescape(source), options)
    return best


def is_unfit(mount: Mount) -> bool:
    """Whether locks or Unix sockets are missing or unreliable there."""
    is_drive = mount.type in DRIVE_TYPES and "drvfs" in mount.source + mount.options
    return is_drive or mount.type in NETWORK_TYPES


def refuse_unfit_filesystem(root: Path) -> None:
    """Raise for a home on a network or Windows-mounted file system."""
    try:
        text = MOUNTINFO.read_text("utf-8", "surrogateescape")
    except FileNotFoundError:
        return  # not Linux
    mount = filesystem_of(root, text)
    if mount and is_unfit(mount):
        raise BullpenError(
            f"{root} is on a network or Windows file system ({mount.type} at {mount.point}):"
            " locks and Unix sockets do not work there",
            hint="make the home on a local disk: bullpen init DIR",
            kind=Kind.UNSUPPORTED,
        )


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def short_sockets(home: Home, temp: Path = TEMP) -> Path:
    """A short path to the home's sockets: a link in a directory that only we can write to."""
    import hashlib

    digest = hashlib.sha256(os.fsencode(home.root)).hexdigest()[:8]
    directory = temp / f"bullpen-{os.getuid()}-{digest}"
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    # Once it is ours and closed, the sticky bit of /tmp keeps it so.
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise BullpenError(
            f"{directory} has to be a directory of yours with mode 0700; it is"
            f" {stat.filemode(status.st_mode)} and belongs to {_user(status.st_uid)}",
            hint="remove it; if it is not yours, it may be an attempt to read your terminals",
            kind=Kind.DENIED,
        )
    link = directory / "s"
    if not link.is_symlink() or link.readlink() != home.sockets:
        new = directory / f"s.{os.urandom(4).hex()}"
        new.symlink_to(home.sockets)
        new.replace(link)
    return link


def remove_stale_sockets(temp: Path = TEMP) -> None:
    """Remove such directories of ours whose home is gone. One that comes back gets a new one."""
    for directory in temp.glob(f"bullpen-{os.getuid()}-*"):
        link = directory / "s"
        with contextlib.suppress(OSError):  # somebody else's, or in use in another way
            is_ours = directory.lstat().st_uid == os.getuid() and not directory.is_symlink()
            if is_ours and link.is_symlink() and not link.readlink().parent.exists():
                link.unlink()
                directory.rmdir()


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
