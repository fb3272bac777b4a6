"""The files of agents that take tasks, while they run: what they say, and another in their place.

A file is checked before it is written. Values of variables are shown to nobody, so a file that
comes back keeps those that it does not name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen.errors import BullpenError, Kind
from bullpen.home.agent_files import list_agent_files, write_agent_file
from bullpen.home.paths import Home
from bullpen.hub.tasks import run_plan
from bullpen.model.agent import Agent
from bullpen.model.agent_file import AgentFile

# Looked at when it starts; everything else at each task.
NEEDS_RESTART = frozenset({"port", "role", "labels"})


@dataclass(frozen=True)
class Configured:
    """A file that was written: which of its changes hold from the next task on, and which from the
    next start."""

    file: AgentFile
    live: tuple[str, ...]
    restart: tuple[str, ...]
    drops_comments: bool


def load(home: Home, agent: Agent) -> tuple[AgentFile, bool]:
    """What its file says, and whether it has one. Reads the disk."""
    return run_plan.load_worker(home, agent).file, agent.name in list_agent_files(home)


def rewrite(home: Home, agent: Agent, fields: Mapping[str, Any]) -> Configured:
    """Another file in place of the agent's. Blocks."""
    try:
        before: AgentFile | None = load(home, agent)[0]
    except BullpenError:
        before = None  # this may be the one who mends it
    path = home.agents / f"{agent.name}.yaml"
    had_comments = _has_comments(path)
    env = merge_variables(fields.get("env"), before.env if before else None)
    after = write_agent_file(home, agent.name, {**fields, "env": env})
    changed = [
        key
        for key in AgentFile.model_fields
        if before is None or getattr(before, key) != getattr(after, key)
    ]
    return Configured(
        after,
        live=tuple(key for key in changed if key not in NEEDS_RESTART),
        restart=tuple(key for key in changed if key in NEEDS_RESTART),
        drops_comments=had_comments and not _has_comments(path),
    )


def shown_config(file: AgentFile) -> dict[str, Any]:
    """A file with what it does not say filled in; of its variables the names. Of the sandbox only
    what it says: the rest is the role's, and would be the file's if it came back with a change."""
    own = file.sandbox.model_dump(mode="json", exclude_unset=True)
    return {**file.model_dump(mode="json"), "env": sorted(file.env), "sandbox": own}


def merge_variables(wanted: Any, known: Mapping[str, str] | None) -> Any:
    """The variables of a new file. Nobody is shown their values, so nobody has to send them:
    without `env` they stay, a list of names keeps those, and in an object null is what it was.
    What is none of these is left as it is, for the check of the file."""
    if wanted is None:
        wanted = None if known is None else list(known)
    if isinstance(wanted, list) and all(isinstance(name, str) for name in wanted):
        wanted = dict.fromkeys(wanted)
    is_whole = isinstance(wanted, Mapping) and None not in wanted.values()
    if known is None and not is_whole:
        raise BullpenError(
            "the agent's file cannot be read, so its variables cannot be kept",
            hint="give `env` with all its values",
            kind=Kind.CONFLICT,
        )
    if is_whole or not isinstance(wanted, Mapping):
        return wanted
    known = known or {}
    unknown = [name for name, value in wanted.items() if value is None and name not in known]
    if unknown:
        raise BullpenError(
            f"env: no value for {', '.join(sorted(unknown))[:200]}, and the file has none"
        )
    return {name: known[name] if value is None else value for name, value in wanted.items()}


def _has_comments(path: Path) -> bool:
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    return any(line.lstrip().startswith("#") or " #" in line for line in lines)
