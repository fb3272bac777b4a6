"""Removes an agent as a whole: its program, its session, its worktree, and its branch if nothing
would be lost with it.

Called by the route for `bullpen rm`. Looks before it stops: work that exists nowhere else is a
refusal, and the agent goes on. `gc` does the same by age, for all that have ended.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial

from bullpen import worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents import sessions
from bullpen.hub.agents.kinds import Kinds
from bullpen.hub.agents.private_gits import PrivateGits
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.stop import Stopper
from bullpen.hub.agents.worktrees import LOCK_REASON, site_of
from bullpen.hub.context import HubContext
from bullpen.hub.store.store import Store
from bullpen.model.agent import Agent, WorktreeRef
from bullpen.model.agent_shown import AgentRemoved
from bullpen.model.event import Draft
from bullpen.worktrees import WorktreeError


class Remover:
    """Removes single agents. `store_usage` writes what of it is only in memory: when the
    session is gone, nothing says any more whose it was. `end_messages` refuses what waits for one:
    the next of its name is another agent. `cancel_landings` takes out what of it waits to land; if
    a hub is killed before, the next one does it."""

    def __init__(
        self,
        context: HubContext,
        store: Store,
        registry: Registry,
        stopper: Stopper,
        kinds: Kinds,
        private_gits: PrivateGits,
        store_usage: Callable[[], Awaitable[None]],
        end_messages: Callable[[str], Awaitable[None]],
        cancel_landings: Callable[[str], Awaitable[None]],
    ) -> None:
        self._context = context
        self._home = context.home
        self._store = store
        self._registry = registry
        self._stopper = stopper
        self._kinds = kinds
        self._private_gits = private_gits
        self._store_usage = store_usage
        self._end_messages = end_messages
        self._cancel_landings = cancel_landings

    async def remove(
        self, name: str, grace: float | None, keep_branch: bool = False, discard: bool = False
    ) -> AgentRemoved:
        """Stop it and remove all of it, or refuse. A branch that is not merged stays always.
        `discard`: what is not committed is no reason to refuse; a safety copy has it."""
        live = self._registry.get(name)
        await self.plan(name, keep_branch, discard)
        await self._stopper.stop(name, grace)
        async with live.lock:
            if self._registry.find(name) is not live or live.is_running:
                raise BullpenError(f"{name} was started again", kind=Kind.CONFLICT)
            return await self._remove(live, keep_branch, discard)

    async def plan(
        self, name: str, keep_branch: bool = False, discard: bool = False
    ) -> AgentRemoved:
        """What `remove` would do, as things stand, or the same refusal. Stops nothing."""
        live = self._registry.get(name)
        await self._private_gits.bring_over(live)
        own_lock = LOCK_REASON.format(name)
        plan_tree = partial(worktrees.plan_removal, own_lock=own_lock)
        look = partial(self._end_tree, plan_tree, live.agent, keep_branch, discard)
        return await self._context.trees.run(name, look)

    def _refuse_kept(self, agent: Agent) -> None:
        why = self._kinds[agent.kind].reason_to_keep(agent)
        if why:
            raise BullpenError(f"{agent.name} is not removed: {why}", kind=Kind.CONFLICT)

    async def _remove(self, live: LiveAgent, keep_branch: bool, discard: bool) -> AgentRemoved:
        agent = live.agent
        remove_tree = partial(self._remove_tree, agent, keep_branch, discard)
        removed = await self._context.trees.run(agent.name, remove_tree)
        if removed.worktree:
            data = {"path": removed.worktree, "branch": agent.birth_branch}
            await self._store.append(Draft(time.time(), "worktree.removed", agent.name, data))
        await self._store_usage()
        await asyncio.to_thread(sessions.remove, self._home, agent.name)
        try:
            await self._end_messages(agent.name)  # after a crash before it, the next hub does it
        finally:
            # Last: whoever starts one of that name finds neither session nor messages.
            self._registry.drop(agent.name)
        await self._cancel_landings(agent.name)
        return removed

    def _remove_tree(self, agent: Agent, keep_branch: bool, discard: bool) -> AgentRemoved:
        """What it did at its end counts: it is looked at again."""
        return self._end_tree(worktrees.remove, agent, keep_branch, discard)

    def _end_tree(
        self, end: Callable[..., worktrees.Removed], agent: Agent, keep_branch: bool, discard: bool
    ) -> AgentRemoved:
        self._refuse_kept(agent)
        tree = _find_tree(agent)
        if tree is None:
            return AgentRemoved(name=agent.name)
        try:
            removed = end(self._site(tree), tree.name, force=discard, delete_branch=not keep_branch)
        except WorktreeError as error:
            raise _refusal(agent.name, error) from error
        return AgentRemoved(
            name=agent.name,
            worktree=tree.path if removed.existed else "",
            branch=removed.branch,
            branch_left=removed.branch_left,
            unique_commits=removed.unique_commits,
            kept=removed.kept,
        )

    def _site(self, tree: WorktreeRef) -> worktrees.Site:
        return site_of(self._home, self._context.settings, tree)


def _find_tree(agent: Agent) -> WorktreeRef | None:
    """Its worktree, if it is there: its repository may be gone with it."""
    tree = agent.worktree
    return tree if tree is not None and os.path.lexists(tree.path) else None


def _refusal(name: str, error: WorktreeError) -> BullpenError:
    """With a hint for `rm`, which forces nothing."""
    ways = {worktrees.Code.DIRTY: "commit it", worktrees.Code.LOCKED: "unlock it"}
    if error.code in ways:
        hint = f"{ways[error.code]} · to drop it: bullpen finish {name} --discard"
        return BullpenError(error.message, hint=hint, kind=error.kind, details=error.details)
    return error
