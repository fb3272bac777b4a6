"""Whose name stands on what agents commit."""

import os

from bullpen import proc
from bullpen.cli.doctor.check import Check
from bullpen.errors import BullpenError
from bullpen.home import credentials
from bullpen.home.paths import Home

FIX = "bullpen auth set git-config · or git config --global user.name and user.email"


def check_identity(home: Home) -> Check | None:
    """What is set for agents, else what git would take in this directory; None without git."""
    try:
        identity = credentials.git_identity(home)
    except BullpenError as error:
        return Check("fail", "identity", error.message, error.hint)
    if identity:
        who = f"{identity['GIT_AUTHOR_NAME']} <{identity['GIT_AUTHOR_EMAIL']}>"
        return Check("ok", "identity", f"agents commit as {who}, git-config of this home")
    if proc.find_program("git") is None:
        return None
    # Else git makes one up of the machine's name, or does not, as the machine will have it.
    argv = ["git", "-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT"]
    try:
        done = proc.run(argv, cwd=home.root, env=_environment(), timeout=20)
    except BullpenError as error:
        return Check("warn", "identity", error.message, FIX)
    if done.code != 0 or ">" not in done.text:
        return Check("warn", "identity", "git does not know who agents commit as", FIX)
    who = done.text.rpartition(">")[0]
    return Check("ok", "identity", f"agents commit as {who}>, your own")


def _environment() -> dict[str, str]:
    """Ours without what would make git look at another repository."""
    of_identity = ("GIT_CONFIG", "GIT_AUTHOR_", "GIT_COMMITTER_")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(of_identity)
    }
