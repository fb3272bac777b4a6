"""A role: the YAML file about one kind of agent, as a type.

Pure. Rules between fields are validators of the later field, not of the whole model: those do
not run as long as any other field is wrong.
"""

import re
import shlex
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Strict,
    Tag,
    ValidationInfo,
    field_validator,
)

from bullpen.model.fields import (
    Block,
    Labels,
    ModelName,
    PositiveDuration,
    Revision,
    RoleName,
    Text,
    Texts,
    Word,
    matching,
    refuse,
)
from bullpen.suggest import did_you_mean

Engine = Literal["claude", "gemini", "codex", "command"]

# What the programs themselves take today.
PERMISSION_MODES = {
    "claude": (
        "default",
        "manual",
        "acceptEdits",
        "auto",
        "bypassPermissions",
        "dontAsk",
        "plan",
    ),
    "gemini": ("default", "auto_edit", "plan", "yolo"),
    "codex": ("on-request", "never"),
    "command": (),
}
# Names of old versions and of other programs -> what to write for Claude.
OLD_PERMISSION_MODES = {
    "delegate": "manual, with capabilities: [delegate]",
    "ask": "manual",
    "normal": "manual",
    "autoEdit": "acceptEdits",
    "auto_edit": "acceptEdits",
    "autoAccept": "acceptEdits",
    "bypass": "bypassPermissions",
    "yolo": "bypassPermissions",
    "skip": "bypassPermissions",
    "deny": "dontAsk",
    "readonly": "plan",
}

HOOK_EVENTS = (
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "Notification",
    "UserPromptSubmit",
    "UserPromptExpansion",
    "SessionStart",
    "SessionEnd",
    "Stop",
    "StopFailure",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "PreModelSwitch",
    "PostModelSwitch",
    "PermissionRequest",
    "PermissionDenied",
    "Setup",
    "TeammateIdle",
    "TaskCreated",
    "TaskCompleted",
    "Elicitation",
    "ElicitationResult",
    "ConfigChange",
    "WorktreeCreate",
    "WorktreeRemove",
    "InstructionsLoaded",
    "CwdChanged",
    "FileChanged",
    "DirectoryAdded",
    "MessageDisplay",
)

RULE = re.compile(r"([A-Za-z][A-Za-z0-9_]*)(\(.+\))?")
MCP_RULE = re.compile(r"mcp__[A-Za-z0-9_.-]+(?:__\*)?")
# Written in another case a rule matches nothing, and a deny rule would be open. `glob` is
# not among them: it is another engine's own name.
TOOLS = {
    tool.lower(): tool
    for tool in (
        "Bash",
        "Read",
        "Edit",
        "Write",
        "MultiEdit",
        "NotebookEdit",
        "Grep",
        "WebFetch",
        "WebSearch",
        "Task",
        "Agent",
        "TodoWrite",
    )
}


def _check_rule(rule: str) -> str:
    match = RULE.fullmatch(rule)
    tool = match[1] if match else ""
    if rule.startswith("mcp__"):
        if MCP_RULE.fullmatch(rule) is None:
            raise ValueError(f'"{rule}" is no rule · mcp__server, mcp__server__tool')
    elif match is None:
        raise ValueError(f'"{rule}" is no rule · Tool or Tool(pattern), e.g. Bash(git push:*)')
    elif TOOLS.get(tool.lower(), tool) != tool:
        raise ValueError(f'"{tool}" is no tool · did you mean {TOOLS[tool.lower()]}?')
    return rule


Rules = Annotated[tuple[Annotated[str, AfterValidator(_check_rule)], ...], Strict(False)]


REVIEWER_MODEL = "haiku"


def _reviewer(name: object) -> object:
    return REVIEWER_MODEL if name == "" else name


class ReviewerSettings(Block):
    """The model that judges what no rule decides; on when it has instructions."""

    enabled: bool | None = None
    instructions: str | None = Field(default=None, validate_default=True)
    model: Annotated[Word, BeforeValidator(_reviewer)] = REVIEWER_MODEL

    @property
    def is_on(self) -> bool:
        return bool((self.instructions or "").strip()) and self.enabled is not False

    @field_validator("instructions")
    @classmethod
    def _needed_when_on(cls, text: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("enabled") and not (text or "").strip():
            raise ValueError("required with enabled: true · what to allow, deny and ask")
        return text


class Permissions(Block):
    """What the engine allows and denies by itself, and who judges the rest."""

    allow: Rules = ()
    deny: Rules = ()
    agent: ReviewerSettings = ReviewerSettings()


class Heartbeat(Block):
    """A message to an agent that has been idle for a while."""

    idle_timeout: PositiveDuration | None = None
    message: Text = "You have been idle for a while. Go on, or say what you wait for."
    condition: Text | None = None

    @field_validator("message", "condition")
    @classmethod
    def _needs_time(cls, text: str | None, info: ValidationInfo) -> str | None:
        if "idle_timeout" in info.data and info.data["idle_timeout"] is None:
            raise ValueError("needs heartbeat.idle_timeout, e.g. 10m")
        return text


def _check_glob(glob: str) -> str:
    if glob.startswith(("/", "~")) or ".." in glob.split("/"):
        raise ValueError(f'"{glob}" leaves the repository · write a path inside it')
    return glob


Globs = Annotated[tuple[Annotated[Text, AfterValidator(_check_glob)], ...], Strict(False)]


class Worktree(Block):
    """Whether and how the agent gets a checkout of its own."""

    enabled: bool = False
    branch_from: Revision | None = None
    use_detached_head: bool = False
    copy_globs: Globs = Field(default=(), alias="copy")  # `copy` is a method of every model
    setup: Text | None = None
    ports: Annotated[int, Field(ge=0, le=100)] = 0  # so many of its own


class SandboxSettings(Block):
    """What the agent can reach; `enabled` unset: on for tasks, off in a terminal."""

    enabled: bool | None = None
    allow_network: bool = True
    read_only_paths: Texts = ()
    read_write_paths: Texts = ()
    ssh_agent: bool = False
    processes: Annotated[int, Field(ge=16, le=1 << 20)] = 1024
    memory_mb: Annotated[int, Field(ge=64)] | None = None


class Budget(Block):
    """Limits that are enforced outside the agent."""

    tokens: Annotated[int, Field(gt=0)] | None = None
    usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    minutes: Annotated[int, Field(gt=0)] | None = None


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ShortHook(Block):
    """The short way to write a command hook."""

    matcher: str = ""
    command: Text
    timeout: Seconds | None = None


class EngineHook(Block):
    """One action in the engine's own form; other keys are passed to the engine unchecked."""

    model_config = ConfigDict(extra="allow")

    type: Literal["command", "http", "prompt", "agent", "mcp_tool"]
    timeout: Seconds | None = None


class EngineHooks(Block):
    """The engine's own form: a matcher and its actions."""

    matcher: str = ""
    hooks: Annotated[tuple[EngineHook, ...], Strict(False)]


def _form(value: object) -> str:
    own = isinstance(value, EngineHooks) or (isinstance(value, dict) and "hooks" in value)
    return "own" if own else "short"


Hook = Annotated[
    Annotated[ShortHook, Tag("short")] | Annotated[EngineHooks, Tag("own")], Discriminator(_form)
]


def _check_setting(key: str) -> str:
    if key in ("hooks", "permissions"):
        raise ValueError(f"not inside settings · use the role's own field: {key}")
    return key


def _check_variable(name: str) -> str:
    if name.startswith("BULLPEN_"):
        raise ValueError("BULLPEN_* variables are set by Bullpen itself")
    return name


Variable = Annotated[
    str,
    matching(r"[A-Za-z_][A-Za-z0-9_]*", "a variable is letters, digits and _"),
    AfterValidator(_check_variable),
]


def _words(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


RestartRule = Literal["always", "on-failure", "never"]  # what `hub/revive.py` does by itself


OrphansRule = Literal["keep", "stop", "adopt"]  # what `hub/tree/orphans.py` does with children


class Role(Block):
    """One role file. The order here is the order in which people see the fields."""

    name: RoleName
    description: str = ""
    agent_type: Engine = "claude"
    command: Annotated[tuple[Text, ...], BeforeValidator(_words), Strict(False)] = Field(
        default=(), validate_default=True
    )
    deliver: Literal["lines", "lines-from-agents"] | None = None
    model: ModelName = None
    permission_mode: str | None = None
    system_prompt: Text | None = None
    instructions: Text | None = None
    root_dir: Text = "."
    claude_config_dir: Text | None = None
    permissions: Permissions = Permissions()
    heartbeat: Heartbeat = Heartbeat()
    worktree: Worktree = Worktree()
    sandbox: SandboxSettings = SandboxSettings()
    hooks: dict[str, Annotated[tuple[Hook, ...], Strict(False)]] = Field(default_factory=dict)
    settings: dict[Annotated[str, AfterValidator(_check_setting)], Any] = Field(
        default_factory=dict
    )
    env: dict[Variable, str] = Field(default_factory=dict)
    capabilities: Annotated[tuple[Literal["delegate"], ...], Strict(False)] = ()
    labels: Labels = Field(default_factory=dict)
    may_grant: RoleName | None = None
    restart: RestartRule = "never"
    orphans: OrphansRule = "adopt"
    max_children: Annotated[int, Field(ge=0, le=1000)] | None = None
    budget: Budget = Budget()

    @field_validator("command")
    @classmethod
    def _with_its_engine(cls, words: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        engine = info.data.get("agent_type")
        if engine == "command" and not words:
            raise ValueError("required with agent_type: command · the program to run")
        if engine not in ("command", None) and words:
            raise ValueError(f"only with agent_type: command, not {engine}")
        return words

    @field_validator("deliver")
    @classmethod
    def _for_programs(cls, deliver: str | None, info: ValidationInfo) -> str | None:
        engine = info.data.get("agent_type")
        if deliver and engine not in ("command", None):
            raise ValueError(f"only with agent_type: command, not {engine}")
        return deliver

    @field_validator("permission_mode")
    @classmethod
    def _of_the_engine(cls, mode: str | None, info: ValidationInfo) -> str | None:
        engine = info.data.get("agent_type")
        if mode is None or engine is None or mode in PERMISSION_MODES[engine]:
            return mode
        modes = PERMISSION_MODES[engine]
        if not modes:
            raise ValueError(f"agent_type: {engine} has no permission modes")
        if engine == "claude" and mode in OLD_PERMISSION_MODES:
            raise ValueError(f'"{mode}" is no mode of {engine} · use {OLD_PERMISSION_MODES[mode]}')
        near = did_you_mean(mode, modes)
        raise ValueError(f'"{mode}" is no mode of {engine}{near} · one of {", ".join(modes)}')

    @field_validator("hooks")
    @classmethod
    def _known_events(cls, hooks: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        # An event that does not exist never fires, and the engine says nothing about it.
        if info.data.get("agent_type") == "claude":
            refuse(
                ((event,), f"no such event{did_you_mean(event, HOOK_EVENTS)}")
                for event in hooks
                if event not in HOOK_EVENTS
            )
        return hooks
