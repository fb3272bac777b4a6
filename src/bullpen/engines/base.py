"""What an engine is: the one module that knows one agent program.

Engines decide, they do not act: they turn a start into a command line, and what their
program reports into observations. The hub does the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bullpen.model.role import Role
from bullpen.model.state import Blocked, Idle, State, Told, Working


@dataclass(frozen=True)
class Start:
    """What one start asks for."""

    role: Role | None  # None: a program held as it is
    words: tuple[str, ...]
    prompt: str = ""
    resume: bool = False


class Engine(Protocol):
    """One agent program."""

    name: str
    # What is not known of a program that has said nothing; empty when it will say so itself.
    missing: str

    def argv(self, start: Start) -> tuple[str, ...]:
        """The command line; refuses what the program cannot do."""
        ...

    def first_input(self, start: Start) -> bytes:
        """What is typed to it once it runs."""
        ...

    def observe(self, hook: Mapping[str, Any], at: float) -> Told | None:
        """What a hook says of its state; None: nothing."""
        ...


def state_of_hook(event: str, tool: str) -> State | None:
    """The state that a hook of the common names proves."""
    match event:
        case "SessionStart" | "Stop" | "StopFailure":
            return Idle()
        case "UserPromptSubmit" | "PostToolUse" | "PostToolUseFailure":
            return Working()
        case "PreToolUse":
            return Working(tool=tool)
        case "PermissionRequest":
            return Blocked(on="permission", tool=tool)
        case _:
            return None


def observe_hook(hook: Mapping[str, Any], at: float) -> Told | None:
    """`observe` of every engine whose hooks have the common names and keys."""
    event, tool = str(hook.get("hook_event_name", "")), str(hook.get("tool_name", ""))[:80]
    state = state_of_hook(event, tool)
    if state is None:
        return None
    return Told(at=at, source=f"hook {event}", says=tool or "received", state=state)
