"""Whether what a task committed in a git of its own is in the repository. Called by `http/tasks`.

A task is over at most a few seconds after its run; a large change may still be on its way then, and
some of it may never come. Looked at when somebody asks: the store's own state is what is true, also
for the next hub.
"""

import asyncio

from bullpen.hub.agents.private_gits import PrivateGits
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.sandbox.private_git import find_state, store_at
from bullpen.hub.tasks.rows import TaskSession
from bullpen.hub.tasks.workspaces import checkout_of
from bullpen.worktrees.private.store import PrivateStore, State


async def list_missing(
    gits: PrivateGits, agent: LiveAgent | None, session: TaskSession
) -> tuple[str, ...] | None:
    """What did not come over of the work in that session, and why; None: that is not known yet."""
    store = await asyncio.to_thread(store_at, checkout_of(session))
    if store is None:
        return ()
    state = await asyncio.to_thread(_find_final, store)
    if state is None and agent is not None:
        await gits.bring_over_store(agent, store)
        state = await asyncio.to_thread(_find_final, store)
    if state is None:
        return None if store.exists else ()  # it is taken away when all of it is outside
    return _texts(state)


def _find_final(store: PrivateStore) -> State | None:
    state = find_state(store)
    return state if state is not None and state.is_final else None


def _texts(state: State) -> tuple[str, ...]:
    texts = [f"{name}: {why}" for name, why in state.refused.items()]
    if state.diverged:
        texts.append(f"{state.branch}: it was changed outside as well")
    return tuple(texts)
