"""Inside follows what somebody did outside to the branch of an agent that has not committed since.

The branch was moved, renamed or deleted; files are never touched. Called by `bring_over`, which
decides; git inside is run in the sandbox of the store. Each step may be repeated.
"""

import os
from dataclasses import replace

from bullpen.files import read_plain
from bullpen.worktrees.git import resolve
from bullpen.worktrees.private.look_inside import END, OID, InsideRefs
from bullpen.worktrees.private.store import (
    HEADS,
    OUTSIDE,
    Inside,
    PrivateStore,
    State,
    rename_record,
)

HEAD_BYTES = 1 << 12
MOVE = 'git update-ref -m "bullpen: moved outside" "$1" "$2" "$3"'
RENAME = f"""git branch -M "$1" "$2" && echo '{END}'"""
DETACH = 'git update-ref --no-deref -m "bullpen: deleted outside" HEAD "$2" "$2" &&'
DELETE = f"""git update-ref -d "$1" "$2" && echo '{END}'"""


def follow_move(inside: Inside, state: State, view: InsideRefs, there: str) -> State:
    """The branch and, if HEAD is on it, the index go where they are outside."""
    ref = f"{HEADS}{state.branch}"
    index = '&& git read-tree --reset -i "$2"' if view.on == ref else ""
    done = inside.run(f"{MOVE} {index} && echo '{END}'", ref, there, view.refs[ref])
    if END not in done.text:
        return state  # the agent is at it: the next one looks again
    return replace(state, brought={**state.brought, ref: there})


def follow_rename(
    store: PrivateStore, inside: Inside, state: State, view: InsideRefs
) -> tuple[State, InsideRefs]:
    """Outside, the worktree is on a branch of another name, where its own was: as `git branch -m`
    leaves it. Inside, and in our record, it gets that name, also if the agent has committed."""
    old, new = f"{HEADS}{state.branch}", _branch_outside(store)
    there, branch = state.brought.get(old, ""), new.removeprefix(HEADS)
    was_on_it = bool(state.branch) and state.on == state.branch
    if not there or not was_on_it or new in ("", old):
        return state, view
    if resolve(store.repo, [old, new]) != {old: None, new: there}:
        return state, view
    if old in view.refs:
        if view.refs.get(new, there) != there:
            return state, view  # the agent has another of that name
        if END not in inside.run(RENAME, state.branch, branch).text:
            return state, view
        refs = {ref: oid for ref, oid in view.refs.items() if ref != old}
        on = new if view.on == old else view.on
        view = replace(view, refs={**refs, new: view.refs[old]}, on=on)
    rename_record(store, branch)
    brought = {ref: oid for ref, oid in state.brought.items() if ref != old}
    return replace(state, branch=branch, brought={**brought, new: there}, on=branch), view


def _branch_outside(store: PrivateStore) -> str:
    """The full name of the branch that the worktree is on; empty for none."""
    try:
        text = os.fsdecode(read_plain(store.admin / "HEAD", HEAD_BYTES)).strip()
    except OSError:
        return ""
    ref = text.removeprefix("ref: ")
    return ref if ref.startswith(HEADS) else ""


def follow_deletion(
    store: PrivateStore, inside: Inside, state: State, view: InsideRefs
) -> tuple[State, InsideRefs]:
    """Inside, the branch goes as well, and the agent stands at the commit where it was."""
    ref = f"{HEADS}{state.branch}"
    brought = state.brought.get(ref, "")
    is_untouched = bool(brought) and view.refs.get(ref) == brought and ref not in state.moving
    if not is_untouched or resolve(store.repo, [ref])[ref]:
        return state, view
    script = f"{DETACH} {DELETE}" if view.on == ref else DELETE
    if END not in inside.run(script, ref, brought).text:
        return state, view
    left = {name: oid for name, oid in state.brought.items() if name != ref}
    refs = {name: oid for name, oid in view.refs.items() if name != ref}
    view = replace(view, refs=refs, on="" if view.on == ref else view.on)
    return replace(state, brought=left), view


def tell_inside(inside: Inside, state: State, diverged: str) -> str:
    """The agent finds the other side of its branch, for as long as there is one."""
    ref = f"{OUTSIDE}{state.branch}"
    if diverged == state.diverged:
        return diverged
    if OID.fullmatch(diverged):
        inside.run('git update-ref "$1" "$2"', ref, diverged)
    elif state.diverged:
        inside.run('git update-ref -d "$1"', ref)
    return diverged
