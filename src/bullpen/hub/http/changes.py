"""`/agents/{name}/patch` and `/conflicts`: what agents have changed, and where it clashes."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from fastapi import APIRouter, Depends

from bullpen import worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents.worktrees import site_of
from bullpen.hub.http.guard import owner_only
from bullpen.hub.http.parameters import Name
from bullpen.hub.http.state import HubPart
from bullpen.hub.parts import Hub
from bullpen.model.agent import Agent
from bullpen.model.agent_shown import ConflictingPair, ConflictList, FileChange, Patch
from bullpen.text import printable
from bullpen.worktrees import FileCount, WorktreeError

router = APIRouter(tags=["agents"], dependencies=[Depends(owner_only)])

MOST_FILES = 200  # of one pair


@router.get("/agents/{name}/patch", response_model=Patch)
async def get_patch(hub: HubPart, name: Name) -> Any:
    """What it has changed in its worktree since that was made: committed and uncommitted work
    apart, as unified diffs."""
    live = hub.registry.get(name)
    if live.agent.worktree is None:
        raise BullpenError(f"{name} has no worktree of its own", kind=Kind.CONFLICT)
    await hub.private_gits.bring_over(live)
    return await hub.context.trees.look(name, "patch", lambda: _patch(hub, live.agent))


@router.get("/conflicts", response_model=ConflictList)
async def list_conflicts(hub: HubPart) -> Any:
    """Which worktrees of agents would conflict with each other, and with the branch that they were
    made from, file by file. Committed work only."""
    agents = {live.agent.worktree.repo: live.agent for live in hub.registry if live.agent.worktree}
    for live in hub.registry:
        if live.agent.worktree is not None and live.is_running:
            await hub.private_gits.bring_over(live)
    conflicts: list[ConflictingPair] = []
    compared = 0
    for repo, agent in agents.items():
        pairs, number = await hub.context.trees.look(
            f"repository {repo}", "conflicts", partial(_conflicts, hub, agent)
        )
        conflicts += pairs
        compared += number
    return ConflictList(conflicts=tuple(conflicts), compared=compared)


def _patch(hub: Hub, agent: Agent) -> Patch:
    assert agent.worktree is not None
    site = site_of(hub.home, hub.settings, agent.worktree)
    compared, base = worktrees.compare_worktree(site, agent.worktree.name)
    return Patch(
        base=base,
        lands_in=worktrees.base_of(site, agent.worktree.name),
        commits=tuple(map(_plain, compared.commits.subjects)),
        commit_count=compared.commits.count,
        committed=_plain(compared.committed),
        uncommitted=_plain(compared.uncommitted),
        staged=_plain(compared.staged),
        committed_files=_files(compared.committed_files),
        uncommitted_files=_files(compared.uncommitted_files),
    )


def _conflicts(hub: Hub, agent: Agent) -> tuple[list[ConflictingPair], int]:
    assert agent.worktree is not None
    try:
        site = site_of(hub.home, hub.settings, agent.worktree)
        results = worktrees.conflicts_of(site, worktrees.pairs_of(site))
    except WorktreeError:  # its repository is gone
        return [], 0
    clashes = [
        ConflictingPair(
            one=one, other=other, files=tuple(map(printable, result.files[:MOST_FILES]))
        )
        for (one, other), result in results.items()
        if result.files
    ]
    return clashes, len(results)


def _files(counts: Iterable[FileCount]) -> tuple[FileChange, ...]:
    return tuple(
        FileChange(name=printable(each.name), added=each.added, deleted=each.deleted)
        for each in counts
    )


def _plain(text: str) -> str:
    """An agent may have written bytes that are no text: JSON has none."""
    return text.encode("utf-8", "replace").decode()
