"""Runs git on a private store, in a sandbox with the mounts of that store (`mounts.private_git`).

An agent may have written anything into its store: a link leads to what this sandbox shows, which
is programs and the store itself. No network, no limit of the agent's own, output and time limited.
Called by `prepare`, `hub/sandbox` and commands, which hand it to `worktrees/private/bring_over`.
"""

import contextlib
import os
import shlex
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bullpen import proc
from bullpen.errors import BullpenError, Kind
from bullpen.files import write_atomically
from bullpen.sandboxes import calls
from bullpen.sandboxes.mounts import PROGRAMS, Line, bind, private_git
from bullpen.worktrees.git import SAFE, Repository
from bullpen.worktrees.private.bring_over import LAST_FETCH_SECONDS, BroughtOver, bring_over
from bullpen.worktrees.private.store import PrivateStore, is_brought_over, stores_of

CALLS_DESCRIPTOR = 9
CALLS = "calls.bpf"  # in the store's directory, which no sandbox shows
PROCESSES = 256
AT_ONCE = 8
SECONDS = 30.0
FILES_SECONDS = 300.0  # for who writes the files of a worktree
MOST_BYTES = 1 << 26
MOST_ERROR_BYTES = 1 << 14
MOST_PACK_BYTES = 1 << 31
ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LC_ALL": "C",
    "HOME": "/tmp",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_AUTHOR_NAME": "Bullpen",
    "GIT_AUTHOR_EMAIL": "bullpen@localhost",
    "GIT_COMMITTER_NAME": "Bullpen",
    "GIT_COMMITTER_EMAIL": "bullpen@localhost",
}
PROCESS = (
    *("--unshare-user", "--unshare-pid", "--unshare-uts", "--unshare-ipc", "--unshare-cgroup-try"),
    *("--unshare-net", "--cap-drop", "ALL", "--die-with-parent", "--clearenv"),
)
# Both streams are cut outside of the sandbox. `dd` hands on what it has read at once, as the two
# halves of a fetch need it. It counts reads, which are shorter than a block or not.
BLOCK_BYTES, LEAST_READ_BYTES = 1 << 14, 1 << 12
_CUT = f"dd bs={BLOCK_BYTES} status=none count="
BOUNDED = '{ "$@" 2>&1 1>&3 3>&- %d<%s | ' + f"{_CUT}%d >&2; }} 3>&1 | {_CUT}%d"


@dataclass(frozen=True)
class StoreSandbox:
    """One store, to be looked at from within."""

    store: PrivateStore

    def run(
        self, script: str, *words: str, stdin: bytes = b"", most: int | None = None
    ) -> proc.Done:
        """A shell script in the worktree's administrative directory inside; `git` in it is safe.
        The exit code is that of nothing: a script says at its end that it got there."""
        return self._run(self._bubblewrap(), script, words, stdin, most, SECONDS)

    def run_in_files(self, script: str, *words: str) -> proc.Done:
        """The same in the worktree, which can be written to; the `.git` file in it cannot."""
        root, admin = self.store.root, self.store.admin
        files = [Line("files", root, bind("--bind", root))]
        link = root / ".git"
        if link.is_file() and not link.is_symlink():
            files.append(Line("files", link, bind("--ro-bind", link)))
        variables = {"GIT_DIR": admin, "GIT_COMMON_DIR": self.store.common, "GIT_WORK_TREE": root}
        env = [word for key, path in variables.items() for word in ("--setenv", key, str(path))]
        sandbox = [*self._bubblewrap(), *_words(files), *env, "--chdir", str(root)]
        return self._run(sandbox, script, words, b"", None, FILES_SECONDS)

    def _run(
        self,
        sandbox: Sequence[str],
        script: str,
        words: Sequence[str],
        stdin: bytes,
        most: int | None,
        seconds: float,
    ) -> proc.Done:
        inner = f'ulimit -u {PROCESSES} 2>/dev/null; git() {{ command git {_safe()} "$@"; }}\n'
        shell = ("/bin/sh", "-c", inner + script, "inside", *words)
        argv = [*_ended_after(seconds), *sandbox, *shell]
        line = self._bounded(MOST_BYTES if most is None else most)
        return proc.run(["/bin/sh", "-c", line, "sh", *argv], stdin=stdin, timeout=seconds)

    def upload_pack(self, source: Path) -> str:
        """For `git fetch --upload-pack`, which adds the repository's path to it."""
        # A submodule's configuration names its files, which are not shown here.
        git = ("git", "--work-tree=/", *SAFE, "-c", "uploadpack.allowAnySHA1InWant=true")
        argv = [
            *_ended_after(LAST_FETCH_SECONDS),
            *self._bubblewrap(),
            *git,
            "upload-pack",
            str(source),
        ]
        script = f"set -- {shlex.join(argv)}; {self._bounded(MOST_PACK_BYTES)}"
        return shlex.join(["/bin/sh", "-c", script, "sh"])

    def _bounded(self, most: int) -> str:
        filter_file = self.store.directory / CALLS
        if not filter_file.exists():
            _write_calls(filter_file)
        given = shlex.quote(str(filter_file))
        errors, reads = (size // LEAST_READ_BYTES + 1 for size in (MOST_ERROR_BYTES, most))
        return BOUNDED % (CALLS_DESCRIPTOR, given, errors, reads)

    def _bubblewrap(self) -> list[str]:
        program = proc.find_program("bwrap")
        if program is None:
            raise BullpenError(
                f"the work of {self.store.root.name} cannot be brought over:"
                " bubblewrap is not installed",
                hint="apt install bubblewrap (or dnf, pacman, apk)",
                kind=Kind.UNAVAILABLE,
            )
        roots, search_path = _git_roots()
        env = {**ENV, "PATH": search_path}
        variables = (word for item in env.items() for word in ("--setenv", *item))
        filtered = ("--seccomp", str(CALLS_DESCRIPTOR)) if calls.program() else ()
        files = sorted(private_git(self.store), key=lambda line: len(line.path.parts))
        where = ("--chdir", str(self.store.admin))
        return [
            program,
            *PROCESS,
            *variables,
            *filtered,
            *_words([*_system(), *roots]),
            *_words(files),
            *where,
        ]


def bring_over_store(store: PrivateStore, *, has_ended: bool = False) -> BroughtOver | None:
    """Bring over what it holds; None if there is no store. Blocks."""
    with contextlib.suppress(FileNotFoundError):
        if store.exists:
            return bring_over(store, StoreSandbox(store), has_ended=has_ended)
    return None


def bring_over_all(repo: Repository, names: Collection[str] = ()) -> dict[str, str]:
    """The same for the stores of these worktrees, or of all, before somebody looks at them; why
    not, by name of the worktree. Blocks; one that makes us wait keeps no other waiting."""
    stores = [store for store in stores_of(repo) if not names or store.root.name in names]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        failures = threads.map(_try_bring_over, stores)
        return {store.root.name: why for store, why in zip(stores, failures, strict=True) if why}


def _try_bring_over(store: PrivateStore) -> str:
    try:
        if not is_brought_over(store):
            bring_over_store(store)
    except BullpenError as error:
        return error.message
    return ""


def _ended_after(seconds: float) -> list[str]:
    """Also if whoever started it is killed meanwhile: what an agent makes wait would wait on."""
    return ["timeout", "--foreground", "-s", "KILL", str(seconds + 1)]


def _safe() -> str:
    return shlex.join(SAFE)


def _words(lines: Sequence[Line]) -> list[str]:
    return [word for line in lines for word in line.args]


def _git_roots() -> tuple[list[Line], str]:
    """Where git is if not among the system's programs, and the PATH to find it."""
    program = proc.find_program("git") or "git"
    here = Path(os.path.realpath(program))
    if not here.is_absolute() or here.is_relative_to("/usr"):
        return [], ENV["PATH"]
    # Nix keeps the parts of a program in directories of their own.
    root = Path("/nix") if here.is_relative_to("/nix") else here.parents[1]
    return [Line("programs", root, bind("--ro-bind", root))], f"{here.parent}:{ENV['PATH']}"


def _system() -> list[Line]:
    lines = [
        Line("links", path, ("--symlink", str(path.readlink()), str(path)))
        if path.is_symlink()
        else Line("system", path, bind("--ro-bind", path))
        for path in (Path("/", name) for name in PROGRAMS)
        if path.is_symlink() or path.is_dir()
    ]
    own = (("--proc", "/proc"), ("--dev", "/dev"), ("--tmpfs", "/tmp"))
    return [*lines, *(Line("own", Path(path), (how, path)) for how, path in own)]


def _write_calls(path: Path) -> None:
    write_atomically(path, calls.program().decode("utf-8", "surrogateescape"), mode=0o600)
