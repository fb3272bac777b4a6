"""Where the settings of agents that an older Bullpen started look for it. See `hot.hook`."""

from bullpen.hot.hook import main

__all__ = ["main"]
