"""`directors/<name>/supervisor.json` and `web/supervisor.json`: how the process above a director or
above the view stands.

Written by `component/supervise`; read by `director list`, `bullpen list`, `components` and whoever
ends all processes of a home. A file whose process is gone says nothing.
"""

from dataclasses import dataclass
from pathlib import Path

from bullpen import proc
from bullpen.files import read_object
from bullpen.home.paths import Home
from bullpen.text import seconds_text


@dataclass(frozen=True)
class Supervised:
    """How it stands. `child` is who is below it; 0: that is started again at `again_at`."""

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

    def text(self, now: float) -> str:
        """What became of who is below it, and when the next one starts."""
        if self.child:
            return f"{self.ending} · starting" if self.ending else ""
        return f"{self.ending} · again in {seconds_text(max(0.0, self.again_at - now))}"


def supervisor_file(directory: Path) -> Path:
    """That of whose directory this is."""
    return directory / "supervisor.json"


def find_above(directory: Path) -> Supervised | None:
    """The living supervisor of whose directory this is."""
    try:
        supervised = Supervised(**read_object(supervisor_file(directory)))
    except TypeError:
        return None
    return supervised if supervised.is_alive else None


def find_supervisor(home: Home, name: str) -> Supervised | None:
    """That of the director of that name, which has been checked."""
    return find_above(home.directors / name)


def list_supervisors(home: Home) -> list[tuple[Path, Supervised]]:
    """All that live, with the directory of who is below."""
    directories = [*(file.parent for file in home.directors.glob("*/supervisor.json"))]
    above = [(each, find_above(each)) for each in (*directories, home.root / "web")]
    return [(each, one) for each, one in above if one is not None]
