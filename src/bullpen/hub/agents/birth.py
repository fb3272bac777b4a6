"""What an agent has from the agent that starts it, and what it may not have from it.

Used by `plan` for the children of agents. Reads what is trusted; changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bullpen.engines import Engine
from bullpen.engines.trusted import is_trusted
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.model.agent import Agent
from bullpen.model.message import LINES_FROM_AGENTS
from bullpen.model.rights import Rights, beyond
from bullpen.model.role import Role
from bullpen.worktrees import Site


@dataclass(frozen=True)
class Birth:
    """What an agent has from the agent that starts it. Without `site` it works in its parent's
    directory; else in a worktree of that repository, made from `base`, in that sub-directory;
    `lands_in`: where its work goes, if not into its parent's branch."""

    parent: Agent
    ceiling: Rights
    depth: int
    site: Site | None = None
    branch: str = ""
    base: str = ""
    below: str = "."
    lands_in: str = ""


def refuse_beyond(role: Role, birth: Birth) -> None:
    """What its parent may not give it, and what less of would be another role. A line of a shell is
    a command: an agent's task is one only if the role says so."""
    names = beyond(role, birth.ceiling)
    if names:
        parent = birth.parent
        raise BullpenError(
            f"role {role.name} has more than {parent.name} may grant: {', '.join(names)}",
            hint=f"use another role · a person can allow it: may_grant: {role.name} in the role"
            f" {parent.role}",
            kind=Kind.DENIED,
        )
    if role.deliver and role.deliver != LINES_FROM_AGENTS:
        raise BullpenError(
            f"role {role.name} takes lines of a person alone, and your task would be typed into it",
            hint=f"use another role · a person can allow it: deliver: {LINES_FROM_AGENTS}",
            kind=Kind.DENIED,
        )


def child_trusts(
    repository: tuple[Engine, Home, Path, Mapping[str, str], Path], birth: Birth
) -> bool:
    """Never where its parent does not. Of another engine, if the person's checkout is trusted."""
    if not birth.parent.is_trusted or repository[0].name == birth.parent.engine:
        return birth.parent.is_trusted
    engine, home, person, env, directory = repository
    checkout = birth.site.repo.common_dir.parent if birth.site else directory
    return is_trusted(engine, home, person, env, checkout)
