"""`directors/<name>/supervisor.json`: how the process above a director stands.

Written by `directors/supervise`; read by `director list`, `bullpen list` and whoever ends all
processes of a home. A file whose process is gone says nothing.
"""

from dataclasses import dataclass
from pathlib import Path

from bullpen import proc
from bullpen.files import read_object
from bullpen.home.paths import Home


@dataclass(frozen=True)
class Supervised:
    """How it stands. `child` is the director's pid; 0: it is started again at `again_at`."""

    pid: int
    start_time: str
    child: int = 0
    restarts: int = 0
    ending: str = ""  # of the last one
    ended_at: float = 0.0
    again_at: float = 0.0

    @property
    def is_alive(self) -> bool:
        return proc.start_time(self.pid) == self.start_time


def supervisor_file(home: Home, name: str) -> Path:
    """That of the director of that name, which has been checked."""
    return home.directors / name / "supervisor.json"


def find_supervisor(home: Home, name: str) -> Supervised | None:
    """The living supervisor of that director."""
    fields = read_object(supervisor_file(home, name))
    try:
        found = Supervised(**fields)
    except TypeError:
        return None
    return found if found.is_alive else None
