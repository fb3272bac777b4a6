"""Repositories on their way: what git packs here, and unpacks there. Synchronous; runs git.

The asker packs one commit with its history; whoever does the task unpacks it into a repository of
its own, and packs what was committed on top of it; the asker takes that over as a branch. Only refs
that are named here are read or written.
"""

import shutil
import tempfile
import threading
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.worktrees.git import Repository, git, open_repository, run_raw

SECONDS = 600.0
PINNED = "refs/bullpen/fleet"  # commits that are asked for or were done
_making = threading.Lock()  # several that need the same clone come at once


def pin(repo: Repository, id: str, branch: str) -> str:
    """The commit that a task begins at: its branch if there is one, else where the repository is.
    It stays that one, however often it is asked."""
    for ref in (f"{PINNED}/{id}", f"refs/heads/{branch}", "HEAD"):
        if commit := find_commit(repo, ref):
            pin_commit(repo, id, commit)
            return commit
    raise BullpenError(f"{repo} has no commit yet", hint="git commit", kind=Kind.CONFLICT)


def pin_commit(repo: Repository, id: str, commit: str) -> None:
    """That commit stays, and is what `pack` packs."""
    git(repo, "update-ref", f"{PINNED}/{id}", commit)


def unpin(repo: Repository, id: str) -> None:
    """Fine if it is not there."""
    git(repo, "update-ref", "-d", f"{PINNED}/{id}")


def pack(repo: Repository, id: str, since: str = "") -> bytes:
    """A bundle of what is pinned under that id, without what was there before."""
    with tempfile.TemporaryDirectory(prefix="bullpen-") as directory:
        file = Path(directory) / "bundle"
        words = [f"{PINNED}/{id}", *((f"^{since}",) if since else ())]
        git(repo, "bundle", "create", "-q", file, *words, timeout=SECONDS)
        return file.read_bytes()


def unpack(directory: Path, data: bytes, id: str, commit: str) -> None:
    """Have that commit in the repository there, which is made if there is none."""
    with _making:
        if not is_clone(directory):
            _make_clone(directory)
    repo = open_repository(directory)
    _fetch(repo, data, f"+{PINNED}/{id}:{PINNED}/{id}")
    if git(repo, "rev-parse", f"{PINNED}/{id}").text.strip() != commit:
        raise BullpenError("the bundle has another commit than was asked for")


def is_clone(directory: Path) -> bool:
    """Whether it is a repository itself: one that it lies in does not count."""
    try:
        return open_repository(directory).common_dir == directory.resolve()
    except BullpenError:
        return False


def _make_clone(directory: Path) -> None:
    """Beside it, so that it is there as a whole. One that was left half made goes; one into which
    something was fetched is mended as far as git can."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    if any(path.is_file() for path in (directory / "objects").rglob("*")):
        _init(directory)
        return
    with tempfile.TemporaryDirectory(prefix=".clone-", dir=directory.parent) as parent:
        made = Path(parent) / directory.name
        _init(made)
        if directory.exists():
            shutil.rmtree(directory)
        made.rename(directory)


def _init(directory: Path) -> None:
    done = run_raw(["init", "-q", "--bare", directory])
    if done.code:
        raise BullpenError(f"cannot make {directory}: {done.error_text}", kind=Kind.COMMAND_FAILED)


def pack_result(repo: Repository, id: str, branch: str, base: str) -> tuple[bytes, str] | None:
    """What was committed there since, and its last commit; None if that is nothing."""
    commit = git(repo, "rev-parse", f"refs/heads/{branch}").text.strip()
    if commit == base:
        return None
    git(repo, "update-ref", f"{PINNED}/{id}", commit)
    try:
        return pack(repo, id, base), commit
    finally:
        unpin(repo, id)


def take_result(repo: Repository, data: bytes, id: str, branch: str, known: str = "") -> str:
    """Have it as a branch of that name; the name that it got: another one if that branch has gone
    on meanwhile, or somebody works on it, or git cannot have it (a/b beside a). One that is still
    at the commit `known` is set back, too: whoever sends it has written its history anew."""
    last = f"{branch.replace('/', '-')}-{id}"
    for name in (branch, f"{branch}-{id}", last):
        ref = f"refs/heads/{name}"
        force = "+" if known and find_commit(repo, ref) == known else ""
        try:
            _fetch(repo, data, f"{force}{PINNED}/{id}:{ref}", "-c", "fetch.fsckObjects=true")
        except BullpenError:
            if name == last:
                raise
        else:
            return name
    raise AssertionError("the loop has returned or raised")


def why_another_name(repo: Repository, branch: str, name: str) -> str:
    """What kept the work that has come as `name` from being that branch."""
    tip, work = (find_commit(repo, f"refs/heads/{each}") for each in (branch, name))
    if not tip:
        return f"there can be no branch {branch} here"  # a/b beside a
    is_older = git(repo, "merge-base", "--is-ancestor", tip, work, accept=(0, 1)).code == 0
    return f"{branch} is checked out" if is_older else f"{branch} has gone on meanwhile"


def find_commit(repo: Repository, ref: str) -> str:
    """Empty if there is none."""
    answer = git(repo, "rev-parse", "-q", "--verify", f"{ref}^{{commit}}", accept=(0, 1, 128))
    return answer.text.strip() if answer.code == 0 else ""


def _fetch(repo: Repository, data: bytes, refspec: str, *settings: str) -> None:
    with tempfile.NamedTemporaryFile(prefix="bullpen-", suffix=".bundle") as file:
        file.write(data)
        file.flush()
        git(
            repo,
            *settings,
            *("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
            *(file.name, refspec),
            timeout=SECONDS,
        )
