"""The reviewer of an agent, as its role had it at the launch: two files in its session directory.

Written before a program starts, for an agent in a terminal as for a run of a task. Read when a tool
call is to be reviewed: a role that is changed meanwhile counts from the next start on, as all else
of it does. `permission-reviewer.md` is what the model is told, for people and for the program; the
other one is what counts.
"""

from pydantic import ValidationError

from bullpen.files import write_atomically
from bullpen.home.paths import PRIVATE_DIRECTORY, Home
from bullpen.model.review import system_prompt
from bullpen.model.role import ReviewerSettings, Role

PROMPT = "permission-reviewer.md"
SETTINGS = f"{PRIVATE_DIRECTORY}/reviewer"


def write_reviewer(home: Home, name: str, role: Role | None) -> None:
    """Before the program starts. Without a reviewer, none of an earlier launch stays."""
    session = home.session(name)
    settings = role.permissions.agent if role else ReviewerSettings()
    if not settings.is_on:
        (session / SETTINGS).unlink(missing_ok=True)
        (session / PROMPT).unlink(missing_ok=True)
        return
    write_atomically(session / PROMPT, system_prompt(settings.instructions or ""), mode=0o600)
    write_atomically(session / SETTINGS, settings.model_dump_json(), mode=0o600)


def find_reviewer(home: Home, name: str) -> ReviewerSettings | None:
    """None: it has none, or nothing that can be read; then the person is asked."""
    try:
        text = (home.session(name) / SETTINGS).read_bytes()
        settings = ReviewerSettings.model_validate_json(text)
    except (OSError, ValidationError):
        return None
    return settings if settings.is_on else None
