"""What a private git holds that is nowhere else: counted before a removal, and before a clearing.

Looks at what was brought over and at the real repository, never into the store. `remove` refuses
what this finds; `clear` takes a store away in which it finds nothing.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from bullpen.worktrees.errors import WorktreeError
from bullpen.worktrees.git import Repository, git
from bullpen.worktrees.private.store import (
    HEADS,
    Inside,
    PrivateStore,
    State,
    drop_pins,
    drop_store,
    is_in_use,
    load_state,
    locked_store,
    parse_refs,
)

SAVED = ".git-private"  # beside the files of a worktree that was removed
END = "the end"
# Staged content, a half-done rebase or merge, a sparse checkout, settings (an upstream, say), what
# is ignored, work in submodules: what one made anew would not have.
IS_PLAIN = f"""
for name in MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD BISECT_LOG rebase-merge rebase-apply sequencer
do test ! -e $name || exit; done
test "$(git config --bool core.sparseCheckout)" != true || exit
sum() {{ cat "$1" 2>/dev/null | sha256sum | cut -d ' ' -f 1; }}
test "$(sum ../../config)" = "$1" || exit
test "$(sum ../../info/exclude)" = "$2" || exit
find modules -type d -name objects -prune -printf '%h\\n' 2>/dev/null | {{ while read -r module; do
git --git-dir="$module" --work-tree=. symbolic-ref -q HEAD && exit 1
test -z "$(git --git-dir="$module" --work-tree=. for-each-ref refs/stash)" || exit 1
test ! -e "$module/lfs" || exit 1
for name in MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD rebase-merge rebase-apply sequencer
do test ! -e "$module/$name" || exit 1; done
git --git-dir="$module" --work-tree=. diff-index --cached --quiet HEAD -- || exit 1
done; }} >/dev/null || exit
git diff-index --cached --quiet HEAD -- && echo '{END}'
"""


@dataclass(frozen=True)
class PrivateWork:
    """`unknown`: why nobody can say what it holds. `names` and `commits`: pins whose commits are
    on no branch, tag or remote branch."""

    unknown: str = ""
    names: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()


NOTHING = PrivateWork()


def find_private_work(store: PrivateStore) -> PrivateWork:
    """What a removal of the worktree would lose with its private git."""
    if not store.exists:
        return NOTHING
    try:
        state = load_state(store)
    except WorktreeError as error:
        return PrivateWork(error.message)
    unknown = ""
    if is_in_use(store):
        unknown = "its agent is at work"
    elif not state.is_final:
        unknown = "its commits were not brought over since it last ran"
    elif state.refused:
        name, why = next(iter(state.refused.items()))
        unknown = f"{name} was not brought over: {why}"
    unique = _unique_pins(store.repo, state)
    names = tuple(ref.removeprefix(state.pins) for ref in unique)
    return PrivateWork(unknown, names, tuple(dict.fromkeys(unique.values())))


def _unique_pins(repo: Repository, state: State) -> dict[str, str]:
    text = git(repo, "for-each-ref", "--format=%(objectname) %(refname)", state.pins).text
    pins = parse_refs(text)
    unique = {}
    for ref, oid in pins.items():
        words = ("rev-list", "-n1", oid, "--not", "--branches", "--tags", "--remotes")
        done = git(repo, *words, accept=(0, 128), timeout=600)
        if done.out or done.code:
            unique[ref] = oid
    return unique


def save_store(store: PrivateStore, aside: Path) -> None:
    """Put it with the files of its worktree, which is being removed. May be repeated."""
    if not store.exists:
        return
    with contextlib.suppress(WorktreeError):  # a broken one keeps its pins
        drop_pins(store.repo, load_state(store).pins)
    aside.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = aside / f"{SAVED}.{secrets.token_hex(3)}"
    try:
        store.directory.rename(target)
    except OSError:  # another file system
        shutil.copytree(store.directory, target, symlinks=True, ignore=_special)
        shutil.rmtree(store.directory, ignore_errors=True)


def _special(directory: str, names: list[str]) -> list[str]:
    """An agent may have made pipes, which keep a reader waiting."""
    modes = {name: os.lstat(Path(directory, name)).st_mode for name in names}
    known = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return [name for name, mode in modes.items() if not any(is_kind(mode) for is_kind in known)]


# ── clearing ─────────────────────────────────────────────────────────────────


def clear(store: PrivateStore, inside: Inside) -> bool:
    """Take the store away if nothing in it is missing outside; whether it was. Brought over just
    now, and not in use since: else it stays."""
    if not store.exists or find_private_work(store) != NOTHING:
        return False
    state = load_state(store)
    if state.diverged or not _is_plain(store, state, inside):
        return False
    # What came over in small pieces lies loose.
    git(store.repo, "maintenance", "run", "--quiet", "--task=loose-objects", accept=range(256))
    git(store.repo, "prune-packed", "--quiet", accept=range(256))
    with locked_store(store):
        if is_in_use(store) or not load_state(store).is_final:
            return False
        drop_store(store)
    return True


def _is_plain(store: PrivateStore, state: State, inside: Inside) -> bool:
    """Whether a store made anew would be like it."""
    is_there = state.on == state.branch
    tags = [name for name in _pin_names(store, state) if name.startswith("tags/")]
    ours = [f"refs/{name}" for name in tags]
    known = (
        git(store.repo, "for-each-ref", "--format=%(refname)", *ours).text.split() if tags else []
    )
    has_tags = set(ours) <= set(known)
    is_read = state.brought.get(f"{HEADS}{state.branch}", state.head) == state.head
    return is_there and has_tags and is_read and END in inside.run(IS_PLAIN, *_sums(store)).text


def _sums(store: PrivateStore) -> list[str]:
    """Of the settings and of what is ignored, as the inside was last given them."""
    sums = []
    for name in ("config", "info/exclude"):
        copy, real = store.directory / Path(name).name, store.common / name
        path = copy if copy.exists() else real  # stores of before have no copy of both
        content = path.read_bytes() if path.exists() else b""
        sums.append(hashlib.sha256(content).hexdigest())
    return sums


def _pin_names(store: PrivateStore, state: State) -> list[str]:
    done = git(store.repo, "for-each-ref", "--format=%(refname)", state.pins)
    return [ref.removeprefix(state.pins) for ref in done.text.split()]
