"""A machine in small for sandboxes: a person, a repository, a home with two agents, a runner.

Everything belongs to the user that the test is about; as root the tests run as root and as an
ordinary user, else as the ordinary user who runs them.
"""

import contextlib
import fcntl
import os
import pickle
import pty
import shutil
import socket
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from bullpen.engines.installed import entry_roots
from bullpen.errors import BullpenError
from bullpen.sandboxes import limits, relay
from bullpen.sandboxes.base import Git, Policy, WrappedCommand
from bullpen.sandboxes.bubblewrap import BUBBLEWRAP
from bullpen.sandboxes.inside import StoreSandbox
from bullpen.worktrees.private.bring_over import BroughtOver, bring_over
from bullpen.worktrees.private.store import Inside, PrivateStore, store_of
from tests.sandboxes import attacks
from tests.waiting import wait_until

T = TypeVar("T")
ORDINARY = 4711  # nobody's
USERS = [0, ORDINARY] if os.getuid() == 0 else [os.getuid()]
PYTHON = "/usr/bin/python3"
SECRET = attacks.SECRET


def as_user(uid: int, function: Callable[[], T]) -> T:
    """Call it in a process of that user."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            become(uid)
            # The interpreter of the tests may lie where only root may look.
            if uid == ORDINARY:
                sys.executable, sys.base_prefix = PYTHON, "/usr"
            try:
                answer = (True, function())
            except BaseException as error:  # noqa: BLE001 - it is raised again by the caller
                answer = (False, error)
            with os.fdopen(writer, "wb") as file:
                pickle.dump(answer, file)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    is_good, value = pickle.loads(data)
    if not is_good:
        raise value
    return value


def become(uid: int) -> None:
    if uid != os.getuid():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)


@dataclass
class Machine:
    root: Path
    uid: int
    open_things: list[Any] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.person = self.root / "person"
        self.repo = self.root / "repo"
        self.home = self.root / "home"
        self.session = self.home / "sessions" / "amy"
        self.cwd = self.home / "worktrees" / "amy"
        self.programs = self.root / "programs"
        self.common = self.repo / ".git"
        self.admin = self.common / "worktrees" / "amy"
        self.pwned = self.root / "elsewhere" / "pwned"
        self.env = {
            "HOME": str(self.person),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "USER": "amy",
            "GIT_AUTHOR_NAME": "Amy",
            "GIT_AUTHOR_EMAIL": "amy@example.com",
            "GIT_COMMITTER_NAME": "Amy",
            "GIT_COMMITTER_EMAIL": "amy@example.com",
        }

    # ── making it ──

    def write(self, path: Path | str, text: str = SECRET) -> Path:
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def build(self) -> None:
        for name in (".ssh/id_ed25519", ".claude/.credentials.json", ".claude/settings.json"):
            self.write(f"person/{name}")
        self.write("person/.bashrc", "")
        self.write("person/.fly/config.yml")
        self.write("person/.fly/bin/flyctl", "#!/bin/sh\ncat ${0%/*}/../lib/words\n").chmod(0o755)
        self.write("person/.fly/lib/words", "fly")
        self.write(
            "person/.gitconfig", "[commit]\n\tgpgsign = true\n[init]\n\tdefaultBranch=main\n"
        )
        self.write("person/.config/git/ignore", "*.pyc\n")
        self.write("person/.config/git/credentials")
        self.write("elsewhere/secret")
        shutil.copy(relay.__file__, self.root / "relay.py")
        self.write("programs/tool", "#!/bin/sh\necho tool\n").chmod(0o755)
        for name in ("state.db", "credentials/api-token", "claude-config/default/.claude.json"):
            self.write(f"home/{name}")
        self.write("home/sessions/bob/token")
        self.write("home/sessions/amy/settings.json", "{}")
        self.write("home/sessions/amy/private/env")
        for name in ("sockets", "sessions/bob/api", "sessions/amy/api", "worktrees"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        self.repo.mkdir()
        self.own()
        unsigned = ("-c", "commit.gpgsign=false")
        self.git("init", "-q", "-b", "main")
        self.git(*unsigned, "commit", "-q", "--allow-empty", "-m", "Start")
        self.write("repo/.git/bullpen/lock", "")
        self.write("repo/.git/modules/part/config", "")
        self.write(f"repo/.git/lfs/objects/c9/a7/{attacks.LFS_OBJECT}")
        self.own()
        self.git("branch", "spare")
        self.git("branch", "other")
        self.git("config", "extensions.worktreeConfig", "true")
        self.git("pack-refs", "--all")
        for name in ("amy", "bob"):
            self.git("worktree", "add", "-q", "-b", name, str(self.home / "worktrees" / name))
        self.write("repo/stashed", "stashed")
        self.own()
        self.git("add", "stashed")
        self.git(*unsigned, "stash", "-q")
        self.write("home/worktrees/bob/secret")
        self.write("home/worktrees/amy/.claude/settings.json", "{}")
        self.write("home/worktrees/amy/deep/guarded/file", "")
        self.write("home/worktrees/amy/deep/other/.bullpen/roles/coder.yaml", "")
        self.write("home/worktrees/amy/deep/config/homes", "")
        for name in ("hub", "factory", "amy", "bob"):
            self.listen(self.home / "sockets" / f"{name}.sock")
        self.listen(self.home / "sessions" / "bob" / "api" / "hub.sock")
        self.own()

    def own(self) -> None:
        if os.getuid() == 0:
            for directory, names, files in os.walk(self.root):
                for name in (".", *names, *files):
                    os.lchown(Path(directory, name), self.uid, self.uid)

    def listen(self, path: Path | str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(200)
        self.open_things.append(listener)
        return listener

    def git(self, *words: str, cwd: Path | None = None) -> str:
        """Outside, as the person does: nothing is switched off, and the directory is trusted."""
        return self.outside(["git", *words], cwd=cwd or self.repo)

    def outside(self, argv: list[str], cwd: Path | None = None, **more: Any) -> str:
        done = subprocess.run(
            argv,
            cwd=cwd or self.root,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **self.identity,
            **more,
        )
        return done.stdout + done.stderr

    @property
    def identity(self) -> dict[str, Any]:
        if os.getuid() == self.uid:
            return {}
        return {"user": self.uid, "group": self.uid, "extra_groups": []}

    # ── sandboxes ──

    def policy(self, **more: Any) -> Policy:
        policy = Policy(
            cwd=self.cwd,
            home=self.home,
            session=self.session,
            person=self.person,
            sockets=self.session / "api",
            writable=(self.cwd,),
            programs=(self.programs, *entry_roots(self.person / ".fly" / "bin", self.person)),
            git=Git(self.common, self.admin, self.cwd),
            is_terminal=False,
        )
        return replace(policy, **more)

    def wrap(
        self,
        argv: Collection[str],
        policy: Policy,
        without: Collection[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> WrappedCommand:
        """Prepared and wrapped as the user."""
        given = {**self.env, **(env or {})}

        def work() -> WrappedCommand:
            os.environ.update(HOME=str(self.person), XDG_CONFIG_HOME=str(self.person / ".config"))
            if self.uid == ORDINARY:
                relay.__file__ = str(self.root / "relay.py")  # ours may be out of its sight, too
            bare = replace(policy, writable=(), read_only=(), cwd=self.cwd, real_cwd=None)
            BUBBLEWRAP.prepare(bare if "planted" in without else policy)
            return BUBBLEWRAP.wrap(tuple(argv), given, policy, without)

        return as_user(self.uid, work)

    @property
    def store(self) -> PrivateStore:
        return store_of(self.common, self.admin, self.cwd)

    def inside(self, work: Callable[[Inside], T], inside: Inside | None = None) -> T:
        """Do it as the user, with the store's sandbox."""

        def as_theirs() -> T:
            os.environ.update(HOME=str(self.person), XDG_CONFIG_HOME=str(self.person / ".config"))
            try:
                return work(inside or StoreSandbox(self.store))
            except BullpenError as error:  # which no other process could read
                raise AssertionError(error.message) from None

        return as_user(self.uid, as_theirs)

    def bring_over(self, inside: Inside | None = None) -> BroughtOver:
        """As at the end of a run."""
        return self.inside(lambda one: bring_over(self.store, one, has_ended=True), inside)

    def start(self, wrapped: WrappedCommand, **more: Any) -> "subprocess.Popen[bytes]":
        """On pipes, as a holder does."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(
            wrapped.argv,
            env=dict(wrapped.env),
            cwd=self.root,
            **{"start_new_session": True, **streams, **self.identity, **more},
        )

    def start_in_terminal(self, wrapped: WrappedCommand) -> "tuple[subprocess.Popen[bytes], int]":
        """In a terminal of its own, as a holder does."""
        master, slave = pty.openpty()
        os.fchown(slave, self.uid, self.uid)

        def take() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        child = self.start(wrapped, stdin=slave, stdout=slave, stderr=slave, preexec_fn=take)
        os.close(slave)
        return child, master

    def run(
        self, argv: Collection[str], policy: Policy | None = None, **more: Any
    ) -> "subprocess.CompletedProcess[bytes]":
        """On pipes, to the end."""
        child = self.start(self.wrap(argv, policy or self.policy(), **more))
        out, err = child.communicate(timeout=60)
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)

    def shell(self, script: str, policy: Policy | None = None, **more: Any) -> str:
        """Both streams of a script that is to succeed."""
        done = self.run(["sh", "-ec", script], policy, **more)
        text = (done.stdout + done.stderr).decode()
        assert done.returncode == 0, text
        return text


@contextlib.contextmanager
def made_machine(uid: int) -> Iterator[Machine]:
    root = Path(tempfile.mkdtemp(prefix="bp-", dir="/tmp"))
    machine = Machine(root, uid)
    try:
        machine.build()
        yield machine
    finally:
        for thing in machine.open_things:
            thing.close()
        shutil.rmtree(root, ignore_errors=True)
        group = limits.find().pids
        if group:
            # The kernel lets a group go a moment after its last process.
            wait_until(
                lambda: limits.remove_ended(machine.home, []) == [] == _left(group, machine.home)
            )


def _left(group: limits.Cgroup, home: Path) -> list[Path]:
    return list(group.parent.glob(f"{limits.prefix(home)}*"))
