"""Which repository a director's memory, clone and requests belong to. Pure.

Issue 12 of one repository is not issue 12 of another: what is remembered of the one must never be
said at the other, as it would be if a person changed `repo` or `server` in the director's file.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from bullpen.directors.forge.work import ForgeMemory
from bullpen.errors import BullpenError, Kind


@dataclass(frozen=True)
class Origin:
    """One repository of one forge. `standard` is the server that the forge has if none is named."""

    type: str
    server: str
    repo: str
    standard: str

    def __str__(self) -> str:
        return f"{self.type} {self.server} {self.repo}"

    def clone(self, projects: Path) -> Path:
        """`owner/name` there; with the server before it if that is not GitHub's own. No owner on
        GitHub has a dot, and every server's directory has one."""
        parts = self.repo.split("/")
        if self.type == "github" and self.server == self.standard:
            return projects.joinpath(*parts)
        name = re.sub(r"[^A-Za-z0-9.-]+", "_", self.server.partition("://")[2])
        return projects.joinpath(name if "." in name else f"{name}.", *parts)

    def bind(self, memory: ForgeMemory, file: Path) -> ForgeMemory:
        """The memory as that of this repository; raises if it is another's. One that holds nothing
        is nobody's: the first address may have been a slip."""
        if memory.origin in ("", str(self)) or memory == ForgeMemory(origin=memory.origin):
            return memory.model_copy(update={"origin": str(self)})
        raise BullpenError(
            f"{file} is about {memory.origin}, and not about {self}",
            hint=f"give {self.repo} a director of its own, or move that file away to begin anew; if"
            f' the repository was only renamed or moved, write "{self}" as its origin',
            kind=Kind.CONFLICT,
        )
