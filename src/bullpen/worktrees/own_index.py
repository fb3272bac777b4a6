"""Looks at the files of a checkout with a git directory of our own: our HEAD, our index.

The index in git's administrative directory is an agent's: it can call files unchanged
(`update-index --assume-unchanged`, `--skip-worktree`), forge the times in it, or be a pipe. So our
index is made from the commit that HEAD names, and every file is compared with that commit. What
git learns on the way is kept in `<git>/bullpen/indexes/`, which no sandboxed agent reaches, so that
the next look reads only files that have changed since.

Called by everything in this package that says what is changed or clean. Reads the agent's index
only to say what is staged. Never writes into the checkout or its administrative directory.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bullpen import proc
from bullpen.files import read_plain
from bullpen.worktrees import index_file
from bullpen.worktrees.errors import WorktreeError, reported
from bullpen.worktrees.git import Checkout, Repository, git
from bullpen.worktrees.plain import INDEX_BYTES, check_checkout, read_commit, read_head, unreadable

LOOK_SECONDS = 60.0
RECENT_SECONDS = 2  # more than a tick of any file system's clock
# Whatever a configuration says: times, inodes and sizes count, and nothing else speaks for a file.
SETTINGS = {
    "core.checkStat": "default",
    "core.trustctime": "true",
    "core.ignoreStat": "false",
    "core.untrackedCache": "false",
    "core.splitIndex": "false",
    "core.safecrlf": "false",
    "core.bigFileThreshold": "1m",  # a larger one is not looked into
    "diff.autoRefreshIndex": "true",
    "index.sparse": "false",
    "index.version": "2",
    "index.skipHash": "false",
    "log.showSignature": "false",
}
HONEST = {
    "GIT_CONFIG_COUNT": str(len(SETTINGS)),
    **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(SETTINGS.values())},
}
STATUS = (
    *("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames"),
    "--ignore-submodules=dirty",
)
DIFFERING = ("diff", "--name-only", "-z", "--no-ext-diff", "--no-renames", "--no-relative")
STAGED = ("diff-index", "--cached", "-z", "--name-only", "--ignore-submodules=dirty")
# HEAD in a repository that does not keep refs in files; and ours before the first commit.
ELSEWHERE, UNBORN = "ref: refs/heads/.invalid", "ref: refs/bullpen/unborn"


@dataclass(frozen=True)
class Look:
    """A checkout as we see it, while the look lasts."""

    repo: Repository
    own: Checkout  # its files, with a git directory of ours
    head: str  # a commit; empty before the first one
    deadline: float
    cache: Path | None = None  # a directory for what is learnt
    began: float = 0.0
    is_kept: bool = False  # the index is as it was kept by an earlier look
    is_untouched: bool = False  # the agent's index is that one, too: nothing is staged

    @property
    def index(self) -> Path:
        return self.own.admin / "index"

    @property
    def staged_index(self) -> Path:
        """A copy of the agent's; not there if it has none."""
        return self.own.admin / "staged"

    def git(
        self,
        *words: str,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        fds: Sequence[int] = (),
    ) -> proc.Done:
        """Run git on the files with our index, until the time of the whole look is up."""
        return git(
            self.repo,
            *words,
            at=self.own,
            stdin=stdin,
            env={**HONEST, "GIT_OPTIONAL_LOCKS": "1", **(env or {})},  # only our index is locked
            timeout=max(0.1, self.deadline - time.monotonic()),
            fds=fds,
        )

    def changed(self, index: Path | None = None) -> list[str]:
        """Names of files that are not as in the index, which is as the commit is, and of new ones;
        ignored ones not."""
        before = _identity(self.index)
        env = {"GIT_INDEX_FILE": str(index)} if index else {}
        entries = self.git(*STATUS, env=env).text.split("\0")
        if index is None and not (self.is_kept and before == _identity(self.index)):
            _save(self)
        return [entry[3:] for entry in entries if entry and entry[1] != " "]

    def differing(self) -> list[str]:
        """Names of files in our index that are not as it says; new ones do not count."""
        if not self.index.exists():
            return []
        entries = self.git(*DIFFERING, "--ignore-submodules=dirty").text.split("\0")
        return [name for name in entries if name]

    def staged(self) -> list[str]:
        """Names of what the agent's own index has other than the commit."""
        if self.is_untouched or not self.head or not self.staged_index.exists():
            return []
        done = self.git(*STAGED, self.head, env={"GIT_INDEX_FILE": str(self.staged_index)})
        return [name for name in done.text.split("\0") if name]

    def links(self) -> list[str]:
        """Names of the submodules that the commit holds."""
        # Asking git costs 15 ms at 20,000 files.
        if not index_file.may_hold_links(self.index.read_bytes()):
            return []
        entries = self.git("ls-files", "-z", "--stage").text.split("\0")
        return [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]


@contextlib.contextmanager
def look_at(
    repo: Repository,
    checkout: Checkout,
    *,
    seconds: float = LOOK_SECONDS,
    cache: Path | None = None,
) -> Iterator[Look]:
    """Everything that is asked of the look is answered within that time, or an error. `cache` is
    the directory for what is learnt about a main checkout."""
    began, deadline = time.time(), time.monotonic() + seconds
    with _own_directory(repo, checkout, deadline) as look:
        head = look.head
        _copy_index(checkout.admin / "index", look.staged_index)
        is_sparse = (checkout.admin / "info" / "sparse-checkout").exists()
        cache = None if is_sparse or not head else cache or _cache_of(repo, checkout)
        kept = _load(cache, look) if cache else None
        if kept is None:
            look.git("read-tree", *([head] if head else ["--empty"]))
        elif kept != head:
            look.git("read-tree", "-m", "-i", head)
        if is_sparse:
            _leave_out_absent(look, checkout)
        is_kept = kept == head
        is_untouched = is_kept and _is_same(look.staged_index, look.index)
        yield replace(look, cache=cache, began=began, is_kept=is_kept, is_untouched=is_untouched)


@contextlib.contextmanager
def look_at_some(
    repo: Repository, checkout: Checkout, entries: Sequence[str], seconds: float = LOOK_SECONDS
) -> Iterator[Look]:
    """The same with an index of ours that has these alone (`update-index --index-info`): it takes
    as long as they are many, however large the checkout is. Ask what is `differing`. In a sparse
    checkout it has all, because git has to be asked which are there."""
    if (checkout.admin / "info" / "sparse-checkout").exists():
        with look_at(repo, checkout, seconds=seconds) as look:
            yield look
        return
    with _own_directory(repo, checkout, time.monotonic() + seconds) as look:
        _copy_index(checkout.admin / "index", look.staged_index)
        if entries:
            stdin = os.fsencode("".join(f"{entry}\0" for entry in entries))
            look.git("update-index", "-z", "--index-info", stdin=stdin)
        yield look


@contextlib.contextmanager
def second_index(look: Look) -> Iterator[Path]:
    """A copy of our index, in a directory of its own, that may become another than the commit's.
    With its time: files as old as the index are compared by content."""
    with tempfile.TemporaryDirectory(prefix="bullpen-") as directory:
        yield Path(shutil.copy2(look.index, Path(directory) / "index"))


def find_head(repo: Repository, checkout: Checkout, seconds: float = LOOK_SECONDS) -> str:
    """The commit that HEAD names; empty before the first one."""
    with _own_directory(repo, checkout, time.monotonic() + seconds) as look:
        return look.head


@contextlib.contextmanager
def _own_directory(repo: Repository, checkout: Checkout, deadline: float) -> Iterator[Look]:
    with (
        reported(f"cannot look at {checkout.path}"),
        tempfile.TemporaryDirectory(prefix="bullpen-") as directory,
    ):
        check_checkout(repo, checkout)
        text = read_head(repo, checkout)
        own = Checkout(checkout.path, Path(directory))
        # Git finds refs by this file, and not by GIT_COMMON_DIR.
        (own.admin / "commondir").write_bytes(os.fsencode(repo.common_dir) + b"\n")
        (own.admin / "HEAD").write_bytes(os.fsencode(text) + b"\n")
        at = checkout if text == ELSEWHERE else own
        head = read_commit(repo, text) or _commit(repo, at, deadline)
        (own.admin / "HEAD").write_text(f"{head or UNBORN}\n")
        yield Look(repo, own, head, deadline)


def seed(repo: Repository, checkout: Checkout, commit: str) -> None:
    """Take the index of a worktree that was made just now, before any agent was there, as what is
    known of its files."""
    cache = _cache_of(repo, checkout)
    if cache and not any(checkout.admin.glob("sharedindex.*")):
        with contextlib.suppress(FileNotFoundError):
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copy2(checkout.admin / "index", cache / commit)


def _cache_of(repo: Repository, checkout: Checkout) -> Path | None:
    is_linked = checkout.admin.parent == repo.admin_dir
    return repo.own_dir / "indexes" / checkout.admin.name if is_linked else None


def _commit(repo: Repository, at: Checkout, deadline: float) -> str:
    """What HEAD names; empty before the first commit."""
    words = ("rev-parse", "-q", "--verify", "HEAD^{commit}")
    left = max(0.1, deadline - time.monotonic())
    done = git(repo, *words, at=at, accept=(0, 1, 128), timeout=left)
    return done.text.strip() if done.code == 0 else ""


def _copy_index(index: Path, copy: Path) -> None:
    """With its time: files as old as the index are compared by content."""
    try:
        content = read_plain(index, INDEX_BYTES)
        status = index.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable(index, "no plain file") from error
    copy.write_bytes(content)
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and one.read_bytes() == other.read_bytes()


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


# ── what is known from earlier looks ──


def _load(cache: Path, look: Look) -> str | None:
    """Begin with the index of the last look; the commit that it was made from, None if there is
    none. One that a power cut tore is as good as none."""
    try:
        names = sorted(cache.iterdir(), key=lambda path: path.name != look.head)
        for path in names:
            content = path.read_bytes()
            if index_file.is_whole(content, len(look.head) // 2):
                look.index.write_bytes(content)
                status = path.stat()
                os.utime(look.index, ns=(status.st_atime_ns, status.st_mtime_ns))
                return path.name
    except OSError:
        pass
    return None


def _save(look: Look) -> None:
    """Keep the index for the next look, without what is known of files that changed just now. What
    cannot be kept is looked at again."""
    cache = look.cache
    if cache is None:
        return
    with contextlib.suppress(OSError, WorktreeError):
        hash_bytes, since = len(look.head) // 2, int(look.began) - RECENT_SECONDS
        try:
            content = index_file.forget_recent(look.index.read_bytes(), since, hash_bytes)
        except index_file.UnknownIndex:
            look.git("update-index", "--index-version", "2")
            content = index_file.forget_recent(look.index.read_bytes(), since, hash_bytes)
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = cache / f".{os.urandom(4).hex()}"
        new.write_bytes(content)
        new.replace(cache / look.head)
        for path in cache.iterdir():
            if path.name != look.head:
                path.unlink(missing_ok=True)


# ── sparse checkouts ──


def _leave_out_absent(look: Look, checkout: Checkout) -> None:
    """What lies outside of a sparse checkout is not deleted. The agent's index says what does;
    it is believed about files that are not there, so it can hide a deletion and nothing else, and
    that only where the configuration says that the checkout is sparse."""
    words = ("config", "--bool", "core.sparseCheckout")
    left = max(0.1, look.deadline - time.monotonic())
    done = git(look.repo, *words, at=checkout, accept=(0, 1), timeout=left)
    if done.text.strip() != "true" or not look.staged_index.exists():
        return
    env = {"GIT_INDEX_FILE": str(look.staged_index)}
    entries = look.git("ls-files", "-z", "-t", env=env).text.split("\0")
    outside = {entry[2:] for entry in entries if entry.startswith("S ")}
    known = look.git("ls-files", "-z").text.split("\0")
    absent = [
        name for name in known if name in outside and not os.path.lexists(checkout.path / name)
    ]
    if absent:
        stdin = os.fsencode("\0".join(absent))
        look.git("update-index", "--skip-worktree", "-z", "--stdin", stdin=stdin)
