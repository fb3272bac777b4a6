"""`session.json` of an agent, read by commands: five words of it, without the model.

Called by `terminal` and by commands that must start fast, or work without a hub. Written, and read
as a whole, by `hub/agents/sessions`.
"""

from typing import NamedTuple

from bullpen.files import read_object
from bullpen.home.paths import Home


class SessionFile(NamedTuple):
    """What it says; empty where it says nothing, or cannot be read."""

    kind: str = ""
    role: str = ""
    pod: str = ""
    cwd: str = ""
    run: str = ""

    @property
    def takes_tasks(self) -> bool:
        return self.kind == "headless"


def read_session_file(home: Home, name: str) -> SessionFile:
    """That of the agent of this name."""
    fields = read_object(home.session(name) / "session.json")
    words = {key: fields.get(key) for key in SessionFile._fields}
    return SessionFile(**{key: word for key, word in words.items() if isinstance(word, str)})
