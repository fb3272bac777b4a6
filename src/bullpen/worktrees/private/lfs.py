"""Brings LFS objects of a private git over: content by its hash, read from the sandbox.

Called by `bring_over`. What is not what its name says stays inside, and is told.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from bullpen.files import flush_directory
from bullpen.worktrees.private.store import Inside, PrivateStore

MOST_LISTED = 100_000
MOST_AT_ONCE = 1000
MOST_BYTES = 1 << 28  # of one: it is held in memory
NAME = re.compile(r"[0-9a-f]{64}")
# In the worktree's administrative directory, inside. The real objects are elsewhere. One more than
# may be: what is left out is then known.
FIND = "find ../../lfs/objects -type f -printf 'LFS %f\\n' 2>/dev/null"
LIST = f"{FIND} | head -n {MOST_LISTED + 1}"
READ = 'cat "../../lfs/objects/$1"'


def bring_objects(store: PrivateStore, inside: Inside, names: Sequence[str]) -> dict[str, str]:
    """Have these in the real store; why not, by name, for those that were refused. What is left
    for the next time counts as refused: until then it is inside alone."""
    new = [name for name in names if not _path(store, name).exists()]
    refused = {}
    for name in new[:MOST_AT_ONCE]:
        content = inside.run(READ, _object_path(name), most=MOST_BYTES).out
        if hashlib.sha256(content).hexdigest() != name:
            refused[f"lfs/{name}"] = f"not what its name says, or over {MOST_BYTES >> 20} MiB"
            continue
        _put(content, store.directory / "lfs.new", _path(store, name))
    if len(new) > MOST_AT_ONCE:
        refused["lfs"] = f"more than {MOST_AT_ONCE} new objects: the rest comes the next time"
    if len(names) > MOST_LISTED:
        refused["lfs"] = f"more than {MOST_LISTED} objects"
    return refused


def _put(content: bytes, aside: Path, path: Path) -> None:
    """Whole, or not at all, also after a power cut. Aside: there the next one takes away what a
    killed one left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    flush_directory(path.parent)


def _object_path(name: str) -> str:
    return f"{name[:2]}/{name[2:4]}/{name}"


def _path(store: PrivateStore, name: str) -> Path:
    return store.common / "lfs" / "objects" / _object_path(name)
