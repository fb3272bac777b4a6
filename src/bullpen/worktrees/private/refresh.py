"""Tells a private git of refs that changed outside: `git update-ref --stdin`, in its sandbox.

The old values are those of the last snapshot: what the agent changed stays its own. The branch that
it was born on is never touched here (`bring_over` decides on that one). Called by
`sandboxes/prepare` at each start, and by `hub/sandbox/private_git` after a turn or a commit of one
that runs.
"""

import os
from collections.abc import Mapping

from bullpen.files import read_plain
from bullpen.worktrees.private.look_inside import END, is_own, look
from bullpen.worktrees.private.store import (
    FILE_BYTES,
    Inside,
    PrivateStore,
    State,
    list_refs,
    load_snapshot,
    load_state,
    locked_store,
    save_snapshot,
)

ONE_BY_ONE = 200  # of refs that cannot all be moved at once
CONFIG = "config"
UPDATE = f"git update-ref --stdin && echo '{END}'"
COPY_CONFIG = f"cat >../../config.new && mv ../../config.new ../../config && echo '{END}'"


def refresh(store: PrivateStore, inside: Inside) -> None:
    """Bring refs and configuration inside up to date, as far as they are not the agent's own."""
    with locked_store(store):
        _refresh_refs(store, inside)
        _refresh_config(store, inside)


def _refresh_refs(store: PrivateStore, inside: Inside) -> None:
    snapshot = load_snapshot(store)
    outside = {ref: oid for ref, oid, _, symref in list_refs(store.repo) if not symref}
    if outside == snapshot:
        return
    known = look(inside).refs
    moves = plan_refresh(snapshot, outside, known, load_state(store))
    done = moves if _update(inside, moves) else _update_each(inside, moves)
    kept = {ref: snapshot.get(ref, "") for ref in moves if ref not in done}
    merged = {**outside, **kept}
    save_snapshot(store, {ref: oid for ref, oid in merged.items() if oid})


def plan_refresh(
    snapshot: Mapping[str, str], outside: Mapping[str, str], inside: Mapping[str, str], state: State
) -> dict[str, tuple[str, str]]:
    """New and old id by ref, each empty where there is none. Pure."""
    return {
        ref: (outside.get(ref, ""), snapshot.get(ref, ""))
        for ref in {**snapshot, **outside}
        if outside.get(ref) != snapshot.get(ref)
        and inside.get(ref, "") == snapshot.get(ref, "")
        and not (is_own(ref, state) and ref in state.brought)
    }


def to_line(ref: str, new: str, old: str) -> str:
    """For `git update-ref --stdin`. Pure."""
    if not new:
        return f"delete {ref} {old}\n"
    return f"update {ref} {new} {old or '0' * len(new)}\n"


def _update(inside: Inside, moves: Mapping[str, tuple[str, str]]) -> bool:
    lines = "".join(to_line(ref, *ids) for ref, ids in moves.items())
    return not lines or END in inside.run(UPDATE, stdin=os.fsencode(lines)).text


def _update_each(
    inside: Inside, moves: Mapping[str, tuple[str, str]]
) -> dict[str, tuple[str, str]]:
    """The agent has moved one meanwhile, or made `a` where there is `a/b` outside now."""
    return {
        ref: ids for ref, ids in list(moves.items())[:ONE_BY_ONE] if _update(inside, {ref: ids})
    }


def _refresh_config(store: PrivateStore, inside: Inside) -> None:
    """What the agent has set lasts until the repository's own configuration is another one."""
    copy = store.directory / CONFIG
    content = read_plain(store.common / CONFIG, FILE_BYTES)
    if copy.exists() and copy.read_bytes() == content:
        return
    if END in inside.run(COPY_CONFIG, stdin=content).text:
        copy.write_bytes(content)
