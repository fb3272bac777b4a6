"""Brings the work of a private git over: a fetch that verifies, then branches by compare-and-swap.

    look     from a sandbox: refs, HEAD and stash inside
    fetch    what changed, to pins (`refs/bullpen/in/<agent>/…`); every id is computed anew
    move     its own branches, if they are outside where they were last brought to
    follow   HEAD and index of the real administrative directory

Each step is safe to repeat, so that a crash anywhere loses nothing: the next one goes on. What
does not verify is refused and stays in the store. Called by `hub/sandbox/private_git` and by
commands. Never reads or writes what the agent may write itself: `Inside` does, in a sandbox.
"""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from bullpen import clock
from bullpen.files import read_plain
from bullpen.worktrees.git import Checkout, git, resolve
from bullpen.worktrees.private import lfs
from bullpen.worktrees.private.bring_modules import bring_modules, refuse_lost_links
from bullpen.worktrees.private.follow_outside import (
    follow_deletion,
    follow_move,
    follow_rename,
    tell_inside,
)
from bullpen.worktrees.private.look_inside import InsideRefs, is_own, look
from bullpen.worktrees.private.outside_index import write_index
from bullpen.worktrees.private.store import (
    BULLPEN,
    HEADS,
    OUTSIDE,
    PINS,
    STASH,
    Inside,
    PrivateStore,
    State,
    is_in_use,
    load_snapshot,
    load_state,
    locked_store,
    parse_refs,
    save_state,
)
from bullpen.worktrees.private.verified_fetch import fetch_all, list_pins
from bullpen.worktrees.safety_copies import stamped

# For all that is fetched at once. An agent can make its git wait, and may still be at work.
FETCH_SECONDS, LAST_FETCH_SECONDS = 60.0, 300.0
START_SECONDS = 120.0  # by then a sandbox that was prepared has its lock
REMOTES = "refs/remotes/"
HEAD = "HEAD"
MESSAGE = "bullpen: brought over"


@dataclass(frozen=True)
class BroughtOver:
    """What a bring-over did. `told` is what is new to be told about it."""

    state: State
    moved: Mapping[str, str] = field(default_factory=dict)  # branches, and where they are now
    told: tuple[str, ...] = ()


def bring_over(store: PrivateStore, inside: Inside, *, has_ended: bool = False) -> BroughtOver:
    """Everything that is there now, brought over. Raises if nobody can look inside. `has_ended`:
    whoever used it is known to have ended, and nobody else begins meanwhile."""
    with locked_store(store):
        # Looked at before: what is done after this look is looked at by the next bring-over.
        was_in_use = is_in_use(store)
        before = load_state(store)
        view = look(inside)
        wanted = plan_pins(view, load_snapshot(store), before)
        seconds = LAST_FETCH_SECONDS if has_ended else FETCH_SECONDS
        pins = before.pins
        _retire_stashes(store, before, view)
        failures = fetch_all(store.repo, inside, store.common, wanted, prefix=pins, seconds=seconds)
        refused = {pin.removeprefix(pins): why for pin, why in failures.items()}
        refused |= lfs.bring_objects(store, inside, view.lfs)
        refused |= bring_modules(store, inside, view.modules, seconds)
        refused |= refuse_lost_links(store, _landing(view, before, refused))
        state = replace(before, refused=refused)
        state, view = follow_rename(store, inside, state, view)
        state, view = follow_deletion(store, inside, state, view)
        state, moved = _move_branches(store, inside, state, view)
        state = _follow(store, state, view)
        is_old = time.time() - before.used > START_SECONDS
        is_over = not was_in_use and (has_ended or is_old or before.is_final)
        state = replace(state, is_final=is_over)
        if state != before:
            save_state(store, state)
        return BroughtOver(state, moved, _news(before, state))


def _landing(view: InsideRefs, state: State, refused: Mapping[str, str]) -> dict[str, str]:
    """What has come over and is about to be outside, by name: HEAD and its own branches. Pure."""
    before = {f"refs/{HEAD}": state.head, **state.brought}
    now = {ref: oid for ref, oid in view.refs.items() if is_own(ref, state)}
    now |= {f"refs/{HEAD}": view.head} if view.head else {}
    new = {ref.removeprefix("refs/"): oid for ref, oid in now.items() if before.get(ref) != oid}
    return {name: oid for name, oid in new.items() if name not in refused}


# ── what comes over: pure ────────────────────────────────────────────────────


def plan_pins(view: InsideRefs, snapshot: Mapping[str, str], state: State) -> dict[str, str]:
    """Ids by name of the pin: its own branches, HEAD, the stash, and every other ref that it made
    or changed. What came from a remote is not its work."""
    own = f"{HEADS}{state.branch}"
    changed = {
        ref: oid
        for ref, oid in view.refs.items()
        if snapshot.get(ref) != oid or ref == own
        if not ref.startswith((REMOTES, BULLPEN)) and ref != STASH
    }
    pins = {f"{state.pins}{ref.removeprefix('refs/')}": oid for ref, oid in changed.items()}
    pins |= {f"{state.pins}stash/{number}": oid for number, oid in enumerate(view.stashes)}
    if view.head:
        pins[f"{state.pins}HEAD"] = view.head
    return pins


def decide(inside: str, outside: str, brought: str, *, is_ahead: bool) -> str:
    """What becomes of one branch; ids, empty where there is none. Pure.

    `same`: nothing. `move`: outside it goes where it is inside. `follow`: it was moved outside, and
    nobody has worked inside since. `diverged`: both were. `is_ahead`: inside has what somebody
    added outside, as after a merge of the other side.
    """
    if inside == outside:
        return "same"
    if outside == brought or (outside and is_ahead):
        return "move"
    return "follow" if inside == brought else "diverged"


# ── stashes that were dropped ────────────────────────────────────────────────


def _retire_stashes(store: PrivateStore, state: State, view: InsideRefs) -> None:
    """One that is in the stash no more loses its pin, and is kept as long as a safety copy."""
    pins = list_pins(store.repo, f"{state.pins}stash/")
    lines = plan_retirement(pins, view.stashes, state, clock.now())
    if lines:
        git(store.repo, "update-ref", "--stdin", stdin=os.fsencode("".join(lines)))


def plan_retirement(
    pins: Mapping[str, str], stashes: Sequence[str], state: State, now: datetime
) -> list[str]:
    """For `git update-ref --stdin`. Pure. One that is still there has another number by now."""
    agent = state.pins.removeprefix(PINS).strip("/")
    places = {f"{state.pins}stash/{number}": oid for number, oid in enumerate(stashes)}
    kept = {oid: stamped(f"{agent}.stash", now, oid[:12]) for oid in pins.values()}
    return [
        *(f"update {ref} {oid}\n" for oid, ref in kept.items() if oid not in stashes),
        *(f"delete {pin} {oid}\n" for pin, oid in pins.items() if pin not in places),
    ]


# ── moving ───────────────────────────────────────────────────────────────────


def _move_branches(
    store: PrivateStore, inside: Inside, state: State, view: InsideRefs
) -> tuple[State, dict[str, str]]:
    """Move its own branches outside, each by compare-and-swap; the old value is the one that was
    last brought over, so that nobody's commit is overwritten."""
    outside = _own_branches(store, state)
    # A hub that was killed after it moved a branch has not recorded that.
    done = {ref: oid for ref, oid in state.moving.items() if outside.get(ref) == oid}
    state = replace(state, brought={**state.brought, **done}, moving={})
    own = f"{HEADS}{state.branch}"
    moves: dict[str, str] = {}
    diverged = ""
    for ref, oid in view.refs.items():
        if not is_own(ref, state) or _is_refused(ref, state):
            continue
        there, brought = outside.get(ref, ""), state.brought.get(ref, "")
        if ref != own and there and (there != brought or _is_checked_out(store, ref)):
            continue  # somebody else's: a child's branch, say
        match decide(oid, there, brought, is_ahead=_is_ahead(store, oid, there, brought)):
            case "same":
                state = replace(state, brought={**state.brought, ref: oid})
            case "move":
                moves[ref] = oid
            case "follow" if ref == own and there:
                state = follow_move(inside, state, view, there)
            case _ if ref == own:
                diverged = there or "deleted"
    state = replace(state, diverged=tell_inside(inside, state, diverged))
    return _swap(store, state, moves, outside)


def _own_branches(store: PrivateStore, state: State) -> dict[str, str]:
    if not state.branch:
        return {}
    own = f"{HEADS}{state.branch}"
    words = ("--format=%(objectname) %(refname)", own, f"{own}.*", f"{own}.*/**")
    refs = parse_refs(git(store.repo, "for-each-ref", *words).text)
    return {ref: oid for ref, oid in refs.items() if is_own(ref, state)}


def _is_checked_out(store: PrivateStore, ref: str) -> bool:
    """Whether another worktree is on that branch."""
    heads = [store.common / "HEAD", *(store.common / "worktrees").glob("*/HEAD")]
    for path in heads:
        with contextlib.suppress(OSError):
            is_on = read_plain(path, 1 << 12).decode(errors="replace").strip() == f"ref: {ref}"
            if is_on and path.parent != store.admin:
                return True
    return False


def _is_refused(ref: str, state: State) -> bool:
    return ref.removeprefix("refs/") in state.refused


def _is_ahead(store: PrivateStore, inside: str, outside: str, brought: str) -> bool:
    """Whether it has what was added outside. A branch that was set back there has nothing added:
    more commits on the old line must not undo that, a new line from there may."""
    if not outside or outside in (inside, brought) or not _is_ancestor(store, outside, inside):
        return False
    is_set_back = bool(brought) and _is_ancestor(store, outside, brought)
    return not (is_set_back and _is_ancestor(store, brought, inside))


def _is_ancestor(store: PrivateStore, old: str, new: str) -> bool:
    words = ("merge-base", "--is-ancestor", old, new)
    return git(store.repo, *words, accept=(0, 1, 128), timeout=LAST_FETCH_SECONDS).code == 0


def _swap(
    store: PrivateStore, state: State, moves: Mapping[str, str], outside: Mapping[str, str]
) -> tuple[State, dict[str, str]]:
    moved = {}
    for ref, oid in moves.items():
        # Before the move: killed after it, the next one knows that it was us.
        state = replace(state, moving={**state.moving, ref: oid})
        save_state(store, state)
        old = outside.get(ref, "") or "0" * len(oid)
        words = ("update-ref", "--create-reflog", "-m", MESSAGE, ref, oid, old)
        if git(store.repo, *words, accept=(0, 1, 128)).code == 0:
            state = replace(state, brought={**state.brought, ref: oid})
            moved[ref] = oid
    return replace(state, moving={}), moved


# ── both sides follow ────────────────────────────────────────────────────────


def _follow(store: PrivateStore, state: State, view: InsideRefs) -> State:
    """Outside, HEAD and the index go where the agent is. On a branch that is not outside, HEAD is
    the commit itself."""
    head = view.head if "HEAD" not in state.refused else ""
    on = view.on.removeprefix(HEADS) if view.on.startswith(HEADS) else ""
    state = replace(state, head=head or state.head, on=on)
    if not head or state.indexed == f"{head} {on}" or not store.admin.is_dir():
        return state
    checkout = Checkout(store.root, store.admin)
    is_outside = is_own(view.on, state) and resolve(store.repo, [view.on])[view.on] == head
    if is_outside:
        git(store.repo, "symbolic-ref", "-m", MESSAGE, "HEAD", view.on, at=checkout)
    elif view.on != f"{HEADS}{state.branch}":
        git(store.repo, "update-ref", "--no-deref", "-m", MESSAGE, "HEAD", head, at=checkout)
    else:
        return state  # diverged: neither moves
    if not write_index(store, checkout, head):
        return state
    return replace(state, indexed=f"{head} {on}")


# ── telling ──────────────────────────────────────────────────────────────────


def _news(before: State, state: State) -> tuple[str, ...]:
    news = [
        f"{name} was not brought over: {why}"
        for name, why in state.refused.items()
        if before.refused.get(name) != why
    ]
    if state.diverged and not before.diverged:
        there = f"{OUTSIDE}{state.branch}" if state.diverged != "deleted" else "nowhere"
        news.append(
            f"{state.branch} diverged: it was changed outside as well, and stays there as it is"
            f" (the other side: {there}; merge or rebase, then it moves again)"
        )
    return tuple(news)
