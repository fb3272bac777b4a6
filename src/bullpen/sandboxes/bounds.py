"""Whether a policy can hold: its paths made real, and those refused that would open everything.

Called by every sandbox before it builds walls. Reads links, changes nothing.
"""

import os
from dataclasses import replace
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.sandboxes.base import Git, Policy

# A working directory here would bring back what the walls leave out.
TOO_WIDE = frozenset(
    Path("/", name)
    for name in (
        *("", "bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "tmp"),
        *("usr", "var", "private", "System", "Library"),
    )
)
# Of the home, what belongs to all agents or to none: no working directory lies in there.
OF_THE_HUB = frozenset(
    {
        *("sockets", "credentials", "sessions", "claude-config", "logs", "instructions"),
        *("roles", "pods", "agents", "directors"),
    }
)


def settle(policy: Policy) -> Policy:
    """The same policy with real paths; raises where it could not hold.

    Links have to be gone before paths are compared: a home that is reached through a link inside
    the working directory would not be masked.
    """
    for path in policy.read_only:
        _refuse_planted(path, (policy.cwd, *policy.writable))
    git = policy.git
    settled = replace(
        policy,
        cwd=real(policy.cwd),
        home=real(policy.home),
        session=real(policy.session),
        person=real(policy.person),
        doors=real(policy.doors),
        writable=tuple(real(path) for path in policy.writable),
        read_only=tuple(real(path) for path in policy.read_only),
        programs=_by_both_names(policy.programs, (policy.cwd, *policy.writable)),
        git=Git(real(git.common), real(git.admin), real(git.root)) if git else None,
        ssh_agent=real(policy.ssh_agent) if policy.ssh_agent else None,
    )
    for path in (settled.cwd, *settled.writable):
        _refuse_wide(path, settled)
    return settled


def _by_both_names(paths: tuple[Path, ...], writable: tuple[Path, ...]) -> tuple[Path, ...]:
    """A program is started by the name that a link gave it, and looks for its rest by the other.

    Not where the agent may write: it is there anyway, and may be a link that the agent made.
    """
    outside = [path for path in paths if not any(_lies_in(path, each) for each in writable)]
    named = (each for path in outside for each in (real(path), Path(os.path.normpath(path))))
    return tuple(dict.fromkeys(named))


def _lies_in(path: Path, directory: Path) -> bool:
    """By its name, or by that of the directory that it lies in."""
    named = Path(os.path.normpath(path))
    return holds(Path(os.path.normpath(directory)), named) or holds(
        real(directory), real(named.parent) / named.name
    )


def real(path: Path) -> Path:
    """Without links."""
    return Path(os.path.realpath(path))


def holds(outer: Path, inner: Path) -> bool:
    """Whether `inner` is `outer`, or lies in it."""
    return inner.is_relative_to(outer)


def _refuse_wide(path: Path, policy: Policy) -> None:
    why = ""
    if path in TOO_WIDE:
        why = "it belongs to the system"
    elif path == policy.person:
        why = "it holds your keys and logins"
    elif holds(path, policy.session):
        # Wider than the own session: it holds those of others. Masked when it holds the whole home.
        if not (path != policy.home and holds(path, policy.home)):
            why = "the hub keeps its own files there"
    elif holds(policy.home, path) and not holds(policy.session, path):
        parts = path.relative_to(policy.home).parts
        if parts[0] in OF_THE_HUB or parts in {("worktrees",), ("projects",)}:
            why = "the hub keeps its own files there"
    if why:
        raise BullpenError(
            f"a sandbox cannot let an agent write to {path}: {why}",
            hint="work in a directory of the project, or set sandbox.enabled: false",
            kind=Kind.DENIED,
        )


def _refuse_planted(path: Path, writable: tuple[Path, ...]) -> None:
    """A link that an agent made where it may write must not choose what its next start shows it."""
    path = Path(os.path.normpath(path))
    for directory in writable:
        directory = Path(os.path.normpath(directory))
        if path.is_relative_to(directory) and real(path) != real(directory) / path.relative_to(
            directory
        ):
            raise BullpenError(
                f"{path} was to be read-only, and leads out by a link: {real(path)}",
                hint="look who made that link, and remove it",
                kind=Kind.DENIED,
            )
