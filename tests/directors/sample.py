"""A whole director in a few lines: it copies every file of `in/` to `out/`, each as one more line
of `out/<name>`, which is a deed that shows when it is done twice.

A file whose name begins with `bad` cannot be copied; `busy` can from the third try on.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from bullpen.directors.failures import ActionError, Verdict
from bullpen.directors.loop import Loop, checkpoint_type
from bullpen.directors.memory import Action, MemoryFile
from bullpen.errors import BullpenError, Kind
from bullpen.model.value import Value


class Copy(Action):
    kind: Literal["copy"] = "copy"
    text: str


class Copied(Value):
    """The memory."""

    copied: tuple[str, ...] = ()
    given_up: dict[str, str] = Field(default_factory=dict)


class CopyRules:
    memory_type = Copied
    action_type = Copy

    def __init__(self, directory: Path) -> None:
        self.inbox, self.out = directory / "in", directory / "out"

    async def observe(self, memory: Copied) -> dict[str, str]:
        if (self.inbox / "away").exists():
            raise BullpenError("the inbox is away", kind=Kind.UNAVAILABLE)
        return {path.name: path.read_text() for path in sorted(self.inbox.iterdir())}

    def plan(self, snapshot: dict[str, str], memory: Copied) -> Sequence[Copy]:
        return [
            Copy(key=f"copy {name}", subject=name, text=text)
            for name, text in snapshot.items()
            if name not in memory.copied and name not in memory.given_up
        ]

    async def act(self, action: Copy) -> str:
        if action.subject.startswith("bad"):
            raise BullpenError(f"{action.subject} is bad")
        if action.subject.startswith("locked") and not (self.out / "unlocked").exists():
            raise ActionError("it is locked", Verdict.PERSON, hint="unlock it")
        with (self.out / action.subject).open("a") as file:
            await asyncio.to_thread(file.write, action.text + "\n")
        return action.subject

    async def resume(self, action: Copy) -> str | None:
        return action.subject if (self.out / action.subject).exists() else None

    def remember(self, memory: Copied, action: Copy, outcome: str) -> Copied:
        return Copied(copied=(*memory.copied, outcome), given_up=memory.given_up)

    def give_up(self, memory: Copied, action: Copy, reason: str) -> Copied:
        return Copied(copied=memory.copied, given_up={**memory.given_up, action.subject: reason})

    def pause_seconds(self, memory: Copied) -> float:
        return 1.0


def make_directories(directory: Path) -> None:
    for name in ("in", "out", "memory"):
        (directory / name).mkdir(parents=True, exist_ok=True)


def memory_file(directory: Path, rules: CopyRules) -> MemoryFile[Copied, Copy]:
    return MemoryFile(directory / "memory" / "memory.json", checkpoint_type(rules))


def copy_loop(directory: Path) -> Loop[dict[str, str], Copied, Copy, str]:
    rules = CopyRules(directory)
    return Loop(rules, memory_file(directory, rules), tell=print)
