"""The file `<home>/agents/<name>.yaml` of a task agent. Pure.

A key that is set here wins over the role; a missing one is taken from the role. Whether the role
exists and the port is free is checked by `home/agent_files.py`.
"""

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from bullpen.model.fields import Block, Labels, ModelName, PositiveDuration, RoleName, Text
from bullpen.model.role import Role, SandboxSettings, Variable

Port = Annotated[int, Field(ge=1, le=65535)]
DEFAULT_MODEL = "sonnet"


class TaskRunSettings(Block):
    """How a task runs. `model` unset: the role's, and if that has none, the default."""

    model: ModelName = None
    timeout: PositiveDuration = timedelta(minutes=30)
    max_turns: Annotated[int, Field(ge=1)] = 50


class AgentFile(Block):
    """The whole file. Without a port the agent is reached through the hub only."""

    role: RoleName
    port: Port | None = None
    labels: Labels = Field(default_factory=dict)
    log_level: Literal["debug", "info", "warn", "error"] = "info"
    claude: TaskRunSettings = TaskRunSettings()
    session_dir: Text | None = None
    keep_open: bool = False
    open_timeout: PositiveDuration = timedelta(hours=1)
    max_retries: Annotated[int, Field(ge=0, le=100)] = 3
    history_limit: Annotated[int, Field(ge=1)] | None = None
    sandbox: SandboxSettings = SandboxSettings()
    env: dict[Variable, str] = Field(default_factory=dict)
    autostart: bool = False

    def apply_to(self, role: Role) -> Role:
        """The role as this agent has it."""
        sandbox = {name: getattr(self.sandbox, name) for name in self.sandbox.model_fields_set}
        changes: dict[str, Any] = {
            "model": self.claude.model or role.model or _default_model(role),
            "sandbox": role.sandbox.model_copy(update=sandbox),
            "env": {**role.env, **self.env},
            "labels": {**role.labels, **self.labels},
        }
        return role.model_copy(update=changes)


def _default_model(role: Role) -> str | None:
    # The name is Claude's; another engine chooses its own.
    return DEFAULT_MODEL if role.agent_type == "claude" else None
