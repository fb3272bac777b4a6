"""What the API answers about agents. Pure.

Made by `hub/http/agents.py` and `hub/http/pods.py`, read by `client`.
"""

from typing import Annotated

from pydantic import Field

from bullpen.model.agent import Agent
from bullpen.model.director import DirectorShown
from bullpen.model.state import Evidence, State
from bullpen.model.value import Value

# What `bullpen list` needs: all that one agent is told of another. Not its command line, which may
# hold its prompt, nor where its files and sockets are.
LISTED = frozenset(
    {
        *("name", "run", "role", "pod", "parent", "kind", "engine", "model"),
        *("birth_branch", "is_sandboxed", "created"),
    }
)


def listed_only(agent: Agent) -> Agent:
    """The agent as another agent may see it."""
    fields = {name: getattr(agent, name) for name in LISTED}
    return Agent(**fields, cwd="")


class AgentShown(Agent):
    """An agent as the API shows it: its identity and what it is doing."""

    token_hash: str = Field(default="", exclude=True)
    state: State
    words: str
    since: float
    running: bool


class AgentStarted(AgentShown):
    """An agent that was just started."""

    left_conversation: str = Field(
        description="of its last run, which this one does not go on with"
    )
    branched_from: str = Field(description="what its worktree began with; empty without one")
    branch_was_there: bool = Field(
        default=False, description="its branch is not new: it goes on with what is on it"
    )


class AgentRemoved(Value):
    """What went with an agent, and what stayed."""

    name: str
    worktree: str = Field(default="", description="its path; empty if there was none")
    branch: str = Field(default="", description="deleted: nothing was lost with it")
    branch_left: str = Field(default="", description="kept: it has commits that are nowhere else")
    unique_commits: int = Field(default=0, description="so many")
    kept: str = Field(default="", description="the safety copy of what was dropped, for 30 days")


class AgentWithUsage(AgentShown):
    """The same with what it has used, how many messages are not delivered to it, and the branch
    that it works on; `summary` is the first two for people."""

    tokens: int
    usd: float
    messages: int
    summary: str
    branch: str = Field(
        default="", description="of its worktree; of a task agent that of its current or last task"
    )
    port: int | None = Field(default=None, description="that a task agent serves at now")


class AgentList(Value):
    """All agents, session directories that cannot be read, and the directors of the home."""

    agents: tuple[AgentWithUsage, ...]
    broken: dict[str, str]
    directors: Annotated[
        tuple[DirectorShown, ...], Field(description="for the owner; those that are not stopped")
    ] = ()


class StoppedTree(Value):
    """Agents that were ended, in that order."""

    agents: tuple[AgentShown, ...]


class PodShown(Value):
    """A label, and the agents that share it."""

    pod: str
    agents: tuple[AgentShown, ...]


class Typed(Value):
    """How many bytes were taken."""

    bytes: int


class Position(Value):
    """On the screen, from 0."""

    row: int
    col: int


class Screenful(Value):
    """What the terminal shows now."""

    rows: int
    cols: int
    lines: tuple[str, ...]
    cursor: Position


class Explained(Value):
    """A state, with what it rests on."""

    state: State
    words: str
    since: float
    decided_by: str
    evidence: tuple[Evidence, ...]
    messages: int  # that are not delivered
    messages_wait: str  # why; empty if none does


class DiffCounts(Value):
    """How much two versions differ; lines of binary files are not counted."""

    files: int
    added: int
    deleted: int


class FileChange(Value):
    """One file of a patch, and how many lines of it; None: it is binary."""

    name: str
    added: int | None
    deleted: int | None


class Patch(Value):
    """What an agent has changed since its worktree was made, as unified diffs: each part by itself,
    cut at 1 MiB, which its last line says."""

    base: str = Field(description="the commit that it begins at")
    lands_in: str = Field(description="the branch that its work goes into, if it is there")
    commits: tuple[str, ...] = Field(description="their short ids and subjects, the newest of many")
    commit_count: int
    committed: str
    uncommitted: str = Field(description="of the files, new ones too")
    staged: str = Field(description="what is staged, and not so in the files")
    committed_files: tuple[FileChange, ...]
    uncommitted_files: tuple[FileChange, ...]


class ConflictingPair(Value):
    """Two branches that would conflict: of a worktree, and of another or what it was made from."""

    one: str
    other: str
    files: tuple[str, ...]


class ConflictList(Value):
    """Committed work alone; nothing is merged to find out."""

    conflicts: tuple[ConflictingPair, ...]
    compared: int = Field(description="how many pairs were looked at")


class Diff(Value):
    """How far an agent's worktree is from where it began: what is committed and what is not, apart,
    so that neither hides the other."""

    where: str = Field(
        default="",
        description="where it works, if not on its own branch: `on feature/login`, `detached`",
    )
    commits: tuple[str, ...] = Field(description="id and subject, the oldest first; the newest 200")
    commit_count: int = Field(description="of all")
    committed: DiffCounts
    uncommitted: DiffCounts = Field(description="without new files")
    uncommitted_files: tuple[str, ...] = Field(description="names, also of new and staged ones")
