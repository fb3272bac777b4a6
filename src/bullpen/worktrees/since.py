"""What was done in a checkout since a moment: commits, and the difference of its files.

Only looks: neither the index nor the repository changes. Who works in a checkout may have written
anything into it, so git is told where its directories are, by somebody who looked before; it runs
nothing that the tree names, and what it says is cut off where it becomes too much.
"""

import contextlib
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bullpen import proc
from bullpen.worktrees.errors import Code, WorktreeError, reported
from bullpen.worktrees.git import (
    SAFE,
    Checkout,
    Repository,
    git,
    open_repository,
    run_raw,
    scrubbed,
)

MOST_COMMITS = 200
MOST_DIFF_BYTES = 1 << 20
MOST_FILE_BYTES = 1 << 20  # a larger one is not looked into
MOST_FILES, MOST_NAMES_BYTES = 1000, 1 << 17
MOST_OTHERS = 100
SECONDS = 60.0
PIECE_BYTES = 1 << 16
CALM = (
    *("-c", f"core.bigFileThreshold={MOST_FILE_BYTES}", "-c", "core.safecrlf=false"),
    *("-c", "log.showSignature=false", "--literal-pathspecs"),
)
CHANGED = ("diff-index", "-z", "--name-only", "--ignore-submodules=dirty")
NEW = ("ls-files", "-z", "--others", "--exclude-standard")
DIFF = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")
CUT = "\n… the rest is left out\n"


@dataclass(frozen=True)
class Since:
    """`commits` are lines of an abbreviated id and a subject, the oldest first."""

    commits: tuple[str, ...]
    diff: str


@dataclass(frozen=True)
class Looked:
    """A directory that is a checkout, as git may be asked about it without believing what an
    agent may have written into it since."""

    repo: Repository
    root: Path

    @property
    def checkout(self) -> Checkout:
        return Checkout(self.root, self.repo.git_dir)

    @property
    def is_main(self) -> bool:
        """Not a linked worktree: its git directory lies in it."""
        return self.repo.git_dir == self.repo.common_dir


def look_at(directory: Path) -> Looked | None:
    """The checkout that begins at that directory; None if none does. Before an agent works there:
    afterwards its `.git` may be a planted one, and lead to another's repository."""
    if not (directory / ".git").exists():
        return None
    with contextlib.suppress(WorktreeError):
        repo = open_repository(directory)
        found = Looked(repo, directory.resolve())
        is_known = _is_main_of if found.is_main else _is_linked
        if repo.root == found.root and is_known(repo, found.root):
            return found
    return None


def _is_main_of(repo: Repository, root: Path) -> bool:
    """Whether the repository lies in it, or says that it is its work tree, as those of submodules
    do: anybody can write a `.git` file that leads to another's."""
    if repo.git_dir == root / ".git":
        return True
    done = run_raw(["config", "--file", repo.git_dir / "config", "core.worktree"])
    text = os.fsdecode(done.out).removesuffix("\n")
    return bool(text) and (repo.git_dir / text).resolve() == root


def _is_linked(repo: Repository, root: Path) -> bool:
    """Whether the repository knows of that worktree, too: a `.git` file alone proves nothing, nor
    does one that leads to an administrative directory outside of the repository it names."""
    if repo.git_dir.parent != repo.common_dir / "worktrees" or repo.common_dir.is_relative_to(root):
        return False
    try:
        text = os.fsdecode((repo.git_dir / "gitdir").read_bytes()).strip()
    except OSError:
        return False
    back = Path(os.path.normpath(repo.git_dir / text))  # relative in some repositories
    return back.name == ".git" and back.parent.resolve() == root


def head_of(looked: Looked) -> str:
    """The commit it is at; empty before the first."""
    done = git(
        looked.repo, "rev-parse", "-q", "--verify", "HEAD", at=looked.checkout, accept=(0, 1, 128)
    )
    return done.text.strip() if done.code == 0 else ""


def snapshot(looked: Looked, objects: Path) -> str:
    """The tree of what is changed and not committed at this moment, so that it is not taken for
    what comes after; empty if nothing is. What it consists of lies in that directory."""
    with _second_index(looked) as env:
        names = _asked(looked, env, *CHANGED, "HEAD") + _asked(looked, env, *NEW)
        kept, _ = _chosen(looked.root, names)
        if not kept:
            return ""
        objects.mkdir(mode=0o700, parents=True, exist_ok=True)
        common = _quoted(looked.repo.common_dir / "objects")
        env |= {"GIT_OBJECT_DIRECTORY": str(objects), "GIT_ALTERNATE_OBJECT_DIRECTORIES": common}
        update = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
        _asked(looked, env, *update, stdin=b"\0".join(kept))
        return os.fsdecode(_asked(looked, env, "write-tree")[0]).strip()


def since(looked: Looked, base: str, before: str = "", objects: Path | None = None) -> Since:
    """Commits since that one, and differences, new files that are not ignored among them; from
    the `snapshot`, if there was something to keep in one."""
    log = git(
        looked.repo,
        *CALM,
        *("log", "-z", "--reverse", f"--max-count={MOST_COMMITS}", "--format=%h %s"),
        f"{base}..HEAD",
        at=looked.checkout,
        timeout=SECONDS,
    )
    commits = tuple(_plain(line) for line in log.out.split(b"\0") if line)
    with _second_index(looked) as env:
        if before and objects is not None:
            env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(objects)
        diff = _difference(looked, before or base, env)
    return Since(commits, diff)


@contextlib.contextmanager
def _second_index(looked: Looked) -> Iterator[dict[str, str]]:
    """So that files can be named in it without touching the agent's own. With its time: what is
    as old as the index is compared by content."""
    with tempfile.TemporaryDirectory(prefix="bullpen-") as place:
        index = Path(place) / "index"
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(looked.checkout.admin / "index", index)
        yield {"GIT_INDEX_FILE": os.fspath(index)}


def _quoted(path: Path) -> str:
    """In a list of directories a colon would part it."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _asked(
    looked: Looked, env: Mapping[str, str], *words: str | bytes, stdin: bytes = b""
) -> list[bytes]:
    told = [os.fsdecode(word) for word in words]
    done = git(looked.repo, *CALM, *told, at=looked.checkout, env=env, stdin=stdin, timeout=SECONDS)
    return [name for name in done.out.split(b"\0") if name]


def _difference(looked: Looked, base: str, env: Mapping[str, str]) -> str:
    changed, new = _asked(looked, env, *CHANGED, base), _asked(looked, env, *NEW)
    shown, others = _chosen(looked.root, dict.fromkeys((*changed, *new)))
    named = [name for name in new if name in shown]
    if named:
        add = ("add", "-N", "--pathspec-from-file=-", "--pathspec-file-nul")
        _asked(looked, env, *add, stdin=b"\0".join(named))
    words = (*CALM, *DIFF, base, "--", *map(os.fsdecode, shown))
    text = _first_of(looked, words, env) if shown else ""
    return text + _said_of(others)


def _chosen(root: Path, names: Iterable[bytes]) -> tuple[dict[bytes, None], list[bytes]]:
    """Those that git may look into, in order, and those of which is only said that they changed:
    pipes and devices, repositories in the repository, what is too large, too many."""
    shown: dict[bytes, None] = {}
    others, room = [], MOST_NAMES_BYTES
    for name in names:
        room -= len(name)
        if room > 0 and len(shown) < MOST_FILES and _is_plain(root / os.fsdecode(name)):
            shown[name] = None
        else:
            others.append(name)
    return shown, others


def _is_plain(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return True  # removed
    except OSError:
        return False
    is_small = stat.S_ISREG(found.st_mode) and found.st_size <= MOST_FILE_BYTES
    return is_small or stat.S_ISLNK(found.st_mode)


def _said_of(others: list[bytes]) -> str:
    if not others:
        return ""
    names = [_plain(name) for name in others[:MOST_OTHERS]]
    more = [f"and {len(others) - MOST_OTHERS} more"] if len(others) > MOST_OTHERS else []
    return (
        "\n".join(["# changed, and not shown:", *(f"#   {name}" for name in [*names, *more])])
        + "\n"
    )


def _plain(line: bytes) -> str:
    """Subjects of commits and names of files may hold any bytes, keys of a terminal among them."""
    text = line.decode("utf-8", "replace")
    return "".join(char if char.isprintable() else " " for char in text)


def _first_of(looked: Looked, words: tuple[str, ...], env: Mapping[str, str]) -> str:
    """What git says, up to a limit; it is ended there."""
    place = {
        "GIT_DIR": str(looked.repo.git_dir),
        "GIT_COMMON_DIR": str(looked.repo.common_dir),
        "GIT_WORK_TREE": str(looked.root),
    }
    ours, theirs = os.pipe()
    found = bytearray()
    reading = threading.Thread(target=_read, args=(ours, found))
    reading.start()
    try:
        with os.fdopen(theirs, "wb") as output, reported("cannot run git"):
            done = proc.run(
                ["git", *SAFE, *words],
                cwd=looked.root,
                env={**scrubbed(os.environ), **place, **env},
                timeout=SECONDS,
                output=output,
            )
    finally:
        reading.join()
    text = found[:MOST_DIFF_BYTES].decode("utf-8", "backslashreplace")
    if len(found) > MOST_DIFF_BYTES:
        return text + CUT
    if done.code:
        raise WorktreeError(Code.GIT_FAILED, f"git diff failed: {text[-500:]}")
    return text


def _read(descriptor: int, found: bytearray) -> None:
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while len(found) <= MOST_DIFF_BYTES and (piece := file.read(PIECE_BYTES)):
            found += piece
