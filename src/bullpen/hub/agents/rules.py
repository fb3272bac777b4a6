"""What a person allowed one agent for good: a file in its session directory.

Written when an approval is answered with `--always`. Read when an agent or a task is planned. The
agent's present settings file gets the same rule, but Claude Code reads that only when it starts.
"""

import json
from pathlib import Path
from typing import Any

from bullpen.files import write_atomically

FILE = "rules.json"
SETTINGS = "settings.json"


def load_rules(session: Path) -> tuple[str, ...]:
    """What is allowed to that agent beyond its role. A file that cannot be read allows nothing."""
    rules = _read(session / FILE)
    allowed = rules.get("allow") if isinstance(rules, dict) else None
    if not isinstance(allowed, list) or not all(isinstance(rule, str) for rule in allowed):
        return ()
    return tuple(allowed)


def add_rule(session: Path, rule: str) -> None:
    """Allow one thing more, from now on; once is enough."""
    known = load_rules(session)
    if rule not in known:
        text = json.dumps({"allow": [*known, rule]}, indent=1)
        write_atomically(session / FILE, text, mode=0o600)
    settings = _read(session / SETTINGS)
    if isinstance(settings, dict):
        allowed = settings.setdefault("permissions", {}).setdefault("allow", [])
        if rule not in allowed:
            allowed.append(rule)
            write_atomically(session / SETTINGS, json.dumps(settings, indent=1), mode=0o600)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
