"""The holder: the small process that owns one program and outlives the hub that started it.

`factory` forks holders, `main` is one. Started by the hub; docs/holder-protocol.md is its contract.
Must not import anything but the standard library: it runs for days while hubs are upgraded.
"""

import sys

VERSION = 1

# -I -S: no environment, no site-packages; the package is found by the path given. -X utf8:
# the programs' words and variables are UTF-8 whatever locale the hub was started in.
_CODE = (
    "import sys; sys.path.insert(0, sys.argv[1]); from bullpen.holder.factory import main; main()"
)


def command(socket: str, line: int | None = None) -> list[str]:
    """The command line of a factory that listens on `socket`. `line` is the descriptor over which
    the hub hands it listeners."""
    root = __file__.rpartition("/bullpen/holder/")[0]
    words = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _CODE, root]
    # The socket stays the last word: that tells the processes of one home from others.
    return [*words, *([] if line is None else [str(line)]), str(socket)]
