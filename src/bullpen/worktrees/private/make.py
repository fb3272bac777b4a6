"""Makes private gits, before an agent uses one: a copy of what its worktree has, and of all refs.

Called by `sandboxes/prepare` at each start. Writes aside and renames: nobody sees half of one.
Reads only plain files of the real administrative directory: an agent of before could write there.
"""

import contextlib
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from bullpen.files import flush_directory, read_plain, write_atomically
from bullpen.worktrees.errors import Code, WorktreeError, reported
from bullpen.worktrees.git import git, run_raw
from bullpen.worktrees.private.alternates import list_alternates
from bullpen.worktrees.private.store import (
    FILE_BYTES,
    HEADS,
    MOUNTED,
    PINS,
    PrivateStore,
    State,
    borrowed_at,
    list_refs,
    load_state,
    locked_store,
    read_head,
    record_at,
    save_state,
)
from bullpen.worktrees.repo_lock import locked

TRIES = 5
# Of the real administrative directory, what the inside has its own of, or must not have.
NOT_COPIED = frozenset({"gitdir", "commondir", "locked"})


def begin_use(store: PrivateStore) -> bool:
    """Have the store there for an agent that is about to use it; whether it was there before.
    From now on what it holds is unknown, until it is brought over."""
    for _ in range(TRIES):
        was_there = store.exists
        make_store(store)
        # It may be cleared between the two.
        with contextlib.suppress(FileNotFoundError), locked_store(store):
            save_state(store, replace(load_state(store), is_final=False, used=time.time()))
            _update_alternates(store)
            return was_there
    raise WorktreeError(
        Code.LOCKED, f"the private git of {store.root.name} is being cleared", hint="try again"
    )


def make_store(store: PrivateStore) -> None:
    """Have the store there. Whole, or not at all: it is made aside and renamed."""
    with reported(f"cannot make a git of its own for {store.root.name}"), locked(store.repo):
        if store.exists:
            return
        aside = store.common / "bullpen" / "new" / f"{store.id}.{secrets.token_hex(3)}"
        aside.mkdir(mode=0o700, parents=True)
        store.directory.parent.mkdir(mode=0o700, exist_ok=True)
        _fill(store, aside)
        aside.rename(store.directory)
        flush_directory(store.directory.parent)


def _fill(store: PrivateStore, aside: Path) -> None:
    inside, info = aside / "git", aside / "info"
    for name in ("refs", "objects", "hooks", "info", "logs"):
        (inside / name).mkdir(parents=True)
    for name in ("objects/info", "objects/pack", "hooks", "info"):
        (aside / name).mkdir(parents=True)
    (info / "alternates").write_bytes(_alternates(store))
    (info / "in-use").touch()
    for name in ("HEAD", "config", "shallow", "info/exclude", "info/attributes"):
        with contextlib.suppress(FileNotFoundError):
            (inside / name).write_bytes(read_plain(store.common / name, FILE_BYTES))
    for name in ("config", "info/exclude"):  # as the inside was given them
        with contextlib.suppress(FileNotFoundError):
            shutil.copy(inside / name, aside / Path(name).name)
    _copy_admin(store.admin, inside / "worktrees" / store.id)
    _write(inside / "worktrees" / store.id / "gitdir", str(store.root / ".git"))
    _write(inside / "worktrees" / store.id / "commondir", "../..")
    rows = list_refs(store.repo)
    _write_refs(inside, rows)
    refs = {ref: oid for ref, oid, _, symref in rows if not symref}
    lines = "".join(f"{oid} {ref}\n" for ref, oid in refs.items())
    (aside / "snapshot").write_text(lines, errors="surrogateescape")
    state = _first_state(store, refs)
    (aside / "state.json").write_text(json.dumps(asdict(state)), errors="surrogateescape")


def _copy_admin(real: Path, copy: Path) -> None:
    """Plain files alone: an agent of before could write there."""
    for directory, names, files, descriptor in os.fwalk(real, follow_symlinks=False):
        to = copy / Path(directory).relative_to(real)
        to.mkdir(parents=True, exist_ok=True)
        if "objects" in names:  # of a submodule: borrowed
            names.remove("objects")
            _borrow_objects(to / "objects", real, Path(directory))
        for name in files:
            mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode) and name not in NOT_COPIED and not name.endswith(".lock"):
                (to / name).write_bytes(read_plain(Path(directory, name), FILE_BYTES))
    (copy / "logs").mkdir(exist_ok=True)


def _borrow_objects(objects: Path, real: Path, module: Path) -> None:
    (objects / "info").mkdir(parents=True)
    (objects / "pack").mkdir()
    _write(objects / "info" / "alternates", str(MOUNTED / module.relative_to(real) / "objects"))


def _write_refs(inside: Path, rows: Sequence[tuple[str, str, str, str]]) -> None:
    lines = ["# pack-refs with: peeled fully-peeled sorted \n"]
    for ref, oid, peeled, symref in sorted(rows, key=lambda row: os.fsencode(row[0])):
        if symref:
            path = inside / ref
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, f"ref: {symref}")
            continue
        lines.append(f"{oid} {ref}\n")
        if peeled:
            lines.append(f"^{peeled}\n")
    (inside / "packed-refs").write_bytes(os.fsencode("".join(lines)))


def _first_state(store: PrivateStore, refs: Mapping[str, str]) -> State:
    branch = _birth_branch(store)
    ref = f"{HEADS}{branch}"
    brought = {ref: refs[ref]} if branch and ref in refs else {}
    pins = f"{PINS}{store.root.name.replace('~', '%')}/"
    if git(store.repo, "for-each-ref", "--count=1", pins).out or not _is_plain_name(pins):
        pins = f"{PINS}{store.id}/"  # another home has an agent of that name
    head, on = read_head(store)
    return State(branch=branch, pins=pins, brought=brought, head=head, on=on, indexed=head)


def _is_plain_name(prefix: str) -> bool:
    return run_raw(["check-ref-format", f"{prefix}x"]).code == 0


def _birth_branch(store: PrivateStore) -> str:
    """From our record of the worktree. One that we did not make has the branch that it is on; but
    never for one that we made: an agent of before may have left its HEAD anywhere."""
    record = record_at(store.root)
    if record is not None and record.id == store.id and record.is_of(store.repo):
        return record.branch
    return read_head(store)[1]


def _alternates(store: PrivateStore) -> bytes:
    """Where the inside reads objects from: the real ones, and those that these borrow from."""
    borrowed = list_alternates(store.common / "objects")
    mounted = [MOUNTED / "objects", *(borrowed_at(number) for number in range(len(borrowed)))]
    return b"".join(os.fsencode(path) + b"\n" for path in mounted)


def _update_alternates(store: PrivateStore) -> None:
    path, content = store.info / "alternates", _alternates(store)
    if path.read_bytes() != content:
        write_atomically(path, os.fsdecode(content))


def _write(path: Path, line: str) -> None:
    path.write_bytes(os.fsencode(line) + b"\n")
