"""Makes the paths of a policy real, and refuses those that would expose everything.

Called by every sandbox before it wraps. Reads links, changes nothing.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.files import find_planted
from bullpen.sandboxes.base import Git, Policy
from bullpen.sandboxes.links import identity, refuse_planted

# A working directory here would bring back what the sandbox hides.
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


def normalize(policy: Policy, *, is_checked: bool = True) -> Policy:
    """The same policy with real paths; raises where it could not hold.

    Links have to be gone before paths are compared: a home that is reached through a link inside
    the working directory would not be masked. Not checked: for tests only.
    """
    roots = _written(policy)
    if is_checked:
        for path in (policy.cwd, *policy.writable, *policy.read_only):
            refuse_planted(path, roots)
        _refuse_moved(policy)
    git = policy.git
    normal = replace(
        policy,
        cwd=real(policy.cwd),
        home=real(policy.home),
        session=real(policy.session),
        person=real(policy.person),
        sockets=real(policy.sockets),
        writable=tuple(real(path) for path in policy.writable),
        read_only=tuple(real(path) for path in policy.read_only),
        hidden=tuple(real(path) for path in policy.hidden),
        written=tuple(real(path) for path in policy.written),
        programs=_by_both_names(policy.programs, roots),
        git=Git(real(git.common), real(git.admin), real(git.root)) if git else None,
        ssh_agent=real(policy.ssh_agent) if policy.ssh_agent else None,
    )
    for path in (normal.cwd, *normal.writable):
        _refuse_wide(path, normal)
    return normal


def identities(policy: Policy) -> dict[Path, str]:
    """What has to lie, when all is mounted, where an agent could put something else meanwhile. The
    policy is normal."""
    roots = _written(policy)

    paths = [
        path
        for path in (*policy.writable, *policy.read_only)
        if any(root != path and holds(root, path) for root in roots)
    ]
    # No agent works around a worktree or in another's session; around others any may.
    is_alone = policy.cwd.parent == policy.home / "worktrees" or holds(policy.session, policy.cwd)
    if not is_alone:
        paths.append(policy.cwd)
    missing = [path for path in policy.read_only if not path.exists()]
    return {path: identity(path) for path in dict.fromkeys(paths) if path not in missing}


def _written(policy: Policy) -> tuple[Path, ...]:
    """Where an agent can write, or could before."""
    every = (policy.cwd, *policy.writable, *policy.written)
    return tuple(dict.fromkeys(real(path) for path in every))


def _by_both_names(paths: tuple[Path, ...], roots: tuple[Path, ...]) -> tuple[Path, ...]:
    """A program is started by the name that a link gave it, and looks for its rest by the other.

    Not where the agent may write: it is there anyway, and may be a link that the agent made.
    """
    outside = [
        path
        for path in paths
        if not any(holds(root, real(path.parent) / path.name) for root in roots)
        and not find_planted(path, roots)
    ]
    named = (each for path in outside for each in (real(path), Path(os.path.normpath(path))))
    return tuple(dict.fromkeys(named))


def named_path(text: str, cwd: Path, person: Path) -> Path:
    """As a role writes it: from /, from ~, or from the working directory."""
    if text == "~" or text.startswith("~/"):
        return person / text[2:]
    return Path(os.path.normpath(cwd / text))


def ssh_socket(env: Mapping[str, str]) -> Path | None:
    """Where the person's ssh agent listens."""
    socket = env.get("SSH_AUTH_SOCK", "")
    return Path(socket) if socket and Path(socket).exists() else None


def real(path: Path) -> Path:
    """Without links."""
    return Path(os.path.realpath(path))


def holds(outer: Path, inner: Path) -> bool:
    """Whether `inner` is `outer`, or lies in it."""
    return inner.is_relative_to(outer)


def _refuse_moved(policy: Policy) -> None:
    """Who works around a directory can put a link in its place."""
    if policy.real_cwd not in (None, real(policy.cwd)):
        raise BullpenError(
            f"{policy.cwd} leads to {real(policy.cwd)} now, and led to {policy.real_cwd} before",
            hint="look who made a link on the way to it; or stop the agent and run it anew",
            kind=Kind.DENIED,
        )


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
