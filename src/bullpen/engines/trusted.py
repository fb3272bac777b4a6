"""Whether the code that a repository brings may be used: the person said so to Bullpen, or to the
engine's own program. Reads the disk.

Called by the hub's `agents/plan` and `tasks/run_plan`, and by `bullpen run` before it asks.
"""

from collections.abc import Mapping
from pathlib import Path

from bullpen.engines.base import Prepare, Start
from bullpen.engines.repository import find_code, find_top
from bullpen.home import trust
from bullpen.home.paths import Home


def top_of(home: Home, directory: Path) -> Path:
    """Of the person's checkout that holds the directory; what lies in the home is in none."""
    return directory if directory.is_relative_to(home.root) else find_top(directory)


def is_trusted(
    engine: Prepare, home: Home, person: Path, env: Mapping[str, str], directory: Path
) -> bool:
    """Whether agents that are started there may use it."""
    top = str(top_of(home, directory))
    start = Start(None, (), cwd=str(directory), top=top, person=person, env=env)
    return trust.is_trusted(home, directory) or engine.trusts(start)


def find_untrusted(
    engine: Prepare, home: Home, person: Path, env: Mapping[str, str], directory: Path
) -> tuple[str, ...]:
    """What is there and not used."""
    code = find_code(engine.code, top_of(home, directory), directory)
    return () if code and is_trusted(engine, home, person, env, directory) else code
