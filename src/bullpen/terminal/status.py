"""The line that says what a person is attached to: agent, role, state, what it used, messages
that wait for it, pod, how to leave.

State and figures are the hub's to say; while it is away the line goes without.
"""

import json
import os
from typing import Any

from bullpen.client import wire
from bullpen.paths import HUB, Home
from bullpen.terminal.detach_key import detach_key

# A terminal waits for nobody: a hub that takes longer is left out of this line.
ANSWER_SECONDS = 0.1


def status_text(home: Home, name: str) -> str:
    """For the title and the status row. Not cleaned: whoever shows it does that."""
    record = _session(home, name)
    told = _of_hub(home, name)
    facts = [
        name,
        record.get("role"),
        told.get("words"),
        told.get("summary"),
        record.get("pod"),
        f"{detach_key(home)} leaves",
    ]
    return " · ".join(fact for fact in facts if isinstance(fact, str) and fact)


def _session(home: Home, name: str) -> dict[str, Any]:
    """What the session says of itself; nothing when it says nothing that can be read."""
    try:
        return _object((home.session(name) / "session.json").read_bytes())
    except OSError:
        return {}


def _of_hub(home: Home, name: str) -> dict[str, Any]:
    token = os.environ.get("BULLPEN_TOKEN")
    headers = {"authorization": f"Bearer {token}"} if token else {}
    target = f"/agents/{wire.quoted(name)}"
    try:
        answer = wire.request(str(home.socket(HUB)), "GET", target, headers, b"", ANSWER_SECONDS)
    except (wire.HubError, OSError, ValueError):
        return {}
    return _object(answer.body) if answer.status == 200 else {}


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
