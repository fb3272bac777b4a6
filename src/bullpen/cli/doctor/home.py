"""The home itself: its version, its modes, room on its disk, sockets in it."""

import os
import shlex
import shutil
import socket
import stat
from pathlib import Path

from bullpen import __version__
from bullpen.cli.doctor.check import Check
from bullpen.errors import BullpenError
from bullpen.home import marker
from bullpen.home.paths import Home, short_path
from bullpen.home.settings import find_unused
from bullpen.home.yamlfile import read

DISK_NEEDED = 10**9
DISK_LEAST = 10**8  # the database and the logs of agents that run need some
# Files outside of the private directories that tell something to whoever can read them.
TELLING = (".env", "hub.json", "state.db", "state.db-wal", "trusted.json")


def check_home(home: Home) -> Check:
    """Version, mode and room. That the file system serves was checked when it was found."""
    free = shutil.disk_usage(home.root).free
    version = marker.read_version(home.root)
    written = ".".join(map(str, version))
    room = f"{free / 10**9:.0f} GB" if free >= DISK_NEEDED else f"{free / 10**6:.0f} MB"
    text = f"{short_path(home.root)} v{written}, {_mode(home.root):04o}, {room} free"
    if free < DISK_LEAST:
        return Check("fail", "home", text, "make room: agents' worktrees and logs go there")
    if _mode(home.root) & 0o077:
        return Check("warn", "home", text, f"chmod 700 {shlex.quote(str(home.root))}")
    if free < DISK_NEEDED:
        return Check("warn", "home", text, "make room: agents' worktrees and logs go there")
    if version > (marker.parse_version(__version__) or version):
        text = f"{text}, newer than this bullpen ({__version__})"
        return Check("warn", "home", text, f"install bullpen {written} or newer")
    unused = find_unused(read(home.config_file)) if home.config_file.exists() else []
    if unused:
        fix = f"remove {', '.join(unused)} from config.yaml: not used by this version"
        return Check("warn", "home", text, fix)
    return Check("ok", "home", text)


def check_modes(home: Home) -> Check:
    """Nobody else may connect to an agent or read a credential."""
    private = (home.sockets, home.credentials)
    missing = [path.name for path in private if not path.is_dir()]
    if missing:
        fix = shlex.join(["mkdir", "-m", "700", *(str(home.root / name) for name in missing)])
        return Check("fail", "modes", f"missing: {', '.join(missing)}", fix)
    text = ", ".join(f"{path.name} {_mode(path):04o}" for path in private)
    open_to_others = [str(path) for path in private if _mode(path) & 0o077]
    if open_to_others:
        return Check("fail", "modes", text, shlex.join(["chmod", "700", *open_to_others]))
    files = sorted(home.credentials.iterdir())
    if _mode(home.root) & 0o077:  # else it keeps everybody out, whatever the files' modes
        files += [path for path in (home.root / name for name in TELLING) if path.exists()]
    return _check_files(files) or Check("ok", "modes", text)


def _check_files(files: list[Path]) -> Check | None:
    strange = [path for path in files if path.lstat().st_uid != os.geteuid()]
    if strange:
        text = f"another user's: {', '.join(path.name for path in strange)}"
        fix = shlex.join(["chown", str(os.geteuid()), *map(str, strange)])
        return Check("fail", "modes", text, fix)
    open_to_others = [path for path in files if path.lstat().st_mode & 0o077]
    if open_to_others:
        text = f"open to others: {', '.join(path.name for path in open_to_others)}"
        return Check("fail", "modes", text, shlex.join(["chmod", "600", *map(str, open_to_others)]))
    return None


def check_sockets(home: Home) -> Check:
    """A Unix socket can be made in the home, and reached."""
    try:
        path = home.socket(f"doctor-{os.urandom(4).hex()}")
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind(str(path))
            try:
                server.listen(1)
                client.settimeout(5)
                client.connect(str(path))
            finally:
                path.unlink()
    except BullpenError as error:
        return Check("fail", "sockets", error.message, error.hint)
    except OSError as error:
        return Check("fail", "sockets", f"cannot bind and connect in {home.sockets}: {error}")
    way = "" if path.parent == home.sockets else f" through {path.parent}"
    return Check("ok", "sockets", f"bound and connected{way}")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
