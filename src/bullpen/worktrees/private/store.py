"""The private git of a sandboxed agent: where it lies, how it is made, what is known of it.

A store belongs to one worktree and lies in `<common>/bullpen/private/<id>/`:

    git/         mounted over the common directory; the agent may write anything in there
    objects/     mounted over `objects`, likewise
    hooks/       mounted read-only where the repository has none
    info/        mounted read-only over `objects/info`: `alternates`, and the lock `in-use`
    state.json   what was brought over; only we write it, and no sandbox shows it
    snapshot     the refs outside when they were last copied to the inside

Made by `make`, used by `bring_over` and `refresh`, cleared by `work`. Once it is
made, nobody outside reads or writes `git/` and `objects/`: they are looked at from a sandbox
(`Inside`).
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol

from bullpen import proc
from bullpen.files import read_plain, write_atomically
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import Repository, git, run_raw
from bullpen.worktrees.records import Record, from_json, to_json
from bullpen.worktrees.repo_lock import take

STORES = "private"  # in the repository's `bullpen`
MOUNTED = Path("/run/bullpen/git")  # where the real objects are, inside
PINS = "refs/bullpen/in/"
OUTSIDE = "refs/bullpen/outside/"  # inside: the other side of a branch that diverged
BULLPEN = "refs/bullpen/"
STASH = "refs/stash"
HEADS = "refs/heads/"
LOCK_SECONDS = 60.0
FILE_BYTES = 1 << 30
LISTED = "%(objectname) %(refname) %(*objectname) %(symref)"


@dataclass(frozen=True)
class PrivateStore:
    """The private git of one worktree."""

    common: Path
    id: str
    root: Path  # the worktree

    @property
    def directory(self) -> Path:
        return self.common / "bullpen" / STORES / self.id

    @property
    def git(self) -> Path:
        return self.directory / "git"

    @property
    def objects(self) -> Path:
        return self.directory / "objects"

    @property
    def hooks(self) -> Path:
        return self.directory / "hooks"

    @property
    def info(self) -> Path:
        return self.directory / "info"

    @property
    def admin(self) -> Path:
        """The real one. Inside, another lies at the same path."""
        return self.common / "worktrees" / self.id

    @property
    def repo(self) -> Repository:
        """The real one, for git outside."""
        return Repository(self.common, self.common, None)

    @property
    def exists(self) -> bool:
        return self.directory.is_dir()


@dataclass(frozen=True)
class State:
    """What was brought over. Values are object ids by full names of refs."""

    branch: str = ""  # the birth branch; empty when detached
    pins: str = ""  # the prefix of its pins
    brought: Mapping[str, str] = field(default_factory=dict)  # branches outside that are its own
    moving: Mapping[str, str] = field(default_factory=dict)  # where they are about to be moved
    head: str = ""  # where the HEAD inside is
    on: str = ""  # on which branch; empty when detached
    indexed: str = ""  # the commit that the index outside was made from
    refused: Mapping[str, str] = field(default_factory=dict)  # why, by name of the ref inside
    diverged: str = ""  # where its branch is outside, while that is another line
    is_final: bool = False  # brought over since it was last in use
    used: float = 0.0  # when somebody was last about to use it

    @property
    def where(self) -> str:
        """Where the agent works, if not on its own branch: `on feature/login`, `detached`."""
        if not self.on:
            return "detached"
        return f"on {self.on}" if self.on != self.branch else ""


class Inside(Protocol):
    """Runs git in a sandbox that has the mounts of the store and nothing else that is the
    person's."""

    def run(
        self, script: str, *words: str, stdin: bytes = b"", most: int | None = None
    ) -> proc.Done:
        """A shell script in the worktree's administrative directory. Output is cut at `most`
        bytes."""
        ...

    def upload_pack(self, source: Path) -> str:
        """The sending half of a fetch from that git directory, as a shell line."""
        ...


def store_of(common: Path, admin: Path, root: Path) -> PrivateStore:
    """The store of that linked worktree, there or not."""
    return PrivateStore(common, admin.name, root)


def stores_of(repo: Repository) -> list[PrivateStore]:
    """All stores of a repository."""
    try:
        paths = sorted((repo.own_dir / STORES).iterdir())
    except FileNotFoundError:
        return []
    return [PrivateStore(repo.common_dir, path.name, _root(repo, path.name)) for path in paths]


def find_recorded(common: Path, root: Path) -> PrivateStore | None:
    """The store of a worktree that we made, there or not; by our record of it."""
    record = record_at(root)
    if record is None or record.repo != str(common):
        return None
    return PrivateStore(common, record.id, root)


def _root(repo: Repository, id: str) -> Path:
    try:
        text = os.fsdecode(read_plain(repo.admin_dir / id / "gitdir", 1 << 16)).strip()
    except OSError:
        return Path("/nonexistent")
    return Path(os.path.normpath(repo.admin_dir / id / text)).parent


# ── what is known ────────────────────────────────────────────────────────────


def load_state(store: PrivateStore) -> State:
    """What was brought over of it."""
    path = store.directory / "state.json"
    try:
        values = json.loads(path.read_text(errors="surrogateescape"))
        known = State.__dataclass_fields__
        return State(**{key: value for key, value in values.items() if key in known})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise WorktreeError(
            Code.WORKTREE_CORRUPT,
            f"cannot read {path}: {error}",
            hint="nothing is brought over before it is repaired",
        ) from error


def save_state(store: PrivateStore, state: State) -> None:
    """A crash leaves the state of before or this one."""
    write_atomically(store.directory / "state.json", json.dumps(asdict(state)), mode=0o600)


def borrowed_at(number: int) -> Path:
    """Where the objects of another repository are, inside."""
    return MOUNTED / "alternates" / str(number)


def load_snapshot(store: PrivateStore) -> dict[str, str]:
    """The refs outside, as the inside was last told of them."""
    return parse_refs((store.directory / "snapshot").read_text(errors="surrogateescape"))


def save_snapshot(store: PrivateStore, refs: Mapping[str, str]) -> None:
    """The same, replaced."""
    lines = "".join(f"{oid} {ref}\n" for ref, oid in refs.items())
    write_atomically(store.directory / "snapshot", lines, mode=0o600)


def parse_refs(text: str) -> dict[str, str]:
    """Lines of an id and a name. Pure."""
    rows = (line.split(" ", 1) for line in text.split("\n") if " " in line)
    return {name: oid for oid, name in rows}


def is_shared(ref: str) -> bool:
    """Whether agents see that ref of the repository. Pure."""
    return not ref.startswith(BULLPEN) and ref != STASH


@contextlib.contextmanager
def locked_store(store: PrivateStore) -> Iterator[None]:
    """One bring-over or refresh of a store at a time, also between processes. A store that is gone
    is a FileNotFoundError."""
    descriptor = os.open(store.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not take(descriptor, LOCK_SECONDS):
            raise WorktreeError(
                Code.LOCKED,
                f"another process has looked at the private git of {store.root.name} for"
                f" {LOCK_SECONDS:g} s",
                hint="try again",
            )
        (store.directory / "state.json").stat()  # cleared while we waited
        yield
    finally:
        os.close(descriptor)


def is_in_use(store: PrivateStore) -> bool:
    """Whether a sandbox runs with it: bubblewrap holds a lock for as long as one does."""
    try:
        descriptor = os.open(store.info / "in-use", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        query = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, query)
        return bool(struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK)
    finally:
        os.close(descriptor)


def is_brought_over(store: PrivateStore) -> bool:
    """Whether there can be nothing new in it."""
    state = load_state(store)
    return state.is_final and not state.refused and not is_in_use(store)


# ── the real repository ──────────────────────────────────────────────────────


def can_have_store(common: Path) -> bool:
    """Whether refs are kept in files, as we write them; others get a read-only git."""
    try:
        text = (common / "config").read_text(errors="replace")
    except OSError:
        return True  # the defaults hold
    return re.search(r"^\s*refstorage\s*=\s*(?!\s|files\b)", text, re.I | re.M) is None


def list_refs(repo: Repository) -> list[tuple[str, str, str, str]]:
    """Name, id, peeled id and target of each shared ref of the real repository."""
    text = git(repo, "for-each-ref", f"--format={LISTED}").text
    rows = []
    for line in filter(None, text.split("\n")):
        oid, ref, peeled, symref = line.split(" ", 3)
        if is_shared(ref):
            rows.append((ref, oid, peeled, symref))
    return rows


def record_at(root: Path) -> Record | None:
    """Our record of the worktree, if we made it."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        return from_json(_record_path(root).read_text(encoding="utf-8", errors="surrogateescape"))
    return None


def _record_path(root: Path) -> Path:
    return root.parent / ".records" / f"{root.name}.json"


def rename_record(store: PrivateStore, branch: str) -> None:
    """Our record of the worktree, if it is one that we made, says that its branch is another."""
    record = record_at(store.root)
    if record is not None and record.id == store.id and record.is_of(store.repo):
        text = to_json(replace(record, branch=branch))
        write_atomically(_record_path(store.root), text, mode=0o600)


def read_head(store: PrivateStore) -> tuple[str, str]:
    """The commit and the branch of the HEAD outside; each may be empty."""
    env = {"GIT_DIR": str(store.admin), "GIT_COMMON_DIR": str(store.common)}
    commit = run_raw(["rev-parse", "-q", "--verify", "HEAD^{commit}"], env=env).text.strip()
    target = run_raw(["symbolic-ref", "-q", "HEAD"], env=env).text.strip()
    return commit, target.removeprefix(HEADS)


# ── clearing ─────────────────────────────────────────────────────────────────


def drop_store(store: PrivateStore) -> None:
    """Take its pins away, then itself in one step. The caller has seen to it that nothing in it is
    missing outside. Killed between the two, the next bring-over pins it again."""
    drop_pins(store.repo, load_state(store).pins)
    aside = store.common / "bullpen" / "dropped" / f"{store.id}.{secrets.token_hex(3)}"
    aside.parent.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        store.directory.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def drop_pins(repo: Repository, prefix: str) -> None:
    """All of them, if they are as they were listed."""
    text = git(repo, "for-each-ref", "--format=%(objectname) %(refname)", prefix).text
    lines = "".join(f"delete {ref} {oid}\n" for ref, oid in parse_refs(text).items())
    if lines:
        git(repo, "update-ref", "--stdin", stdin=os.fsencode(lines))
