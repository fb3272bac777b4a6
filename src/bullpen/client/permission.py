"""Where the settings of agents that an older Bullpen started look for it. See `hot.permission`."""

from bullpen.hot.permission import main

__all__ = ["main"]
