"""What a hub tells of the children that agents of other machines started here."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from bullpen.hub.fleet_children.guests import GuestChildren
from bullpen.model.agent import WorktreeRef
from bullpen.model.child_letter import Birth
from bullpen.model.fleet_child import GuestChild
from bullpen.model.parcel import Parcel
from bullpen.model.rights import Rights
from tests.hub.parts import Parts, in_parts

COMMIT = "1" * 40


def guest(name: str) -> GuestChild:
    parcel = Parcel(host="h2", id="p", pieces=1, bytes=1, sha256="0" * 64, commit=COMMIT)
    birth = Birth(
        id="0" * 32,
        at=1.0,
        parent="lead",
        depth=1,
        branch="lead.kid",
        role="coder",
        task="x",
        ceiling=Rights(),
        repo_name="shop",
        parcel=parcel,
    )
    return GuestChild(host="h2", birth=birth, state="started", name=name, parent="lead")


def test_l4_what_a_hub_cut_off_when_it_left_is_no_loss_of_commits() -> None:
    """The next hub packs them, and tells its parent then."""

    async def story(parts: Parts) -> None:
        hub = parts.hub
        unused: Any = None
        guests = GuestChildren(
            hub.context,
            parts.registry,
            hub.child_rows,
            *[unused] * 5,
            SimpleNamespace(bring_over=lambda live: asyncio.sleep(0)),  # type: ignore[arg-type]
            unused,
        )
        tree = WorktreeRef(name="kid", repo="/nowhere/.git", path="/nowhere/kid")
        kid = parts.agent("kid", worktree=tree)
        server: Any = SimpleNamespace(host="h1")
        told = await guests._pack(server, guest("kid"), kid)
        assert "its commits stay on h1" in told["problem"]
        hub.context.trees.leave()
        with pytest.raises(asyncio.CancelledError):
            await guests._pack(server, guest("kid"), kid)

    in_parts(story)
