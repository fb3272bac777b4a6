"""Moves a branch on together with the files and the index of the checkout that is on it.

    lock     the checkout's `index.lock`, so that nobody's git works there meanwhile
    files    `git read-tree -u` with a copy of the index
    branch   by compare-and-swap: the point of no return
    index    the copy takes the index's place; the lock goes

The caller holds the repository's lock and has announced a `FastForwarding`. Killed before the
branch has moved, `recover` puts the files back; after it, it finishes the index. Nothing else of
the checkout is ever written.
"""

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from bullpen.files import create_once, read_plain
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import Checkout, Repository, git, resolve
from bullpen.worktrees.journal import FastForwarding, IntentFile, withdraw
from bullpen.worktrees.landing.checked_out import (
    NOTHING,
    Change,
    InTheWayError,
    entries_before,
    find_in_the_way,
    find_unfinished,
    list_changes,
)
from bullpen.worktrees.landing.landed import is_ancestor
from bullpen.worktrees.own_index import look_at_some
from bullpen.worktrees.plain import find_tip
from bullpen.worktrees.repo_lock import Lock

LOCK_SECONDS = 10.0
LOOK_SECONDS = 300.0
WRITE_SECONDS = 1800.0
LINK, MODULE = "120000", "160000"
MARK_BYTES = 256
MOST_TORN_BYTES = 1 << 26


class TargetMovedError(WorktreeError):
    """The branch is not where it was: somebody was faster."""

    def __init__(self, ref: str) -> None:
        super().__init__(Code.GIT_FAILED, f"{ref} has moved meanwhile", hint="land again")


def fast_forward(
    repo: Repository, plan: FastForwarding, entry: IntentFile, lines: Sequence[str], message: str
) -> None:
    """All steps, or none: what fails before the branch has moved is taken back."""
    checkout = Checkout(Path(plan.path), Path(plan.admin))
    try:
        _take_lock(checkout, entry.key)
        changes = list_changes(repo, plan.old, plan.new)
        _refuse_loss(repo, plan, checkout, changes)
        index = own_copy(checkout, entry.key)
        shutil.copy2(checkout.admin / "index", index)
    except BaseException:
        _end(checkout, entry)
        raise
    try:
        _write_files(repo, plan, checkout, index, entry)
        swap(repo, plan.ref, plan.old, plan.new, lines, message, at=checkout, fds=[entry.fd])
    except BaseException:
        # If that fails as well (a full disk), the intent stays for the next caller.
        put_back(repo, checkout, changes, entry.key)
        _end(checkout, entry)
        raise
    index.replace(checkout.admin / "index")
    _end(checkout, entry)


def _end(checkout: Checkout, entry: IntentFile) -> None:
    _drop_lock(checkout, entry.key)
    withdraw(entry)


def swap(
    repo: Repository,
    ref: str,
    old: str,
    new: str,
    lines: Sequence[str],
    message: str,
    *,
    at: Checkout | None = None,
    fds: Sequence[int] = (),
) -> None:
    """Move the branch if it is still where it was, and the refs of `lines` with it, or none."""
    commands = "".join([f"update {ref} {new} {old}\n", *lines])
    words = ("update-ref", "--create-reflog", "-m", message, "--stdin")
    try:
        git(repo, *words, at=at, stdin=os.fsencode(commands), fds=fds)
    except WorktreeError:
        if resolve(repo, [ref])[ref] not in (old, None):
            raise TargetMovedError(ref) from None
        raise


def recover(repo: Repository, plan: FastForwarding, key: str, lock: Lock) -> None:
    """Finish it if the branch has moved, else put the files back. Can be repeated."""
    checkout = Checkout(Path(plan.path), Path(plan.admin))
    # Its lock may have been removed by a person in need of their git.
    if not _has_lock(checkout, key) and not own_copy(checkout, key).exists():
        return  # nothing was begun, or everything was done
    now = resolve(repo, [plan.ref])[plan.ref]
    if now and is_ancestor(repo, plan.new, now):
        _finish_index(repo, plan, checkout, key, lock)
    else:
        put_back(repo, checkout, list_changes(repo, plan.old, plan.new), key)
    _drop_lock(checkout, key)


def own_copy(checkout: Checkout, key: str) -> Path:
    """Our copy of the checkout's index: beside it, so that it can take its place."""
    return checkout.admin / f"bullpen.{key}.index"


# ── the lock of the index ──


def _take_lock(checkout: Checkout, key: str) -> None:
    """As git does, but with our name in it: after a crash we know it again."""
    deadline = time.monotonic() + LOCK_SECONDS
    while not create_once(checkout.admin / "index.lock", _mark(key)):
        if time.monotonic() > deadline:
            raise InTheWayError(
                f"another git is at work in {checkout.path}: its index.lock is there",
                checkout.path,
                hint="wait for it and land again; if none is running, remove"
                f" {checkout.admin / 'index.lock'}",
            )
        time.sleep(0.02)


def _mark(key: str) -> bytes:
    return f"bullpen: landing {key}\n".encode()


def _has_lock(checkout: Checkout, key: str) -> bool:
    try:
        return read_plain(checkout.admin / "index.lock", MARK_BYTES) == _mark(key)
    except OSError:
        return False


def _drop_lock(checkout: Checkout, key: str) -> None:
    _drop_copies(checkout, key)
    if _has_lock(checkout, key):
        (checkout.admin / "index.lock").unlink()


def _drop_copies(checkout: Checkout, key: str) -> None:
    copy = own_copy(checkout, key)
    for path in (copy, copy.with_name(f"{copy.name}.lock"), _old_index(checkout, key)):
        path.unlink(missing_ok=True)


# ── looking ──


def _refuse_loss(
    repo: Repository, plan: FastForwarding, checkout: Checkout, changes: list[Change]
) -> None:
    branch = plan.ref.removeprefix("refs/heads/")
    busy = find_unfinished(checkout.admin)
    if busy:
        raise InTheWayError(
            f"{checkout.path} is in the middle of {busy}",
            checkout.path,
            hint="finish or abort it there, and land again",
        )
    if find_tip(repo, plan.ref) != plan.old or not _is_on(repo, checkout, plan.ref):
        raise TargetMovedError(plan.ref)
    if not (checkout.admin / "index").is_file():
        raise InTheWayError(f"{checkout.path} has no index", checkout.path)
    with look_at_some(repo, checkout, entries_before(changes), LOOK_SECONDS) as look:
        files = find_in_the_way(look, changes)
    if files:
        named = ", ".join(files[:3]) + (", …" if len(files) > 3 else "")
        raise InTheWayError(
            f"{branch} is checked out in {checkout.path} with changes in {named}",
            checkout.path,
            files,
            hint="commit or stash them there (ignored files: move them away), and land again",
        )


def _is_on(repo: Repository, checkout: Checkout, ref: str) -> bool:
    """Its HEAD may name the branch by way of another name; then only git knows."""
    head = (checkout.admin / "HEAD").read_text(errors="surrogateescape").strip()
    if head == f"ref: {ref}":
        return True
    answer = git(repo, "symbolic-ref", "--quiet", "HEAD", at=checkout, accept=(0, 1))
    return answer.text.strip() == ref


# ── writing ──


def _write_files(
    repo: Repository, plan: FastForwarding, checkout: Checkout, index: Path, entry: IntentFile
) -> None:
    """`read-tree` judges files by their times, and refuses all before it writes one if one was only
    touched, or put back. Then git has to look at them first."""
    words = ("read-tree", "-m", "-u", "--no-recurse-submodules", plan.old, plan.new)
    env = {"GIT_INDEX_FILE": str(index)}
    write = partial(git, repo, *words, at=checkout, env=env, timeout=WRITE_SECONDS, fds=[entry.fd])
    if write(accept=(0, 128)).code != 0:
        _refresh(repo, checkout, env, entry.fd)
        write()


def _refresh(repo: Repository, checkout: Checkout, env: Mapping[str, str], fd: int) -> None:
    """Let git see which files are as in the index."""
    words = ("update-index", "-q", "--refresh")
    git(repo, *words, at=checkout, env=env, accept=(0, 1), timeout=WRITE_SECONDS, fds=[fd])


def _finish_index(
    repo: Repository, plan: FastForwarding, checkout: Checkout, key: str, lock: Lock
) -> None:
    """The files and the branch are there; the index is that of before, or the new one already."""
    index = own_copy(checkout, key)
    staged = checkout.admin / "index"
    if not _has_lock(checkout, key) and not create_once(checkout.admin / "index.lock", _mark(key)):
        return  # somebody's git is at work there with the index of before
    shutil.copy2(staged, index)
    env = {"GIT_INDEX_FILE": str(index)}
    words = ("read-tree", "-m", "-i", plan.old, plan.new)
    done = git(repo, *words, at=checkout, env=env, fds=[lock.fd], accept=(0, 128))
    if done.code == 0:  # else it is the new one: it does not fit the old commit
        _refresh(repo, checkout, env, lock.fd)
        index.replace(staged)


# ── taking back ──


def put_back(repo: Repository, checkout: Checkout, changes: list[Change], key: str) -> None:
    """Give every file that we changed its old content. What is neither the old nor the new one was
    written by somebody else since, and stays."""
    ours = _written_by_us(repo, checkout, changes)
    for change in sorted(ours, key=lambda change: change.name, reverse=True):
        if not change.was:
            _remove(checkout.path, change.name)
    entries = entries_before([change for change in ours if change.old_mode != MODULE])
    if not entries:
        return
    index = _old_index(checkout, key)
    env = {"GIT_INDEX_FILE": str(index)}
    index.unlink(missing_ok=True)
    stdin = os.fsencode("".join(f"{entry}\0" for entry in entries))
    git(repo, "update-index", "-z", "--index-info", at=checkout, env=env, stdin=stdin)
    words = ("checkout-index", "-f", "-a")
    git(repo, *words, at=checkout, env=env, timeout=WRITE_SECONDS)
    index.unlink(missing_ok=True)


def _old_index(checkout: Checkout, key: str) -> Path:
    return checkout.admin / f"bullpen.{key}.old"


def _remove(root: Path, name: str) -> None:
    """And the directories above it that are empty then."""
    path = root / name
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()  # an empty one of a submodule
        else:
            path.unlink()
    with contextlib.suppress(OSError):
        for parent in path.parents:
            if parent == root:
                return
            parent.rmdir()


def _written_by_us(repo: Repository, checkout: Checkout, changes: list[Change]) -> list[Change]:
    plain = [
        change.name
        for change in changes
        # Git reads names line by line, and one in quotes as an escaped one.
        if _is_file(checkout.path / change.name) and not re.search(r'^"|\n', change.name)
    ]
    words = ("hash-object", "--stdin-paths")
    stdin = os.fsencode("".join(f"{name}\n" for name in plain))
    done = git(repo, *words, at=checkout, stdin=stdin, timeout=600) if plain else None
    hashes = dict(zip(plain, done.text.split(), strict=True)) if done else {}
    return [change for change in changes if _is_ours(repo, checkout, change, hashes)]


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _is_ours(repo: Repository, checkout: Checkout, change: Change, hashes: dict[str, str]) -> bool:
    path = checkout.path / change.name
    if not os.path.lexists(path):
        is_sparse = (checkout.admin / "info" / "sparse-checkout").exists()
        return change.was and not is_sparse
    if path.is_symlink():
        here = _link_hash(path, len(change.new))
    elif path.is_dir():
        return change.new_mode == MODULE and not change.was and not any(path.iterdir())
    else:
        here = hashes.get(change.name) or _file_hash(repo, checkout, change.name)
    if here == change.old:
        # A type that changed back is fine, too: nothing to do either way.
        return False
    return here == change.new or _is_torn(repo, checkout, change)


def _file_hash(repo: Repository, checkout: Checkout, name: str) -> str:
    return git(repo, "hash-object", "--", name, at=checkout).text.strip()


def _link_hash(path: Path, digits: int) -> str:
    target = os.fsencode(os.readlink(path))  # noqa: PTH115 - any bytes
    content = b"blob %d\0%b" % (len(target), target)
    return (hashlib.sha1 if digits == 40 else hashlib.sha256)(content).hexdigest()


def _is_torn(repo: Repository, checkout: Checkout, change: Change) -> bool:
    """Whether it is a beginning of the new content: its writer was killed in the middle."""
    path = checkout.path / change.name
    if change.new_mode in (NOTHING, LINK, MODULE) or path.stat().st_size > MOST_TORN_BYTES:
        return False
    words = ("cat-file", "--filters", f"--path={change.name}", change.new)
    whole = git(repo, *words, at=checkout, timeout=600).out
    here = path.read_bytes()
    return len(here) < len(whole) and whole.startswith(here)
