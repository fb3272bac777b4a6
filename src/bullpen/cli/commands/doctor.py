"""`bullpen doctor`: one line for each thing that has to be right, and how to put it right.

A check is a function that returns a `Check`, or None if there is nothing to check here;
it never raises for what it found. A new one is written here and added to one of the two tuples;
engines have one check for all.
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

from bullpen import credentials, marker, proc
from bullpen.cli import output
from bullpen.errors import BullpenError, Kind
from bullpen.paths import Home, current_home, person_home, shown

GIT_NEEDED = (2, 38)  # merge-tree --write-tree
DISK_NEEDED = 10**9
ANSWER_SECONDS = 20.0
LOG_IN = {
    "claude": "bullpen auth claude · or claude setup-token, then bullpen auth set claude-token",
    "gemini": "bullpen auth set gemini-api-key",
    "codex": "bullpen auth set openai-api-key",
}


@dataclass(frozen=True)
class Check:
    """What was found; `fix` is the command or step that helps, `lacks` what it cannot do."""

    status: Literal["ok", "warn", "fail"]
    name: str
    text: str
    fix: str = ""
    lacks: tuple[str, ...] = ()


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
    files = sorted(path for path in home.credentials.iterdir() if path.lstat().st_mode & 0o077)
    if files:
        text = f"open to others: {', '.join(path.name for path in files)}"
        return Check("fail", "modes", text, shlex.join(["chmod", "600", *map(str, files)]))
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


def check_engine(name: str, home: Home | None) -> Check:
    """The program of an engine: its version, what it would log in with, what it cannot do."""
    from bullpen.engines import ENGINES

    found = _engine_version(name)
    if isinstance(found, Check):
        return found
    try:
        login = credentials.find_login(home, name, os.environ, person_home())
    except BullpenError as error:
        return Check("fail", name, error.message, error.hint)
    text = f"{found}   login: {login.text}"
    lacks = ENGINES[name].lacks
    if login.kind == "none":
        return Check("warn", name, text, LOG_IN[name], lacks)
    return Check("ok", name, text, lacks=lacks)


def _engine_version(name: str) -> str | Check:
    """What the program says, or what is wrong with it."""
    from bullpen.engines.base import find_program
    from bullpen.engines.versions import PROGRAMS, is_enough, parse_version, written

    needed = PROGRAMS[name]
    try:
        program = find_program(os.environ, needed.variable, needed.program, needed.package)
    except BullpenError as error:
        if os.environ.get(needed.variable):
            return Check("fail", name, error.message, f"{needed.variable} has to name a program")
        return Check("warn", name, "not installed", needed.install)
    try:
        done = proc.run([program, "--version"], timeout=ANSWER_SECONDS)
    except (BullpenError, OSError) as error:  # the latter: what the kernel cannot execute
        text = f"cannot start {program}: {error}" if isinstance(error, OSError) else error.message
        return Check("fail", name, text, needed.install)
    version = parse_version(done.text)
    if done.code != 0 or version is None:
        said = [line for line in (done.error_text or done.text).splitlines() if line.strip()]
        says = f", says {said[-1].strip()[:100]!r}" if said else ""
        text = f"{program} --version ends with {done.code}{says}"
        return Check("fail", name, text, needed.install)
    if not is_enough(version, needed.oldest):
        text = f"{written(version)}, needs {written(needed.oldest)}"
        return Check("fail", name, text, needed.install)
    return written(version)


MACHINE = (check_git, check_python, check_lingering)
HOME = (check_home, check_modes, check_sockets)


def checks() -> Iterator[Check]:
    """All of them, in order; without a home, what can be said without one."""
    for look in MACHINE:
        if check := look():
            yield check
    home, no_home = _find_home()
    for engine in credentials.WAYS:
        yield check_engine(engine, home)
    if no_home:
        yield no_home
    if home:
        for look_at in HOME:
            yield look_at(home)


def _find_home() -> tuple[Home, None] | tuple[None, Check]:
    try:
        return current_home(), None
    except BullpenError as error:
        status: Literal["warn", "fail"] = "warn" if error.kind is Kind.NOT_FOUND else "fail"
        return None, Check(status, "home", error.message, error.hint)


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
        for lack in check.lacks:
            output.write(f"{'':6}{'':{size}}  lacks: {lack}")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
