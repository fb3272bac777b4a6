"""The sandbox on macOS: a policy becomes a profile for sandbox-exec.

The last rule that matches wins, so rules are sorted as mounts are: outer first. macOS has no
loopback per sandbox, so a program without network that needs its model's API cannot run here.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from bullpen import proc
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import PRIVATE_DIRECTORY
from bullpen.sandboxes import environment
from bullpen.sandboxes.base import Git, Policy, WrappedCommand
from bullpen.sandboxes.bounds import holds, normalize
from bullpen.sandboxes.mounts import LOCKS, hidden_inside
from bullpen.sandboxes.prepare import prepare, prepare_shared_git

PROGRAM = "/usr/bin/sandbox-exec"
READABLE = ("/usr", "/Library", "/System", "/bin", "/sbin", "/private/var")
DEVICES = ("/dev/null", "/dev/random", "/dev/urandom")
WRITABLE = ("/private/tmp", "/var/folders", "/private/var/folders")
BASE = (
    "(version 1)",
    "(deny default)",
    "(allow process-exec)",
    "(allow process-fork)",
    "(allow signal (target same-sandbox))",
    "(allow sysctl-read)",
    "(allow file-read-metadata)",  # else no path can be walked down to what is allowed
    '(allow file-read* (literal "/"))',
    '(allow file-read* file-write* file-ioctl (literal "/dev/tty"))',
)


class Seatbelt:
    """The sandbox of macOS."""

    name = "seatbelt"

    def unavailable(self) -> str:
        """Runs the strictest profile once."""
        if proc.find_program(PROGRAM) is None:
            return f"there is no {PROGRAM}; `sandbox.enabled: false` in the role runs without one"
        strictest = "\n".join([*BASE, *_system()])
        try:
            done = proc.run([PROGRAM, "-p", strictest, "/usr/bin/true"], timeout=20)
        except BullpenError as error:
            return str(error)
        if done.code == 0:
            return ""
        return (
            f"sandbox-exec cannot make a sandbox here: {done.error_text}."
            " `sandbox.enabled: false` in the role runs without one"
        )

    def prepare(self, policy: Policy) -> None:
        policy = normalize(policy)
        prepare(policy)
        prepare_shared_git(policy)

    def wrap(self, argv: tuple[str, ...], env: Mapping[str, str], policy: Policy) -> WrappedCommand:
        policy = normalize(policy)
        inside = {**environment.cut(env, policy), **environment.added(env, policy)}
        return WrappedCommand((PROGRAM, "-p", profile(policy), *argv), inside)


SEATBELT = Seatbelt()


def profile(policy: Policy) -> str:
    """The text. The policy is normal."""
    if policy.network:
        raise BullpenError(
            "sandbox.allow_network: false cannot be had on macOS",
            hint="set sandbox.allow_network: true, or run this agent on Linux",
            kind=Kind.UNSUPPORTED,
        )
    rules = sorted(_own(policy), key=lambda rule: len(rule[0].parts))
    network = ["(allow network*)", "(allow mach-lookup)"]  # names are looked up by a service
    return "\n".join([*BASE, *_system(), *network, *(text for _, text in rules), ""])


def _system() -> Iterator[str]:
    for path in READABLE:
        yield _rule("allow file-read*", Path(path))
    for path in DEVICES:
        yield _rule("allow file-read* file-write*", Path(path), "literal")
    for path in WRITABLE:
        yield _rule("allow file-read* file-write*", Path(path))


def _own(policy: Policy) -> Iterator[tuple[Path, str]]:
    person = policy.person
    visible = (person / ".gitconfig", person / ".config" / "git")
    hidden = (person, policy.home, person / ".config" / "git" / "credentials")
    programs = [path for path in policy.programs if not holds(path, person)]
    for path in (*visible, *programs):
        yield path, _rule("allow file-read*", path)
    for path in hidden:
        yield path, _rule("deny file-read* file-write*", path)
    yield policy.session, _rule("allow file-read*", policy.session)
    yield policy.session, _rule("deny file-write*", policy.session)
    private = policy.session / PRIVATE_DIRECTORY
    yield private, _rule("deny file-read* file-write*", private)
    for path in (policy.sockets, policy.cwd, *policy.writable):
        yield path, _rule("allow file-read* file-write*", path)
    if policy.git:
        yield from _git(policy.git, policy)
    for path in hidden_inside(policy):
        yield path, _rule("deny file-read* file-write*", path)
    for path in policy.read_only:
        yield path, _rule("deny file-write*", path)


def _git(git: Git, policy: Policy) -> Iterator[tuple[Path, str]]:
    yield git.common, _rule("allow file-read*", git.common)
    yield git.common, _rule("deny file-write*", git.common)
    yield git.common / LOCKS, _rule("deny file-read*", git.common / LOCKS)
    if git.admin != git.common:
        yield git.root / ".git", _rule("deny file-write*", git.root / ".git")
    if git.admin == git.common or any(holds(path, git.root) for path in policy.read_only):
        return
    for path in (*(git.common / name for name in ("objects", "refs", "logs")), git.admin):
        yield path, _rule("allow file-write*", path)
    info = git.common / "objects" / "info"
    for path in (info, *(git.admin / name for name in ("commondir", "gitdir", "config.worktree"))):
        yield path, _rule("deny file-write*", path)


def _rule(what: str, path: Path, how: str = "subpath") -> str:
    # A JSON string is one of the profile's language; other characters than ASCII stay as they are.
    return f"({what} ({how} {json.dumps(str(path), ensure_ascii=False)}))"
