"""Claude Code's configuration directory: which one an agent uses, and the few entries in it
without which an interactive start stops at a dialog.

The file `.claude.json` is shared with every running Claude Code of that directory. It is
changed only under Claude Code's own lock (a directory beside it) and by rename.

In a sandbox it is always the agent's own, and the agent may have written anything there: no link
in it is followed, and no program outside of a sandbox uses it later.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen.engines import parse
from bullpen.engines.own_home import own_directory, real_directory, remove
from bullpen.engines.transcripts import open_file, read_lines
from bullpen.errors import BullpenError, Kind
from bullpen.files import read_plain, write_atomically
from bullpen.home.credentials import LOGINS as LOGIN_SOURCES

FILE = ".claude.json"
OWN = "claude-config"  # in the session
SANDBOXED = "claude-config.sandboxed"  # beside it: that it was written to in a sandbox
SHARED = "claude-config/default"  # in Bullpen's home
ACCEPTED = "hasTrustDialogAccepted"
BY_US = "acceptedByBullpen"  # beside it: no person said so
CREDENTIALS = ".credentials.json"
# What an agent in a sandbox could leave in its own for its next start: rules, hooks and servers.
PLANTED = (
    *("settings.json", "settings.local.json", "remote-settings.json"),
    *("agents", "commands", "plugins", "skills"),
)
MANAGED = (
    Path("/etc/claude-code/managed-settings.json"),
    Path("/Library/Application Support/ClaudeCode/managed-settings.json"),
)
LOCK_SECONDS = 15.0
# Claude Code touches its lock every few seconds; one older than this is a dead one's.
STALE_SECONDS = 12.0
LOOK_AGAIN_SECONDS = 0.01
KEY_CHARACTERS = 20
FILE_BYTES = 64 << 20
# Any of them in the environment, and Claude Code needs no file to log in.
LOGINS = (*LOGIN_SOURCES["claude"].reads, *LOGIN_SOURCES["claude"].instead)


@dataclass(frozen=True)
class Config:
    """Where the configuration is. `directory` None: where Claude Code looks by itself."""

    directory: Path | None
    file: Path
    is_sandboxed: bool = False

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
        if (session / SANDBOXED).exists():
            raise BullpenError(
                f"{session / OWN} was written to in a sandbox: outside of one, Claude Code would"
                " run what it says",
                hint=f"another claude_config_dir, or: rm -r {session / OWN} {session / SANDBOXED}",
                kind=Kind.DENIED,
            )
        return _in(session / OWN)
    if wanted:
        return _in(person / wanted[2:] if wanted.startswith("~/") else home / wanted)
    shared = home / SHARED
    if (shared / CREDENTIALS).exists():
        return _in(shared)
    if env.get("CLAUDE_CONFIG_DIR"):
        return _in(Path(env["CLAUDE_CONFIG_DIR"]))
    return Config(None, person / FILE)


def sandboxed_config(session: Path) -> Config:
    """That of an agent in a sandbox, whatever its role says."""
    return Config(session / OWN, session / OWN / FILE, is_sandboxed=True)


def check_login(
    config: Config, env: Mapping[str, str], person: Path, settings: Iterable[Mapping[str, Any]]
) -> None:
    """Refuses what would come up without a login. `settings` are those that the start uses anyway;
    in a sandbox a login has to come by them or by the environment."""
    given = [*settings, *([] if config.is_sandboxed else _settings_of(config))]
    if _names_login(env) or any(map(_logs_in, given)) or _is_logged_in(config):
        return
    own = Path(env.get("CLAUDE_CONFIG_DIR") or person / ".claude")
    is_left_out = config.is_sandboxed and (own / CREDENTIALS).exists()
    raise BullpenError(
        "Claude Code in a sandbox cannot use your own login, and there is no other"
        if is_left_out
        else "nobody is logged in to Claude Code",
        hint="bullpen auth claude · or: bullpen auth set anthropic-api-key < FILE",
        kind=Kind.UNAVAILABLE,
    )


def _names_login(env: Mapping[str, Any]) -> bool:
    return any(env.get(name) for name in LOGINS)


def _logs_in(settings: Mapping[str, Any]) -> bool:
    return bool(settings.get("apiKeyHelper")) or _names_login(parse.fields(settings.get("env")))


def _settings_of(config: Config) -> Iterator[dict[str, Any]]:
    """The person's, and those of the machine; a broken one says nothing."""
    for file in (config.root / "settings.json", *MANAGED):
        with contextlib.suppress(OSError):
            yield parse.read_fields(read_plain(file, FILE_BYTES, may_link=True))


def _is_logged_in(config: Config) -> bool:
    if (config.root / CREDENTIALS).is_file():
        return True
    if config.is_sandboxed:
        return False
    content = _read(config.file)
    # On macOS the login itself is in the key chain.
    kept = ("primaryApiKey", "oauthAccount") if sys.platform == "darwin" else ("primaryApiKey",)
    return any(content.get(name) for name in kept)


def _in(directory: Path) -> Config:
    return Config(directory, directory / FILE)


def has_conversation(config: Config, id: str) -> bool:
    """Whether there is anything to resume: one that was killed early in its first turn left a
    file without a prompt in it, which Claude Code refuses to resume."""
    for file in config.root.glob(f"projects/*/{id}.jsonl"):
        return any(_is_prompt(line) for line in read_lines(file))
    return False


def _is_prompt(line: bytes) -> bool:
    try:
        return b'"user"' in line and json.loads(line).get("type") == "user"
    except (ValueError, AttributeError, RecursionError):
        return False  # the end of a file whose writer was killed


def make_ready(config: Config, cwd: str, api_key: str) -> None:
    """What an interactive start in that directory needs, so that it shows no dialog."""
    if config.is_sandboxed:
        own_directory(config.root)
        (config.root.parent / SANDBOXED).touch(mode=0o600)
        real_directory(config.sessions)
        for name in PLANTED:
            remove(config.root / name)
        remove(_lock_of(config.file))  # runs of one agent do not overlap
    else:
        config.sessions.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(config.file):
        before = _read_own(config.file) if config.is_sandboxed else _read(config.file)
        after = ready(before, cwd, api_key)
        if after != before:
            write_atomically(config.file, json.dumps(after, indent=2), mode=0o600)


def keep_ready(config: Config, cwd: str, api_key: str) -> None:
    """Write the same again if it is gone: a Claude Code that finds our lock writes without one, and
    what it had read before."""
    content = _read(config.file)
    if ready(content, cwd, api_key) != content:
        make_ready(config, cwd, api_key)


def ready(content: dict[str, Any], cwd: str, api_key: str) -> dict[str, Any]:
    """The file's content with the entries that are missing; nothing else changes. Pure."""
    projects = dict(content.get("projects") or {})
    project = projects.get(cwd) or {}
    if project.get(ACCEPTED) is not True:
        projects[cwd] = {**project, ACCEPTED: True, BY_US: True}
    after = {
        **content,
        "hasCompletedOnboarding": True,
        "hasSeenAutoDefaultNudge": True,
        "projects": projects,
    }
    if api_key:
        answers = dict(content.get("customApiKeyResponses") or {})
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


def is_accepted(env: Mapping[str, str], person: Path, directories: Iterable[Path]) -> bool:
    """Whether the person said yes to the trust dialog of their own Claude Code in one of these."""
    try:
        content = _read(Path(env.get("CLAUDE_CONFIG_DIR") or person) / FILE)
    except BullpenError:
        return False
    projects = parse.fields(content.get("projects"))
    entries = [parse.fields(projects.get(str(directory))) for directory in directories]
    return any(project.get(ACCEPTED) is True and BY_US not in project for project in entries)


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_plain(file, FILE_BYTES, may_link=True))
    except FileNotFoundError:
        return {}
    except OSError as error:  # an agent may have put a pipe there
        raise BullpenError(
            f"cannot read {file}: {error.strerror}", hint="mend it first", kind=Kind.CONFLICT
        ) from error
    except ValueError as error:
        raise BullpenError(
            f"{file} is not JSON: {error}", hint="mend it first", kind=Kind.CONFLICT
        ) from error
    if not isinstance(content, dict):
        raise BullpenError(f"{file} is not a JSON object", hint="mend it", kind=Kind.CONFLICT)
    return content


def _read_own(file: Path) -> dict[str, Any]:
    """The same of an agent in a sandbox. What it put there in place of a file of its own would
    show it what it must not see, or keep us waiting: it begins anew."""
    opened = open_file(file, os.O_NOFOLLOW)
    content = None
    if opened is not None:
        with opened, contextlib.suppress(ValueError, RecursionError):
            content = json.loads(opened.read(FILE_BYTES))
    if not isinstance(content, dict):
        remove(file)
        return {}
    projects, answers = content.get("projects"), content.get("customApiKeyResponses")
    if not all(isinstance(each, dict | None) for each in (projects, answers)):
        return {}
    return content


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    lock = _lock_of(file)
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


def _lock_of(file: Path) -> Path:
    return Path(f"{file}.lock")


def _take(lock: Path) -> bool:
    try:
        lock.mkdir()
    except FileExistsError:
        with contextlib.suppress(OSError):
            if time.time() - lock.stat().st_mtime > STALE_SECONDS:
                os.rmdir(lock)  # noqa: PTH106
        return False
    return True
