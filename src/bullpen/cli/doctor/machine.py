"""What the machine has to offer to any home: git, Python, a session that outlives a log-out."""

import os
import re
import sys

from bullpen import proc
from bullpen.cli.doctor.check import Check
from bullpen.errors import BullpenError

GIT_NEEDED = (2, 38)  # merge-tree --write-tree


def check_git() -> Check:
    """Git is there and new enough."""
    needed = ".".join(map(str, GIT_NEEDED))
    if proc.find_program("git") is None:
        return Check("fail", "git", "not installed", f"install git {needed} or newer")
    try:
        text = proc.run(["git", "--version"], timeout=20).text.strip()
    except BullpenError as error:
        return Check("fail", "git", error.message, error.hint)
    version = re.search(r"(\d+)\.(\d+)[.\d]*", text)
    if version is None:
        return Check("fail", "git", f"git --version says {text!r}", "reinstall git")
    if (int(version[1]), int(version[2])) < GIT_NEEDED:
        return Check(
            "fail", "git", f"{version[0]}, needs {needed}", f"install git {needed} or newer"
        )
    return Check("ok", "git", version[0])


def check_search_path() -> Check | None:
    """Entries of PATH that neither we nor agents use; None if there are none."""
    relative = proc.relative_entries(os.environ.get("PATH", ""))
    if not relative:
        return None
    text = f"relative entries are left out, for us and for agents: {', '.join(relative)}"
    return Check("warn", "PATH", text, "remove them: a program of that name runs wherever you are")


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
