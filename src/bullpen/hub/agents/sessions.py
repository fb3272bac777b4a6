"""Session directories: an agent's identity on disk, in `sessions/<agent>/`.

Called in threads: written by `start`, `terminals`, `watch`, `intent` and `hub/tasks`, removed by
`gc`, read by `hub/adopt` and by whoever starts a program for an agent. Writes `session.json` and
`private/env` (mode 0600): what the hub has to know again after a crash. Each file is replaced as a
whole. The holder's files in the same directory are read by `holders/files`. An agent in a sandbox
may read everything here but `private/`, which has the variables of the shell that started it.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from bullpen.errors import BullpenError, Kind
from bullpen.files import flush_directory, write_atomically
from bullpen.home.paths import KILLED, PRIVATE_DIRECTORY, Home
from bullpen.hub.holders.files import is_held, read_json
from bullpen.model.agent import Agent

SESSION = "session.json"
ENVIRONMENT = f"{PRIVATE_DIRECTORY}/env"
OLD_ENVIRONMENT = "env"  # where it was before sandboxes
BEING_MADE = ".new-"
SAVED = "before-"
SAVED_FILES = (ENVIRONMENT, "exit.json", "holder.json", SESSION)


@dataclass(frozen=True)
class LaunchEnv:
    """What a start needs besides the identity, kept for restarts. `added` is of this start alone:
    credentials, the engine's variables, the role's."""

    env: dict[str, str]
    umask: int = 0o022
    rows: int = 24
    cols: int = 80
    added: dict[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> dict[str, str]:
        """The environment of the program."""
        return {**self.env, **self.added}


def create(home: Home, agent: Agent, launch_env: LaunchEnv) -> None:
    """A new session directory: in place with everything in it, or not at all."""
    directory = home.session(agent.name)
    aside = home.sessions / f"{BEING_MADE}{os.urandom(6).hex()}"
    aside.mkdir(mode=0o700)
    try:
        (aside / PRIVATE_DIRECTORY).mkdir(mode=0o700)
        _write(aside / ENVIRONMENT, json.dumps(vars(launch_env)))
        _write(aside / SESSION, _to_json(agent))
        flush_directory(aside / PRIVATE_DIRECTORY)
        flush_directory(aside)
        aside.rename(directory)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        if directory.exists():
            raise BullpenError(
                f"there is a session of {agent.name} already", kind=Kind.CONFLICT
            ) from error
        raise
    flush_directory(home.sessions)


def rewrite(home: Home, agent: Agent, launch_env: LaunchEnv | None = None) -> None:
    """The identity of the next run over that of the last."""
    directory = home.session(agent.name)
    if launch_env is not None:
        (directory / PRIVATE_DIRECTORY).mkdir(mode=0o700, exist_ok=True)
        write_atomically(directory / ENVIRONMENT, json.dumps(vars(launch_env)), mode=0o600)
    write_atomically(directory / SESSION, _to_json(agent), mode=0o600)


def write_files(home: Home, name: str, files: Mapping[str, str]) -> None:
    """What an engine needs to find there."""
    for file, text in files.items():
        write_atomically(home.session(name) / file, text, mode=0o600)


def exists(home: Home, name: str) -> bool:
    """Whether there is a session of that name."""
    return (home.session(name) / SESSION).exists()


def load(home: Home, name: str) -> Agent:
    """The agent of that session directory."""
    path = home.session(name) / SESSION
    try:
        agent = Agent.model_validate_json(path.read_bytes())
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _unreadable(path, f"{where}: {first['msg']}" if where else first["msg"]) from error
    if agent.name != name:  # a directory that somebody copied or renamed
        raise _unreadable(path, f"it is the session of {agent.name}")
    return agent


def _unreadable(path: Path, why: str) -> BullpenError:
    return BullpenError(
        f"cannot read {path}: {why}",
        hint=f"mend it, or remove {path.parent}",
        kind=Kind.CONFLICT,
    )


def was_killed(home: Home, agent: Agent) -> bool:
    """Whether a person ended its present run without a hub, and nobody holds it any more."""
    directory = home.session(agent.name)
    try:
        killed = (directory / KILLED).read_text()
    except (OSError, UnicodeDecodeError):
        return False
    return killed == agent.run and not is_held(directory)


def load_launch_env(home: Home, name: str) -> LaunchEnv:
    """Environment, umask and size of the last start."""
    path = home.session(name) / ENVIRONMENT
    try:
        return LaunchEnv(**json.loads(path.read_bytes()))
    except (FileNotFoundError, ValueError, TypeError) as error:
        raise BullpenError(
            f"cannot read {path}, so {name} cannot be started again as it was",
            hint="start it anew: bullpen run --name",
            kind=Kind.CONFLICT,
        ) from error


def names(home: Home) -> list[str]:
    """The names of all session directories."""
    paths = (path for path in home.sessions.iterdir() if not path.name.startswith("."))
    return sorted(path.name for path in paths if path.is_dir())


def delete_half_made(home: Home) -> None:
    """Delete what a killed hub left half-made; the caller holds the hub's lock."""
    for path in home.sessions.glob(f"{BEING_MADE}*"):
        shutil.rmtree(path, ignore_errors=True)
    for pattern in ("*/.*.new", f"*/{PRIVATE_DIRECTORY}/.*.new"):  # holders' own begin with no dot
        for path in home.sessions.glob(pattern):
            with contextlib.suppress(OSError):
                path.unlink()
    for path in home.sessions.glob(f"*/{OLD_ENVIRONMENT}"):
        with contextlib.suppress(OSError):  # missed by whoever starts it again, who says so
            (path.parent / PRIVATE_DIRECTORY).mkdir(mode=0o700, exist_ok=True)
            path.rename(path.parent / ENVIRONMENT)


def remove(home: Home, name: str) -> None:
    """The whole directory, out of sight in one step."""
    aside = home.sessions / f"{BEING_MADE}{os.urandom(6).hex()}"
    with contextlib.suppress(FileNotFoundError):
        home.session(name).rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


# ── what was there before: a start that is taken back leaves it as it was ──


def set_aside(home: Home, name: str, key: str) -> None:
    """Keep the identity and the records of the last run until `take_back` or `forget_aside`.

    Links are enough: all of these files are replaced, never written into.
    """
    directory = home.session(name)
    aside = home.private(name) / f"{SAVED}{key}"
    aside.mkdir(mode=0o700, parents=True)
    (aside / PRIVATE_DIRECTORY).mkdir(mode=0o700)
    for file in SAVED_FILES:
        with contextlib.suppress(FileNotFoundError):
            (aside / file).hardlink_to(directory / file)
    for changed in (aside / PRIVATE_DIRECTORY, aside, aside.parent, directory):
        flush_directory(changed)


def take_back(home: Home, name: str, run: str, key: str) -> None:
    """Undo a start: the session is as it was set aside, or gone if there was none. A session
    of another run is left alone. May be repeated."""
    directory = home.session(name)
    aside = home.private(name) / f"{SAVED}{key}"
    now, before = read_json(directory / SESSION) or {}, read_json(aside / SESSION)
    if before is None and now.get("run") == run:
        remove(home, name)
        return
    # Also of the run before: its environment may be another's already.
    if before is not None and now.get("run") in (run, before["run"]):
        for file in SAVED_FILES:  # the identity last: until then it is this run's
            _put_back(aside / file, directory / file)
        flush_directory(directory / PRIVATE_DIRECTORY)
        flush_directory(directory)
    forget_aside(home, name, key)


def forget_aside(home: Home, name: str, key: str) -> None:
    """The launch succeeded: delete the copies."""
    shutil.rmtree(home.private(name) / f"{SAVED}{key}", ignore_errors=True)


def _put_back(saved: Path, file: Path) -> None:
    if not saved.exists():
        file.unlink(missing_ok=True)
        return
    new = file.with_name(f".{file.name}.{os.urandom(4).hex()}.new")
    new.hardlink_to(saved)
    new.replace(file)
    # Two names of one file are left alone by `rename`.
    new.unlink(missing_ok=True)


def _to_json(agent: Agent) -> str:
    return agent.model_dump_json(indent=1, by_alias=True)


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
