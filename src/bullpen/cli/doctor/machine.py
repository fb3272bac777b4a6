"""What the machine has to offer to any home: git, Python, a session that outlives a log-out."""

import re
import shutil
import sys

from bullpen import proc
from bullpen.cli.doctor.check import Check
from bullpen.errors import BullpenError

GIT_NEEDED = (2, 38)  # merge-tree --write-tree


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
