"""`bullpen doctor`: one line for each thing that has to be right, and how to put it right.

A check is a function that returns a `Check`, or None if there is nothing to check here;
it never raises for what it found. A new one is written here and added to one of the two tuples.
"""

import os
import re
import shlex
import shutil
import socket
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from bullpen import marker, proc
from bullpen.cli import output
from bullpen.errors import BullpenError, Kind
from bullpen.paths import Home, current_home, shown

GIT_NEEDED = (2, 38)  # merge-tree --write-tree
DISK_NEEDED = 10**9


@dataclass(frozen=True)
class Check:
    """What was found; `fix` is the command or step that helps."""

    status: Literal["ok", "warn", "fail"]
    name: str
    text: str
    fix: str = ""


def check_git() -> Check:
    """Git is there and new enough."""
    needed = ".".join(map(str, GIT_NEEDED))
    if shutil.which("git") is None:
        return Check("fail", "git", "not installed", f"install git {needed} or newer")
    try:
        said = proc.run(["git", "--version"], timeout=20).text.strip()
    except BullpenError as error:
        return Check("fail", "git", error.message, error.hint)
    found = re.search(r"(\d+)\.(\d+)[.\d]*", said)
    if found is None:
        return Check("fail", "git", f"git --version says {said!r}", "reinstall git")
    if (int(found[1]), int(found[2])) < GIT_NEEDED:
        return Check("fail", "git", f"{found[0]}, needs {needed}", f"install git {needed} or newer")
    return Check("ok", "git", found[0])


def check_python() -> Check:
    """Which Python runs bullpen; the package does not install on one that is too old."""
    return Check("ok", "python", f"{'.'.join(map(str, sys.version_info[:3]))} {sys.executable}")


def check_home(home: Home) -> Check:
    """Version, mode and room. That the file system serves was checked when it was found."""
    free = shutil.disk_usage(home.root).free
    version = ".".join(map(str, marker.read_version(home.root)))
    room = f"{free / 10**9:.0f} GB" if free >= DISK_NEEDED else f"{free / 10**6:.0f} MB"
    text = f"{shown(home.root)} v{version}, {_mode(home.root):04o}, {room} free"
    if _mode(home.root) & 0o077:
        return Check("warn", "home", text, f"chmod 700 {shlex.quote(str(home.root))}")
    if free < DISK_NEEDED:
        return Check("warn", "home", text, "make room: agents' worktrees and logs go there")
    return Check("ok", "home", text)


def check_modes(home: Home) -> Check:
    """Nobody else may connect to an agent or read a credential."""
    private = (home.sockets, home.credentials)
    missing = [path.name for path in private if not path.is_dir()]
    if missing:
        fix = shlex.join(["mkdir", "-m", "700", *(str(home.root / name) for name in missing)])
        return Check("fail", "modes", f"missing: {', '.join(missing)}", fix)
    text = ", ".join(f"{path.name} {_mode(path):04o}" for path in private)
    loose = [str(path) for path in private if _mode(path) & 0o077]
    if loose:
        return Check("fail", "modes", text, shlex.join(["chmod", "700", *loose]))
    return Check("ok", "modes", text)


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


def check_lingering() -> Check | None:
    """Agents go on when the person logs out; None where no systemd would end them."""
    from bullpen.component import service

    match service.lingering():
        case "on":
            return Check("ok", "lingering", "agents go on when you log out")
        case "off":
            text = "agents end when you log out"
            return Check("warn", "lingering", text, service.ENABLE_LINGER)
        case _:
            return None


MACHINE = (check_git, check_python, check_lingering)
HOME = (check_home, check_modes, check_sockets)


def checks() -> Iterator[Check]:
    """All of them, in order; without a home, what can be said without one."""
    for look in MACHINE:
        if check := look():
            yield check
    try:
        home = current_home()
    except BullpenError as error:
        status: Literal["warn", "fail"] = "warn" if error.kind is Kind.NOT_FOUND else "fail"
        yield Check(status, "home", error.message, error.hint)
        return
    for look_at in HOME:
        yield look_at(home)


@click.command()
@output.json_option
def command(as_json: bool) -> None:
    """Check this machine and this home; exit code 1 if something fails."""
    found = list(checks())
    failed = any(check.status == "fail" for check in found)
    if as_json:
        output.write_json({"ok": not failed, "checks": [asdict(check) for check in found]})
    else:
        _write(found)
    if failed:
        click.get_current_context().exit(1)


def _write(found: list[Check]) -> None:
    size = max(len(check.name) for check in found)
    for check in found:
        text = output.printable(" · ".join(filter(None, (check.text, check.fix))))
        status = output.colour(f"{check.status:4}", check.status)
        output.write(f"{status}  {check.name:{size}}  {text}")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
