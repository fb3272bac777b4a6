"""What a bubblewrap sandbox sees of the file system: a policy becomes named lines.

Looks at what exists, changes nothing. Every line says what would stand there without it
(`instead`), so that the tests can take one wall away and show that the attack then works.

Lines get sorted by the depth of their path, outer first, so that an exception always comes after
what it is an exception from, however home, working directory and programs lie in each other. At
one path the later of the list wins.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bullpen.paths import KEPT_BACK
from bullpen.sandboxes.base import Git, Policy
from bullpen.sandboxes.bounds import holds, real

PROGRAMS = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Of /etc: how names are looked up, which certificates count, where libraries are. The files are
# copies in the session, behind one mount: each mount takes as long as a start of `true`.
ETC_FILES = (
    *("resolv.conf", "hosts", "host.conf", "nsswitch.conf", "gai.conf", "protocols", "services"),
    *("ld.so.cache", "ld.so.conf", "localtime", "timezone", "locale.alias", "mime.types", "magic"),
    *("os-release", "debian_version", "gitconfig", "npmrc", "pip.conf", "inputrc", "profile"),
    *("bash.bashrc", "shells", "ssh/ssh_config"),
)
ETC_DIRECTORIES = (
    *("alternatives", "crypto-policies", "fonts", "java-17-openjdk", "java-21-openjdk"),
    *("ld.so.conf.d", "pki", "ssl"),
)
KERNEL = ("acpi", "fs", "mtrr", "scsi", "sys", "sysrq-trigger")
LOCKS = "bullpen"  # in the repository: what the library of worktrees keeps there
CALLS = "calls.bpf"  # in `WALLS`
WALLS = "walls"  # in the session: files that `prepare` writes for us


@dataclass(frozen=True)
class Line:
    """One line of the policy, and what stands there when a test leaves it out."""

    name: str
    path: Path
    args: tuple[str, ...]
    instead: tuple[str, ...] = ()


def mounts(policy: Policy) -> list[Line]:
    """All of them, to be sorted. The policy is settled (`bounds.settle`)."""
    return [
        *_system(policy),
        *_person(policy),
        *_programs(policy),
        *_own(policy),
        *(_git(policy.git, policy) if policy.git else ()),
        *_read_only(policy),
        *_pins(policy),
    ]


def _system(policy: Policy) -> Iterator[Line]:
    # bubblewrap begins with an empty root: what no line names is not there.
    yield Line("root", Path("/"), (), ("--bind", "/", "/"))
    for name in PROGRAMS:
        path = Path("/", name)
        if path.is_symlink():
            # Kept as a link: programs compare /bin/sh and /usr/bin/sh, and see one file.
            yield Line("links", path, ("--symlink", str(path.readlink()), str(path)))
        elif path.is_dir():
            yield Line("system", path, bind("--ro-bind", path), bind("--bind", path))
    # With the names of this user only: without any there is no user name, and the real ones are
    # everybody's.
    etc = str(policy.session / WALLS / "etc")
    yield Line("etc", Path("/etc"), ("--ro-bind", etc, "/etc"), ("--bind", "/etc", "/etc"))
    for path in etc_directories():
        yield Line("etc-directories", path, bind("--ro-bind", path), bind("--bind", path))
    keys = Path("/etc/ssl/private")
    if keys.is_dir():
        yield Line("keys", keys, ("--tmpfs", str(keys)))
    # Private ones: in the real ones lie other programs' sockets, terminals, environments.
    for name, kind, shared in (
        *(("tmp", "--tmpfs", "--bind"), ("dev", "--dev", "--dev-bind")),
        *(("proc", "--proc", "--bind"), ("var/tmp", "--tmpfs", "--bind")),
    ):
        path = Path("/", name)
        yield Line(name, path, (kind, str(path)), bind(shared, path))
    # root may write to them without any capability: the kernel asks for the user alone. bubblewrap
    # (0.8) leaves them open, because it looks whether the directories can be written to.
    for name in KERNEL if os.getuid() == 0 else ():
        path = Path("/proc", name)
        if _has_settings(path):
            yield Line("kernel", path, bind("--ro-bind", path))


def _has_settings(path: Path) -> bool:
    """Whether anything in there could be written to by root; empty ones are common."""
    if not path.is_dir() or path.name == "sys":
        return path.exists()
    files = (Path(directory, name) for directory, _, names in os.walk(path) for name in names)
    return any(file.stat().st_mode & 0o222 for file in files)


def etc_directories() -> list[Path]:
    """Those that exist here; `prepare` makes the places where they are mounted."""
    every = (Path("/etc", name) for name in ETC_DIRECTORIES)
    return [path for path in every if path.is_dir()]


def _person(policy: Policy) -> Iterator[Line]:
    person = policy.person
    # Caches may be written and vanish; keys, logins and histories are not there.
    yield Line("person", person, ("--tmpfs", str(person)), bind("--bind", person))
    shown = [person / ".gitconfig", person / ".config" / "git"]
    if policy.ssh_agent:
        shown += [person / ".ssh" / "known_hosts", person / ".ssh" / "config"]
        # A mounted socket outlives no restart of the agent; its directory may hold others.
        yield Line("ssh-agent", policy.ssh_agent, bind("--ro-bind", policy.ssh_agent))
    for path in shown:
        if path.exists():
            yield Line("gitconfig", path, bind("--ro-bind", path), bind("--bind", path))
    # git's own store of passwords lies beside its configuration.
    passwords = person / ".config" / "git" / "credentials"
    if passwords.exists():
        yield Line("git-passwords", passwords, ("--ro-bind", "/dev/null", str(passwords)))


def _programs(policy: Policy) -> Iterator[Line]:
    # One that holds the person's directory would show all of it.
    narrow = [
        path
        for path in dict.fromkeys(policy.programs)
        if not any(holds(each, policy.person) for each in (path, real(path)))
    ]
    shown = (policy.cwd, *policy.writable, *policy.read_only, Path("/usr"), *narrow)
    for path in narrow:
        # What lies in another is there, as the link that it may be; of the working directory it
        # is the agent's own.
        is_there = any(other != path and holds(other, path) for other in shown)
        if path.exists() and not is_there:
            yield Line("programs", path, bind("--ro-bind", path), bind("--bind", path))


def _own(policy: Policy) -> Iterator[Line]:
    home, session = policy.home, policy.session
    # Other agents' sessions, worktrees, sockets, tokens; the hub's database and credentials.
    yield Line("home", home, ("--tmpfs", str(home)), bind("--bind", home))
    # Its settings and instructions are the hub's to write, and the hub believes what it reads.
    yield Line("session", session, bind("--ro-bind", session), bind("--bind", session))
    # The variables of the shell that started it, which the environment leaves out. A directory: the
    # hub replaces the file in it, and would take away what lies over a file.
    private = session / KEPT_BACK
    yield Line("private", private, ("--tmpfs", str(private)))
    # A directory: a mounted socket would be dead when the hub comes back with a new one.
    yield Line("doors", policy.doors, bind("--bind", policy.doors))
    yield Line("cwd", policy.cwd, bind("--bind", policy.cwd))
    for path in dict.fromkeys(policy.writable):
        if path != policy.cwd:
            yield Line("writable", path, bind("--bind", path))


def _git(git: Git, policy: Policy) -> Iterator[Line]:
    common, admin = git.common, git.admin
    # As a whole: whoever outside renames a new file over a protected one would detach that mount.
    yield Line("git-common", common, bind("--ro-bind", common), bind("--bind", common))
    # Whoever can open a lock can hold it, also read-only, and nobody makes worktrees any more.
    locks = common / LOCKS
    if locks.is_dir():
        yield Line("git-locks", locks, ("--tmpfs", str(locks)))
    if admin != common:
        yield _guard("git-file", git.root / ".git")
    if admin == common or any(holds(path, git.root) for path in policy.read_only):
        return  # one who may not write files has nothing to commit
    for name in ("objects", "refs", "logs"):
        yield Line(f"git-{name}", common / name, bind("--bind", common / name))
    # `alternates` in there makes git outside read objects from wherever it says.
    yield _guard("git-objects-info", common / "objects" / "info")
    yield Line("git-admin", admin, bind("--bind", admin))
    # What leads git, when run outside, to a configuration that runs programs.
    for name in ("commondir", "gitdir", "config.worktree"):
        yield _guard(f"git-{name}", admin / name)


def _read_only(policy: Policy) -> Iterator[Line]:
    for path in policy.read_only:
        if path.exists():
            yield Line("read-only", path, bind("--ro-bind", path))
        else:
            # Else the agent would make it: an empty directory stands in its place.
            words = ("--tmpfs", str(path), "--remount-ro", str(path))
            yield Line("read-only", path, words)


def _pins(policy: Policy) -> Iterator[Line]:
    """A mount cannot be renamed, the directories above it can: an agent would move them away and
    put its own in their place. So they become mounts, too.
    """
    open_roots = (policy.cwd, *policy.writable)
    guarded = [*policy.read_only, policy.home, policy.person]
    guarded += [policy.git.root / ".git"] if policy.git else []
    seen: set[Path] = set()
    for path in guarded:
        roots = [root for root in open_roots if root != path and holds(root, path)]
        if not roots:
            continue
        nearest = max(roots, key=lambda root: len(root.parts))
        for above in path.parents:
            if above == nearest:
                break
            is_closed = any(
                holds(nearest, other) and holds(other, above) for other in _closed(policy)
            )
            if above not in seen and not is_closed:
                seen.add(above)
                yield Line("pins", above, bind("--bind", above))


def _closed(policy: Policy) -> tuple[Path, ...]:
    """What a pin must not open again."""
    git = (policy.git.common,) if policy.git else ()
    return (*policy.read_only, *policy.programs, policy.home, policy.person, *git)


def _guard(name: str, path: Path) -> Line:
    return Line(name, path, bind("--ro-bind", path))


def bind(how: str, path: Path) -> tuple[str, str, str]:
    """At its own place."""
    return (how, os.fspath(path), os.fspath(path))
