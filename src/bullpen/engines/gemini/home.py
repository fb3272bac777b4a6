"""The home of one Gemini CLI agent on disk (GEMINI_CLI_HOME), and what of the person's is taken
over into it.

It reads settings for everybody only from files that root alone may write, so every agent has a
home of its own for it in its session directory. The person's settings are taken over into it;
what the person logged in with, and commands, extensions and policies, are links, so that an
existing login just works (in a sandbox there is no login, and the rest is copied).

In a directory that it does not trust, Gemini CLI runs no hooks and connects to no servers, and in
one that it trusts, it does what the repository's own `.gemini` says. So an agent is not started
in a directory that has one until the person has said that it may be used.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

from bullpen.engines import parse
from bullpen.engines.base import Start, directories_of
from bullpen.engines.own_home import OwnHome
from bullpen.engines.repository import find_code
from bullpen.errors import BullpenError, Kind

# In the session directory: what is written for Gemini CLI.
SETTINGS, RULES, MEMORY = "gemini.json", "gemini-policy.toml", "gemini-instructions.md"
SECRET = (
    "oauth_creds.json",
    "google_accounts.json",
    "gemini-credentials.json",
    "mcp-oauth-tokens.json",
    ".env",
)
HOME = OwnHome(
    people_say="Gemini",
    variable="GEMINI_CLI_HOME",
    name="gemini",
    default="",
    inside=".gemini",
    transcripts_in="tmp",
    system="gemini-system.md",
    taken_over=(*SECRET, "installation_id", "commands", "extensions", "skills", "agents"),
    secret=SECRET,
    rules="policies/*.toml",
    planted=("policies",),
)
# Of a repository's `.gemini`: what is more than text.
CODE = tuple(
    f".gemini/{name}"
    for name in ("settings.json", ".env", "agents", "commands", "extensions", "skills")
)


def trusted_folders(start: Start) -> str:
    """The file that says where it may run hooks: in the agent's directory."""
    return json.dumps({start.cwd: "TRUST_FOLDER", str(Path(start.cwd).resolve()): "TRUST_FOLDER"})


def make_memory(origin: Path, instructions: str) -> str:
    """The person's memory file, and the role's instructions."""
    memory = _read_text(origin / HOME.inside / "GEMINI.md")
    return "\n\n".join(filter(None, (memory.strip(), instructions)))


def read_settings(origin: Path) -> dict[str, Any]:
    """What the person set."""
    file = origin / HOME.inside / "settings.json"
    try:
        settings = json.loads(without_comments(_read_text(file)) or "{}")
    except ValueError as error:
        raise BullpenError(
            f"{file} is not JSON: {error}", hint="mend it first", kind=Kind.CONFLICT
        ) from error
    return settings if isinstance(settings, dict) else {}


def without_comments(text: str) -> str:
    """JSON as people write it for Gemini CLI, as JSON. Pure."""
    strings_or_comments = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
    return strings_or_comments.sub(lambda match: match[1] or " ", text).strip()


def _read_text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def refuse_code(start: Start, origin: Path) -> None:
    """It cannot leave out what the directory brings, and run our hooks."""
    cwd = Path(start.cwd)
    own = (cwd / HOME.inside).resolve() == (origin / HOME.inside).resolve()
    names = () if own else find_code(CODE, cwd, cwd)
    if names:
        raise BullpenError(
            f"{cwd / names[0]} is not trusted, and Gemini CLI would do what it says",
            hint=f"read it, then: bullpen trust {shlex.quote(start.cwd)}",
            kind=Kind.DENIED,
        )


def is_accepted(start: Start, origin: Path) -> bool:
    """Whether the person told their own Gemini CLI to trust the directory."""
    try:
        text = (origin / HOME.inside / "trustedFolders.json").read_bytes()
    except OSError:
        return False
    rules = parse.read_fields(text)
    trusted = {path for path, rule in rules.items() if rule == "TRUST_FOLDER"}
    trusted |= {str(Path(path).parent) for path, rule in rules.items() if rule == "TRUST_PARENT"}
    return any(str(directory) in trusted for directory in directories_of(start))
