"""How many processes and how much memory a sandbox may use: cgroups, else a process limit.

`find` says what is available here. `prepare` makes the groups of one run, the shell in front of the
sandbox enters them, `remove_ended` removes those of ended runs. Every group is made in our own, or
next to it where that is delegated to us, so our own limits still hold.
"""

import contextlib
import hashlib
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bullpen.errors import BullpenError, Kind
from bullpen.sandboxes.base import Policy

Controller = Literal["pids", "memory"]
# The file that sets the limit, by the version of cgroups.
FILES: dict[tuple[Controller, int], str] = {
    ("pids", 1): "pids.max",
    ("pids", 2): "pids.max",
    ("memory", 1): "memory.limit_in_bytes",
    ("memory", 2): "memory.max",
}
MEMBERS = "cgroup.procs"
SELF = Path("/proc/self")


@dataclass(frozen=True)
class Cgroup:
    """Where groups with this controller can be made."""

    controller: Controller
    version: int
    parent: Path


@dataclass(frozen=True)
class Limits:
    """What can be had here. Neither `pids` nor `is_counted`: processes have no limit."""

    pids: Cgroup | None
    memory: Cgroup | None
    is_counted: bool  # by RLIMIT_NPROC, which does not bind root

    def __str__(self) -> str:
        if self.pids:
            processes = f"processes by cgroup v{self.pids.version}"
        else:
            processes = "processes by RLIMIT_NPROC" if self.is_counted else "processes not limited"
        memory = f"memory by cgroup v{self.memory.version}" if self.memory else "memory not limited"
        return f"{processes}, {memory}"


def find(proc: Path = SELF) -> Limits:
    """What can be had here; `proc` is our directory in /proc."""
    return Limits(
        pids=_find_group("pids", proc),
        memory=_find_group("memory", proc),
        is_counted=os.getuid() != 0,
    )


def entries(policy: Policy, limits: Limits) -> list[Path]:
    """The files by which a process enters the groups of this policy."""
    return [group / MEMBERS for group, _, _ in _groups(policy, limits)]


def prepare(policy: Policy, limits: Limits) -> None:
    """Make the groups of this policy and set their limits."""
    for group, file, value in _groups(policy, limits):
        try:
            group.mkdir(exist_ok=True)
            (group / file).write_text(str(value))
        except OSError as error:
            raise BullpenError(
                f"cannot limit a sandbox: {error.strerror}: {error.filename or group}",
                hint="look at `bullpen doctor`",
                kind=Kind.UNAVAILABLE,
            ) from error


def remove_ended(home: Path, running: Collection[Path], limits: Limits | None = None) -> list[Path]:
    """Remove the groups of this home whose sessions do not run; say which. One that still has
    processes stays: the kernel refuses."""
    used = {_name(home, session) for session in running}
    removed = []
    for parent in _parents(limits or find()):
        for group in parent.glob(f"{prefix(home)}*"):
            if group.name not in used:
                with contextlib.suppress(OSError):
                    group.rmdir()
                    removed.append(group)
    return removed


def _groups(policy: Policy, limits: Limits) -> Iterable[tuple[Path, str, int]]:
    name = _name(policy.home, policy.session)
    for where, value in ((limits.pids, policy.processes), (limits.memory, policy.memory_bytes)):
        if where and value:
            yield where.parent / name, FILES[where.controller, where.version], value


def _parents(limits: Limits) -> set[Path]:
    return {group.parent for group in (limits.pids, limits.memory) if group}


def prefix(home: Path) -> str:
    """How the names of all groups of one home begin."""
    return f"bullpen-{_short(home)}-"


def _name(home: Path, session: Path) -> str:
    return f"{prefix(home)}{session.name[:80]}-{_short(session)}"


def _short(path: Path) -> str:
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:12]


# ── finding them ─────────────────────────────────────────────────────────────


def _find_group(controller: Controller, proc: Path) -> Cgroup | None:
    try:
        memberships = (proc / "cgroup").read_text().splitlines()
        mounted = list(_mounted((proc / "mountinfo").read_text()))
    except OSError:
        return None  # not Linux, or no cgroups
    for line in memberships:
        _, controllers, own = line.split(":", 2)
        version = 1 if controllers else 2
        if version == 1 and controller not in controllers.split(","):
            continue
        for kind, options, root, point in mounted:
            if kind == ("cgroup" if version == 1 else "cgroup2") and (
                version == 2 or controller in options
            ):
                parent = _parent(controller, version, point, _below(own, root))
                if parent:
                    return Cgroup(controller, version, parent)
    return None


def _parent(controller: Controller, version: int, point: Path, own: str) -> Path | None:
    here = point / own
    if version == 1:
        return here if _is_ours(here) else None
    # A group with processes cannot hand controllers on, its parent does: next to ours, then.
    for directory in (here, *here.parents):
        if not directory.is_relative_to(point):
            break
        try:
            handed_on = (directory / "cgroup.subtree_control").read_text().split()
        except OSError:
            break
        if controller in handed_on:
            return directory if _is_ours(directory) else None
    return None


def _is_ours(directory: Path) -> bool:
    return os.access(directory, os.W_OK) and os.access(directory / MEMBERS, os.W_OK)


def _mounted(mountinfo: str) -> Iterable[tuple[str, list[str], str, Path]]:
    """Type, options of the super block, root within the file system, mount point."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(" ", 2)
        yield kind, options.split(","), fields[3], Path(fields[4])


def _below(own: str, root: str) -> str:
    """Our group's path below the mount point. A container sees a part of the tree."""
    if own == root or not Path(own).is_relative_to(root):
        return ""
    return str(Path(own).relative_to(root))
