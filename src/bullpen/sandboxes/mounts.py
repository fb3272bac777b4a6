"""What a bubblewrap sandbox sees of the file system: a policy becomes named lines.

Looks at what exists, changes nothing. Every line says what would be there without it (`instead`),
so that tests can remove one and show that the attack then works.

Lines are sorted by the depth of their path, outer first, so that an exception comes after what it
is an exception from. At one path the later line of the list wins.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bullpen.home.paths import PRIVATE_DIRECTORY
from bullpen.sandboxes.base import Git, Policy
from bullpen.sandboxes.bounds import holds, real
from bullpen.worktrees.private.alternates import borrows, list_alternates
from bullpen.worktrees.private.store import (
    MOUNTED,
    PrivateStore,
    borrowed_at,
    can_have_store,
    store_of,
)

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
CALLS = "calls.bpf"  # in `SANDBOX_FILES`
SANDBOX_FILES = "walls"  # a directory of the session: what `prepare` writes; its name stays


@dataclass(frozen=True)
class Line:
    """One line of the policy, and what stands there when a test leaves it out."""

    name: str
    path: Path
    args: tuple[str, ...]
    instead: tuple[str, ...] = ()


def mounts(policy: Policy) -> list[Line]:
    """All mounts of a policy, to be sorted. The policy is normal (`bounds.normalize`)."""
    return [
        *_system(policy),
        *_person(policy),
        *_programs(policy),
        *_own(policy),
        *(_git(policy.git, policy) if policy.git else ()),
        *_hidden(policy),
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
    etc = str(policy.session / SANDBOX_FILES / "etc")
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
    """The directories of `/etc` that exist here; `prepare` makes the places where they are
    mounted."""
    every = (Path("/etc", name) for name in ETC_DIRECTORIES)
    return [path for path in every if path.is_dir()]


def _person(policy: Policy) -> Iterator[Line]:
    person = policy.person
    # Caches may be written and vanish; keys, logins and histories are not there.
    yield Line("person", person, ("--tmpfs", str(person)), bind("--bind", person))
    visible = [person / ".gitconfig", person / ".config" / "git"]
    if policy.ssh_agent:
        visible += [person / ".ssh" / "known_hosts", person / ".ssh" / "config"]
        # A mounted socket outlives no restart of the agent; its directory may hold others.
        yield Line("ssh-agent", policy.ssh_agent, bind("--ro-bind", policy.ssh_agent))
    for path in visible:
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
    visible = (policy.cwd, *policy.writable, *policy.read_only, Path("/usr"), *narrow)
    for path in narrow:
        # What lies in another is there, as the link that it may be; of the working directory it
        # is the agent's own.
        is_there = any(other != path and holds(other, path) for other in visible)
        if not is_there and _can_be_shown(path):
            yield Line("programs", path, bind("--ro-bind", path), bind("--bind", path))


def _can_be_shown(path: Path) -> bool:
    """An entry of PATH may be anything. One that the person may not look into (after `su`, say)
    is passed over, as their shell does."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def _own(policy: Policy) -> Iterator[Line]:
    home, session = policy.home, policy.session
    # Other agents' sessions, worktrees, sockets, tokens; the hub's database and credentials.
    yield Line("home", home, ("--tmpfs", str(home)), bind("--bind", home))
    # Its settings and instructions are the hub's to write, and the hub believes what it reads.
    yield Line("session", session, bind("--ro-bind", session), bind("--bind", session))
    # The variables of the shell that started it, which the environment leaves out. A directory: the
    # hub replaces the file in it, and would take away what lies over a file.
    private = session / PRIVATE_DIRECTORY
    yield Line("private", private, ("--tmpfs", str(private)))
    # A directory: a mounted socket would be dead when the hub comes back with a new one.
    yield Line("api-sockets", policy.sockets, bind("--bind", policy.sockets))
    yield Line("cwd", policy.cwd, bind("--bind", policy.cwd))
    for path in dict.fromkeys(policy.writable):
        if path != policy.cwd:
            yield Line("writable", path, bind("--bind", path))


def _git(git: Git, policy: Policy) -> Iterator[Line]:
    if git.admin != git.common:
        yield _guard("git-file", git.root / ".git")
    store = private_store(policy)
    if store is not None:
        yield from private_git(store)
        # For as long as the sandbox runs: who would clear the store looks at this lock.
        lock = store.common / "objects" / "info" / "in-use"
        yield Line("git-in-use", lock, ("--lock-file", str(lock)))
        return
    # As a whole: whoever outside renames a new file over a protected one would detach that mount.
    common = git.common
    yield Line("git-read-only", common, bind("--ro-bind", common), bind("--bind", common))
    # Whoever can open a lock can hold it, also read-only, and nobody makes worktrees any more.
    locks = common / LOCKS
    if locks.is_dir():
        yield Line("git-locks", locks, ("--tmpfs", str(locks)))


def private_store(policy: Policy) -> PrivateStore | None:
    """The git of its own of who may commit. A main checkout has none, and one who may not write
    files has nothing to commit: their git is read-only."""
    git = policy.git
    if git is None or git.admin == git.common or not can_have_store(git.common):
        return None
    if any(holds(path, git.root) for path in policy.read_only):
        return None
    return store_of(git.common, git.admin, git.root)


def private_git(store: PrivateStore) -> Iterator[Line]:
    """What lies over the repository's git directory. `inside` uses the same lines.

    Each lies directly in another mount: an agent can rename a directory between two, put a link in
    its place, and bubblewrap would follow that at the next start.
    """
    common, objects = store.common, store.common / "objects"
    # As a whole: git replaces files in there, which cannot be done to a mount. The refs, the
    # configuration and the siblings' directories of the real one are not there.
    yield Line("git-common", common, over("--bind", store.git, common), bind("--bind", common))
    yield Line("git-own-objects", objects, over("--bind", store.objects, objects))
    real = MOUNTED / "objects"
    yield Line("git-objects", real, over("--ro-bind", objects, real), over("--bind", objects, real))
    yield from _borrowed(store)
    lfs = common / "lfs" / "objects"
    if lfs.is_dir():
        there = MOUNTED / "lfs" / "objects"
        yield Line("git-lfs", there, over("--ro-bind", lfs, there), over("--bind", lfs, there))
    # Objects of submodules: the repository's own, and those of the worktree's git directories,
    # which borrow from them by their path.
    for modules, there in (
        (common / "modules", common / "modules"),
        (store.admin / "modules", MOUNTED / "modules"),
    ):
        if modules.is_dir():
            ways = (over(how, modules, there) for how in ("--ro-bind", "--bind"))
            yield Line("git-modules", there, *ways)
    # `alternates` in there says where else objects are read from.
    info = objects / "info"
    yield Line(
        "git-objects-info",
        info,
        over("--ro-bind", store.info, info),
        over("--bind", store.info, info),
    )
    hooks = common / "hooks"
    source = hooks if hooks.is_dir() else store.hooks  # else the agent could make it
    yield Line("git-hooks", hooks, over("--ro-bind", source, hooks), over("--bind", source, hooks))


def _borrowed(store: PrivateStore) -> Iterator[Line]:
    """Objects of other repositories that the real ones borrow from (`git clone --shared`). What
    they say of that themselves names paths that are not there inside: it is masked."""
    objects = store.common / "objects"
    borrowed = list_alternates(objects)
    places = [(objects, MOUNTED / "objects")]
    for number, path in enumerate(borrowed):
        there = borrowed_at(number)
        ways = (over(how, path, there) for how in ("--ro-bind", "--bind"))
        yield Line("git-borrowed", there, *ways)
        places.append((path, there))
    for path, there in places:
        if borrows(path):
            yield Line("git-borrowed-info", there / "info", ("--tmpfs", str(there / "info")))


def _hidden(policy: Policy) -> Iterator[Line]:
    """What a person's other homes say would run as the person."""
    for path in hidden_inside(policy):
        words = ("--tmpfs", str(path), "--remount-ro", str(path))
        instead = bind("--bind", path) if path.exists() else ()
        yield Line("other-homes", path, words, instead)


def hidden_inside(policy: Policy) -> list[Path]:
    """Of what is to be hidden, what lies in a directory that the agent may write to."""
    roots = (policy.cwd, *policy.writable)
    return [
        path
        for path in dict.fromkeys(policy.hidden)
        if any(root != path and holds(root, path) for root in roots)
    ]


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
    guarded = [*policy.read_only, *policy.writable, *policy.hidden]
    guarded += [policy.home, policy.person]
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
    own = (policy.home, policy.person)
    return (*policy.read_only, *policy.hidden, *policy.programs, *own, *git)


def _guard(name: str, path: Path) -> Line:
    return Line(name, path, bind("--ro-bind", path))


def over(how: str, source: Path, path: Path) -> tuple[str, str, str]:
    """At another place."""
    return (how, os.fspath(source), os.fspath(path))


def bind(how: str, path: Path) -> tuple[str, str, str]:
    """At its own place."""
    return (how, os.fspath(path), os.fspath(path))
