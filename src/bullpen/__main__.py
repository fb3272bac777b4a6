"""`python -m bullpen`."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the current directory: nothing else is to come from there

from bullpen.cli.main import main

main()
