"""The home of one Codex agent on disk (CODEX_HOME), and what of the person's is taken over into it.

Hooks, rules and trust are read from there alone, so every agent has one of its own in its session
directory. The person's `config.toml` is taken over into it, without hooks and decisions of trust;
`auth.json` is a link to the person's, so that a login just works (in a sandbox there is none, and
the rest is copied).

A repository's own `.codex` holds commands that run by themselves. Where nobody trusts it, a run of
Codex is told not to: it then leaves out `.codex`, and the repository's AGENTS.md, too, which stands
in the agent's own AGENTS.md instead. In a terminal it (0.166.0) would stop there at a dialog, so it
is not started.
"""

import shlex
import tomllib
from pathlib import Path
from typing import Any

from bullpen.engines import parse
from bullpen.engines.base import Start, directories_of
from bullpen.engines.own_home import OwnHome
from bullpen.engines.repository import find_code, find_top, read_texts
from bullpen.errors import BullpenError, Kind

# In the session directory: what is written for Codex.
CONFIG, RULES = "codex.toml", "codex.rules"
CODE = (".codex",)  # in a repository
TEXTS = ("AGENTS.override.md", "AGENTS.md")  # of these the first
HOME = OwnHome(
    people_say="Codex",
    variable="CODEX_HOME",
    name="codex",
    default=".codex",
    inside="",
    transcripts_in="sessions",
    system="codex-system.md",
    taken_over=("auth.json", "prompts"),
    secret=("auth.json",),
    rules="rules/*.rules",
    planted=("hooks.json", "rules"),
)


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


def has_code(start: Start, origin: Path) -> bool:
    """Whether the repository brings something that Codex would obey."""
    cwd = Path(start.cwd)
    top = find_top(cwd)  # where Codex looks, also from a directory in a home
    names = find_code(CODE, top, cwd)
    return any((top / name).resolve() != origin.resolve() for name in names)


def refuse_code(start: Start, origin: Path) -> None:
    """Refuses a repository with such code."""
    if has_code(start, origin):
        top = find_top(Path(start.cwd))
        raise BullpenError(
            f"{top} brings .codex, which is not trusted, and Codex would stop at a dialog",
            hint=f"read it, then: bullpen trust {shlex.quote(str(top))}",
            kind=Kind.DENIED,
        )


def make_texts(start: Start, origin: Path, *, of_repository: bool) -> str:
    """The person's AGENTS.md, and the repository's where Codex does not read that itself."""
    own = read_texts((TEXTS[-1],), origin, origin)
    cwd = Path(start.cwd)
    others = read_texts(TEXTS, find_top(cwd), cwd) if of_repository else ""
    return "\n\n".join(filter(None, (own, others)))


def is_accepted(start: Start, origin: Path) -> bool:
    """Whether the person told their own Codex to trust the repository."""
    try:
        projects = parse.fields(read_config(origin).get("projects"))
    except BullpenError:
        return False
    entries = [parse.fields(projects.get(str(directory))) for directory in directories_of(start)]
    return any(project.get("trust_level") == "trusted" for project in entries)
