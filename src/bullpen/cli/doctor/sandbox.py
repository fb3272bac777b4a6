"""Walls around agents: whether they can be built here, and what limits what is inside."""

import sys
import time

from bullpen import proc
from bullpen.cli.doctor.check import Check
from bullpen.errors import BullpenError

# Programs that have to be installed, and tell their version; others come with the system.
PROGRAMS = {"bubblewrap": "bwrap"}
INSTALL = "apt install bubblewrap (or dnf, pacman, apk) · or sandbox.enabled: false in the roles"
DELEGATE = "run Bullpen as an ordinary user, or in a cgroup of its own (systemd: Delegate=yes)"


def check_sandbox() -> Check:
    """Starts a program that does nothing in a sandbox."""
    from bullpen.sandboxes import get_sandbox

    sandbox = get_sandbox()
    program = PROGRAMS.get(sandbox.name)
    if program and proc.find_program(program) is None:
        return Check("fail", "sandbox", f"{sandbox.name} is not installed", INSTALL)
    started = time.monotonic()
    why = sandbox.unavailable()
    milliseconds = (time.monotonic() - started) * 1000
    if why:
        # A failure, because tasks do not start without a sandbox.
        text, gap, causes = why.partition(" Usual causes: ")
        return Check("fail", "sandbox", text, f"usual causes: {causes}" if gap else "")
    text = f"{_version(sandbox.name, program)}, started and left in {milliseconds:.0f} ms"
    return Check("ok", "sandbox", text)


def check_limits() -> Check | None:
    """Whether one agent can take all processes or all memory; None where we set no limits."""
    if sys.platform != "linux":
        return None
    from bullpen.sandboxes import limits

    limit = limits.find()
    if limit.pids is None and not limit.is_counted:
        text = f"{limit}: an agent in a sandbox can use up all of the machine's processes"
        return Check("warn", "limits", text, DELEGATE)
    return Check("ok", "limits", str(limit))


def _version(name: str, program: str | None) -> str:
    """The name with the version, as far as its program tells one."""
    if program is None:
        return name
    try:
        done = proc.run([program, "--version"], timeout=20)
    except BullpenError:
        return name
    words = done.text.split()
    return f"{name} {words[-1]}" if done.code == 0 and words else name
