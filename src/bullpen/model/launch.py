"""The bodies of `POST /agents` and `POST /pods`: what a person asks for at a start. Pure."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from bullpen.model.agent import KindName

Text = Annotated[str, Field(max_length=1 << 20, pattern=r"^[^\x00]*$")]
Word = Annotated[str, Field(max_length=1 << 17, pattern=r"^[^\x00]*$")]
Size = Annotated[int, Field(ge=1, le=4096)]


class Caller(BaseModel):
    """The shell that asks: an agent starts in its directory, environment and size."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cwd: Word
    env: dict[Word, Text] = Field(default_factory=dict)
    umask: Annotated[int, Field(ge=0, le=0o777)] = 0o022
    rows: Size = 24
    cols: Size = 80


class Launch(Caller):
    """One agent to start. The same `run` asked for twice starts one agent. A headless one takes
    tasks; without a role it is what `agents/<name>.yaml` says."""

    kind: KindName = "interactive"
    run: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    role: Word | None = None
    name: Word | None = None
    pod: Word | None = None
    words: tuple[Word, ...] = ()
    overrides: tuple[Word, ...] = ()
    prompt: Text = ""
    branch: Word = ""  # of its worktree; else it has the agent's name
    resume: bool = False  # go on with the last conversation, or with this one
    conversation: Annotated[str, Field(pattern=r"^([0-9A-Za-z][0-9A-Za-z-]{7,63})?$")] = ""


class PodLaunch(Caller):
    """A pod to start. The same `run` asked for twice starts one pod."""

    template: Word
    run: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    pod: Word | None = None
    session: Word | None = None  # branches are `<prefix>/<role>-<session>`
    prompt: Text = ""
