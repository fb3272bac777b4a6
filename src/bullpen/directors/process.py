"""The process of one director: `python -m bullpen.directors.process HOME NAME`.

Started by `bullpen director start`. Serves until it is told to leave.
"""

import sys
from pathlib import Path

from bullpen.component.server import serve
from bullpen.directors.config import config_file, load_director
from bullpen.errors import EXIT_CODES, BullpenError
from bullpen.home.paths import Home


def run_director(home: Home, name: str) -> int:
    """The exit code of the process."""
    try:
        kind, _ = load_director(home, name)
    except BullpenError as error:
        hint = f"\nhint:  {error.hint}" if error.hint else ""
        sys.stderr.write(f"error: {error.message}{hint}\n")
        return EXIT_CODES[error.kind]
    return serve(kind, home, name, config_file(home, name))


if __name__ == "__main__":
    sys.exit(run_director(Home(Path(sys.argv[1])), sys.argv[2]))
