"""An agent: its identity, as `sessions/<name>/session.json` stores it and the API shows it.

Pure. Live handles (sockets, tasks) are in the hub's registry; secrets are in files of their own.
"""

from typing import Literal

from pydantic import AliasChoices, Field

from bullpen.model.rights import Rights
from bullpen.model.role import Budget, Heartbeat, OrphansRule, RestartRule
from bullpen.model.value import Value

KindName = Literal["interactive", "headless"]  # in a terminal; a task agent


class WorktreeRef(Value):
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
    parent: str = ""  # of another machine: `host/agent`
    order: str = ""  # by which that one's hub has it started; else empty
    levels_above: int = 0  # agents above it that are on other machines
    kind: KindName = "interactive"
    engine: str = "command"
    model: str = ""
    # The engine's own; changes when the person clears it. Files and the API call it as before.
    conversation: str = Field(
        default="",
        validation_alias=AliasChoices("engine_session", "conversation"),
        serialization_alias="engine_session",
    )
    state_files: str = ""  # the directory where the engine's program writes what it does
    birth_branch: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    is_sandboxed: bool = False
    tunnel: tuple[str, ...] = ()  # where the hub leads it to, when its sandbox has no network
    message_socket: str = ""  # where the engine's program listens for messages
    deliver: Literal["", "lines", "lines-from-agents"] = ""  # messages are typed to it as lines
    cwd: str
    real_cwd: str = ""  # without links, when it was launched; of an agent in a worktree empty
    is_trusted: bool = False  # whether settings and hooks of its repository count
    not_used: tuple[str, ...] = ()  # what its repository brings, and nobody trusts
    not_granted: tuple[str, ...] = ()  # what its role gives, and its parent may not
    worktree: WorktreeRef | None = None
    command: tuple[str, ...] = ()  # of a task agent empty: each task has its own
    added: tuple[str, ...] = ()  # of the command, what the person added
    overrides: tuple[str, ...] = ()
    heartbeat: Heartbeat | None = None
    restart: RestartRule = "never"
    orphans: OrphansRule = "adopt"  # what becomes of its children when it ends
    ceiling: Rights | None = None  # what it may do at most: another agent started it
    budget: Budget = Budget()
    pod_budget: Budget = Budget()
    created: str
    token_hash: str = ""  # of the token in its environment; a hash of 256 random bits tells nothing

    @property
    def takes_tasks(self) -> bool:
        """Whether it is a task agent; else it works in a terminal."""
        return self.kind == "headless"
