"""The command, as it is installed and as `python -m bullpen`: hot verbs by `bullpen.hot.fast`, all
others by `bullpen.cli.main`, which is loaded only for them."""

import posix
import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the current directory: nothing else is to come from there

from bullpen.hot import fast


def main() -> None:
    """Entry point of the installed command."""
    fast.main()  # comes back from what it does not do
    try:
        from bullpen.cli.main import main as whole

        whole()
    except KeyboardInterrupt:  # while it was being loaded; later it ends itself
        posix._exit(130)


if __name__ == "__main__":
    main()
