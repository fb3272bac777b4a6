"""The private gits of sandboxed agents, as the hub uses them: which is whose, and what is known.

Synchronous; called in threads by `agents/private_gits`, which decides when.
`worktrees/private/bring_over` does the work, `sandboxes/inside` the looking.
"""

import logging
from pathlib import Path

from bullpen.errors import BullpenError
from bullpen.hub.sandbox.policy import find_checkout
from bullpen.model.agent import Agent
from bullpen.sandboxes.inside import StoreSandbox, bring_over_store
from bullpen.worktrees.changes import VerifiedCheckout
from bullpen.worktrees.private.bring_over import BroughtOver
from bullpen.worktrees.private.refresh import refresh
from bullpen.worktrees.private.store import (
    PrivateStore,
    State,
    can_have_store,
    find_recorded,
    load_state,
    store_of,
)
from bullpen.worktrees.private.work import clear

log = logging.getLogger("bullpen.hub")


def find_store(home: Path, agent: Agent) -> PrivateStore | None:
    """The store that an agent in a terminal works with; None if it has none. From git's own
    records: what lies in the tree may be the agent's."""
    if not agent.is_sandboxed:
        return None
    try:
        if agent.worktree is None:
            return store_at(find_checkout(Path(agent.cwd), home))
        store = find_recorded(Path(agent.worktree.repo), Path(agent.worktree.path))
        return store if store is not None and store.exists else None
    except (OSError, BullpenError) as error:  # a directory that is gone, or nobody may look into
        log.warning("cannot look for a private git", extra={"why": str(error)})
        return None


def store_at(checkout: VerifiedCheckout | None) -> PrivateStore | None:
    """The store of a checkout; None if it has none."""
    if checkout is None or checkout.is_main:
        return None
    store = store_of(checkout.repo.common_dir, checkout.repo.git_dir, checkout.root)
    return store if store.exists else None


def why_read_only(agent: Agent) -> tuple[str, ...]:
    """What to tell of an agent that could have a git of its own in another repository."""
    if agent.worktree is None or can_have_store(Path(agent.worktree.repo)):
        return ()
    return (
        "git is read-only for it: its repository does not keep refs in files"
        " (extensions.refStorage), which a git of its own needs",
    )


def find_state(store: PrivateStore) -> State | None:
    """What is known of it; None if that cannot be read."""
    try:
        return load_state(store)
    except BullpenError as error:
        log.warning("cannot read a private git", extra={"why": error.message})
        return None


def finish(store: PrivateStore) -> BroughtOver | None:
    """Its agent has ended: bring everything over, and clear it if nothing is missing outside."""
    outcome = bring_over_store(store, has_ended=True)
    if outcome is not None:
        clear(store, StoreSandbox(store))
    return outcome


def catch_up(store: PrivateStore) -> BroughtOver | None:
    """A turn has ended: bring over what it made, and tell it what happened outside."""
    outcome = bring_over_store(store)
    if outcome is not None:
        refresh(store, StoreSandbox(store))
    return outcome
