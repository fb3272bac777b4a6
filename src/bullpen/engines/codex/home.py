"""The home of one Codex agent on disk (CODEX_HOME), and what of the person's is taken over into it.

Hooks, rules and trust are read from there alone, so every agent has one of its own in its session
directory. The person's `config.toml` is taken over into it, without hooks and decisions of trust;
`auth.json` is a link to the person's, so that a login just works (in a sandbox there is none, and
the rest is copied).

A repository's own `.codex` holds commands that run by themselves. Codex would ask at the start
whether to trust it; so an agent is not started there until the person has said that it may be.
"""

import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bullpen.engines.base import Prepared, Start
from bullpen.engines.own_home import (
    copy,
    find_origin,
    link,
    note_origin,
    own_directory,
    own_name,
    remove,
    write_own,
)
from bullpen.errors import BullpenError, Kind

VARIABLE = "CODEX_HOME"
# In the session directory: what is written for Codex, and what it reads it as.
CONFIG, RULES, SYSTEM = "codex.toml", "codex.rules", "codex-system.md"
OWN = "codex"
TAKEN_OVER = ("auth.json", "AGENTS.md", "prompts")
SECRET = ("auth.json",)
# What an agent in a sandbox could leave for its next run.
PLANTED = ("hooks.json", "rules")


def own_of(start: Start) -> Path:
    """The agent's."""
    return start.session / own_name(OWN, start.is_sandboxed)


def origin_of(start: Start) -> Path:
    """The person's."""
    return find_origin(start.env.get(VARIABLE, ""), start.person / ".codex")


def read_config(origin: Path) -> dict[str, Any]:
    """What the person set."""
    file = origin / "config.toml"
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BullpenError(
            f"{file} is not TOML: {error}", hint="mend it first", kind=Kind.CONFLICT
        ) from error


def make_ready(start: Start, prepared: Prepared) -> None:
    """Write what a start without questions needs; refused where that is not trusted."""
    own, origin = own_of(start), origin_of(start)
    _refuse_untrusted(start, origin)
    rules = [f"rules/{file.name}" for file in sorted(origin.glob("rules/*.rules"))]
    note_origin(own, origin)
    if start.is_sandboxed:
        for name in PLANTED:
            remove(own / name)
        copy(own, origin, [name for name in (*TAKEN_OVER, *rules) if name not in SECRET])
    else:
        link(own, origin, [*TAKEN_OVER, *rules])
    write_own(own_directory(own / "rules") / "bullpen.rules", prepared.files[RULES])
    write_own(own / "config.toml", prepared.files[CONFIG])


def _refuse_untrusted(start: Start, origin: Path) -> None:
    if start.is_trusted:
        return
    for directory in _up_to_the_repository(Path(start.cwd)):
        found = directory / ".codex"
        if _says_something(found) and found.resolve() != origin.resolve():
            raise BullpenError(
                f"{found} is not trusted: Codex would run what it says",
                hint=f"read it, then: bullpen trust {shlex.quote(str(directory))}",
                kind=Kind.DENIED,
            )


def _says_something(found: Path) -> bool:
    """Empty ones come and go: Codex makes them wherever its own sandbox may write, for as long as
    a command runs there."""
    try:
        return any(found.iterdir())
    except FileNotFoundError:
        return False
    except OSError:  # who cannot look cannot tell
        return True


def _up_to_the_repository(cwd: Path) -> Sequence[Path]:
    """Where Codex looks for settings of a project."""
    places = (cwd, *cwd.parents)
    for number, place in enumerate(places):
        if (place / ".git").exists():
            return places[: number + 1]
    return places[:1]
