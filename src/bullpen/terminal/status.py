"""The line that says what a person is attached to: agent, role, pod, how to leave."""

import json

from bullpen.paths import Home
from bullpen.terminal.detach_key import detach_key


def status_text(home: Home, name: str) -> str:
    """For the title and the status row. Not cleaned: whoever shows it does that."""
    record = _record(home, name)
    facts = [name, record.get("role"), record.get("pod"), f"{detach_key(home)} leaves"]
    return " · ".join(fact for fact in facts if isinstance(fact, str) and fact)


def _record(home: Home, name: str) -> dict[str, object]:
    """What the session says of itself; nothing when it says nothing that can be read."""
    try:
        found = json.loads((home.session(name) / "session.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
