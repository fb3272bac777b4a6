"""The holder: the small process that owns one program and outlives whoever started it.

Standard library only, and nothing else of the package: a holder runs for days under
hubs that are upgraded and replaced around it. What it speaks is written down in
docs/holder-protocol.md; `factory` makes holders, `main` is one.
"""

import sys

VERSION = 1

# -I -S: no environment, no site-packages; the package is found by the path given. -X utf8:
# the programs' words and variables are UTF-8 whatever locale the hub was started in.
_CODE = (
    "import sys; sys.path.insert(0, sys.argv[1]); from bullpen.holder.factory import main; main()"
)


def command(socket: str) -> list[str]:
    """The command line of a factory that listens on `socket`."""
    root = __file__.rpartition("/bullpen/holder/")[0]
    return [sys.executable, "-I", "-S", "-X", "utf8", "-c", _CODE, root, str(socket)]
