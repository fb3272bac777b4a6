"""Which versions of the agent programs serve, and how to read what they say of theirs. Pure."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class RequiredProgram:
    """The program of one engine: the oldest that serves, and where it comes from."""

    program: str
    variable: str  # names another program
    package: str
    oldest: tuple[int, ...]

    @property
    def install(self) -> str:
        """The command that installs the newest."""
        return f"npm install -g {self.package}"


PROGRAMS = {
    "claude": RequiredProgram(
        "claude", "BULLPEN_CLAUDE_BIN", "@anthropic-ai/claude-code", (2, 1, 0)
    ),
    "gemini": RequiredProgram("gemini", "BULLPEN_GEMINI_BIN", "@google/gemini-cli", (0, 40)),
    "codex": RequiredProgram("codex", "BULLPEN_CODEX_BIN", "@openai/codex", (0, 100)),
}


def parse_version(output: str) -> tuple[int, ...] | None:
    """The first version in a program's own words: `2.1.325 (Claude Code)`, `codex-cli 0.166.0`."""
    version = re.search(r"(?<![\w.])v?(\d{1,9}(?:\.\d{1,9}){1,3})", output)
    return tuple(map(int, version[1].split("."))) if version else None


def is_enough(version: tuple[int, ...], oldest: tuple[int, ...]) -> bool:
    """Whether it serves; 0.40 and 0.40.0 are the same."""
    length = max(len(version), len(oldest))
    return _padded(version, length) >= _padded(oldest, length)


def written(version: tuple[int, ...]) -> str:
    """As people write it."""
    return ".".join(map(str, version))


def _padded(version: tuple[int, ...], length: int) -> tuple[int, ...]:
    return version + (0,) * (length - len(version))
