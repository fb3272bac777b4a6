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

from bullpen.engines.base import Prepared, Start
from bullpen.engines.own_home import (
    copy,
    find_origin,
    link,
    note_origin,
    own_directory,
    own_name,
    real_directory,
    remove,
    write_own,
)
from bullpen.errors import BullpenError, Kind

VARIABLE = "GEMINI_CLI_HOME"
# In the session directory: what is written for Gemini CLI.
SETTINGS, RULES, MEMORY = "gemini.json", "gemini-policy.toml", "gemini-instructions.md"
SYSTEM = "gemini-system.md"
OWN = "gemini"  # and in that what Gemini CLI makes in every home:
DIRECTORY = ".gemini"
SECRET = (
    "oauth_creds.json",
    "google_accounts.json",
    "gemini-credentials.json",
    "mcp-oauth-tokens.json",
    ".env",
)
TAKEN_OVER = (*SECRET, "installation_id", "commands", "extensions", "skills", "agents")
# Of a repository's `.gemini`: what is more than text.
OF_A_REPOSITORY = ("settings.json", ".env", "agents", "commands", "extensions", "skills")


def own_of(start: Start) -> Path:
    """The agent's."""
    return start.session / own_name(OWN, start.is_sandboxed)


def origin_of(start: Start) -> Path:
    """The person's home, as far as Gemini CLI is concerned."""
    return find_origin(start.env.get(VARIABLE, ""), start.person)


def make_ready(start: Start, prepared: Prepared) -> None:
    """Write what a start without questions needs; refused where that is not trusted."""
    own, origin = own_of(start), origin_of(start)
    _refuse_untrusted(start, origin)
    policies = [f"policies/{f.name}" for f in sorted(origin.glob(".gemini/policies/*.toml"))]
    names = [*TAKEN_OVER, *policies]
    note_origin(own, origin)
    if start.is_sandboxed:
        real_directory(own / DIRECTORY)
        remove(own / DIRECTORY / "policies")  # what the agent left for its next run
        open_names = [name for name in names if name not in SECRET]
        copy(own / DIRECTORY, origin / DIRECTORY, open_names)
    else:
        link(own / DIRECTORY, origin / DIRECTORY, names)
    own_directory(own / DIRECTORY / "policies")
    trusted = {start.cwd: "TRUST_FOLDER", str(Path(start.cwd).resolve()): "TRUST_FOLDER"}
    memory = _read_text(origin / DIRECTORY / "GEMINI.md")
    texts = {
        "settings.json": prepared.files[SETTINGS],
        "policies/bullpen.toml": prepared.files[RULES],
        "trustedFolders.json": json.dumps(trusted),
        "GEMINI.md": "\n\n".join(filter(None, (memory.strip(), prepared.files[MEMORY]))),
    }
    for name, text in texts.items():
        write_own(own / DIRECTORY / name, text)


def read_settings(file: Path) -> dict[str, Any]:
    """What the person set."""
    text = _read_text(file)
    try:
        found = json.loads(without_comments(text) or "{}")
    except ValueError as error:
        raise BullpenError(
            f"{file} is not JSON: {error}", hint="mend it first", kind=Kind.CONFLICT
        ) from error
    return found if isinstance(found, dict) else {}


def without_comments(text: str) -> str:
    """JSON as people write it for Gemini CLI, as JSON. Pure."""
    strings_or_comments = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
    return strings_or_comments.sub(lambda found: found[1] or " ", text).strip()


def _read_text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _refuse_untrusted(start: Start, origin: Path) -> None:
    directory = Path(start.cwd) / DIRECTORY
    if start.is_trusted or directory.resolve() == (origin / DIRECTORY).resolve():
        return
    for name in OF_A_REPOSITORY:
        if (directory / name).exists():
            raise BullpenError(
                f"{directory / name} is not trusted: Gemini CLI would do what it says",
                hint=f"read it, then: bullpen trust {shlex.quote(start.cwd)}",
                kind=Kind.DENIED,
            )
