"""Claude Code's configuration directory: which one an agent uses, and the few entries in it
without which an interactive start stops at a dialog.

The file `.claude.json` is shared with every running Claude Code of that directory. It is
changed only under Claude Code's own lock (a directory beside it) and by rename.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen.errors import BullpenError, Kind
from bullpen.files import write_atomically

FILE = ".claude.json"
SHARED = "claude-config/default"  # in Bullpen's home
CREDENTIALS = ".credentials.json"
LOCK_SECONDS = 15.0
# Claude Code touches its lock every few seconds; one older than this is a dead one's.
STALE_SECONDS = 12.0
LOOK_AGAIN_SECONDS = 0.01
KEY_CHARACTERS = 20


@dataclass(frozen=True)
class Config:
    """Where the configuration is. `directory` None: where Claude Code looks by itself."""

    directory: Path | None
    file: Path

    @property
    def root(self) -> Path:
        """Where everything but `.claude.json` is."""
        return self.directory or self.file.parent / ".claude"

    @property
    def sessions(self) -> Path:
        """Where a running Claude Code writes what it does."""
        return self.root / "sessions"


def choose_config(
    wanted: str | None, session: Path, home: Path, env: Mapping[str, str], person: Path
) -> Config:
    """The role's own, else the home's if somebody logged in there, else the person's."""
    if wanted == "session":
        return _in(session / "claude-config")
    if wanted:
        return _in(person / wanted[2:] if wanted.startswith("~/") else home / wanted)
    shared = home / SHARED
    if (shared / CREDENTIALS).exists():
        return _in(shared)
    if env.get("CLAUDE_CONFIG_DIR"):
        return _in(Path(env["CLAUDE_CONFIG_DIR"]))
    return Config(None, person / FILE)


def _in(directory: Path) -> Config:
    return Config(directory, directory / FILE)


def has_conversation(config: Config, id: str) -> bool:
    """Whether there is anything to resume: one that was killed early in its first turn left a
    file without a prompt in it, which Claude Code refuses to resume."""
    for file in config.root.glob(f"projects/*/{id}.jsonl"):
        with file.open("rb") as lines:
            return any(_is_prompt(line) for line in lines)
    return False


def _is_prompt(line: bytes) -> bool:
    try:
        return b'"user"' in line and json.loads(line).get("type") == "user"
    except (ValueError, AttributeError):
        return False  # the end of a file whose writer was killed


def make_ready(config: Config, cwd: str, api_key: str) -> None:
    """What an interactive start in that directory needs, so that it shows no dialog."""
    config.sessions.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(config.file):
        before = _read(config.file)
        after = ready(before, cwd, api_key)
        if after != before:
            write_atomically(config.file, json.dumps(after, indent=2), mode=0o600)


def ready(found: dict[str, Any], cwd: str, api_key: str) -> dict[str, Any]:
    """The file's content with the entries that are missing; nothing else changes. Pure."""
    projects = dict(found.get("projects") or {})
    projects[cwd] = {**(projects.get(cwd) or {}), "hasTrustDialogAccepted": True}
    after = {
        **found,
        "hasCompletedOnboarding": True,
        "hasSeenAutoDefaultNudge": True,
        "projects": projects,
    }
    if api_key:
        answers = dict(found.get("customApiKeyResponses") or {})
        approved = list(answers.get("approved") or [])
        tail = api_key[-KEY_CHARACTERS:]
        if tail not in approved:
            approved.append(tail)
        after["customApiKeyResponses"] = {
            **answers,
            "approved": approved,
            "rejected": [each for each in answers.get("rejected") or [] if each != tail],
        }
    return after


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise BullpenError(
            f"{file} is not JSON: {error}", hint="mend it first", kind=Kind.CONFLICT
        ) from error
    if not isinstance(found, dict):
        raise BullpenError(f"{file} is not a JSON object", hint="mend it", kind=Kind.CONFLICT)
    return found


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    lock = Path(f"{file}.lock")
    deadline = time.monotonic() + LOCK_SECONDS
    while not _take(lock):
        if time.monotonic() > deadline:
            raise BullpenError(
                f"{file} is locked by another Claude Code",
                hint=f"if none runs: rmdir {lock}",
                kind=Kind.UNAVAILABLE,
            )
        time.sleep(LOOK_AGAIN_SECONDS)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            lock.rmdir()


def _take(lock: Path) -> bool:
    try:
        lock.mkdir()
    except FileExistsError:
        with contextlib.suppress(OSError):
            if time.time() - lock.stat().st_mtime > STALE_SECONDS:
                os.rmdir(lock)  # noqa: PTH106
        return False
    return True
