"""An agent: its identity, as `sessions/<name>/session.json` keeps it and the API shows it.

Pure. Live handles (sockets, tasks) are the hub's; secrets lie in files of their own.
"""

from typing import Literal

from pydantic import Field

from bullpen.model.role import Budget, Heartbeat
from bullpen.model.state import Value


class Place(Value):
    """The worktree that an agent works in."""

    name: str
    repo: str
    path: str


class Agent(Value):
    """One named instance, and its present or last run."""

    name: str
    run: str  # changes with every start; tells one life of a name from the next
    role: str = ""
    pod: str = ""
    parent: str = ""
    kind: Literal["interactive", "headless"] = "interactive"
    engine: str = "command"
    model: str = ""
    engine_session: str = ""  # the engine's conversation; changes when the person clears it
    state_files: str = ""  # the directory where the engine's program writes what it does
    birth_branch: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    is_sandboxed: bool = False
    tunnel: tuple[str, ...] = ()  # where the hub leads it to, when its sandbox has no network
    message_socket: str = ""  # where the engine's program listens for messages
    deliver: Literal["", "lines"] = ""  # messages are typed to it as lines
    cwd: str
    is_trusted: bool = False  # whether settings and hooks of its repository count
    worktree: Place | None = None
    command: tuple[str, ...] = Field(min_length=1)
    added: tuple[str, ...] = ()  # of the command, what the person added
    overrides: tuple[str, ...] = ()
    heartbeat: Heartbeat | None = None
    budget: Budget = Budget()
    pod_budget: Budget = Budget()
    created: str
    token_hash: str = ""  # of the token in its environment; a hash of 256 random bits tells nothing
