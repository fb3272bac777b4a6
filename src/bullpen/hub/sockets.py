"""Sockets that somebody deleted are there again: the hub's own, and those of agents, which
their holders make anew.

The kernel tells; nothing is polled. Where it cannot, a command that misses the hub's socket
tells (SIGUSR1), and those of agents come back with the next hub.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from bullpen.home.paths import HUB, Home
from bullpen.hub.agents.inotify import Watcher
from bullpen.hub.agents.registry import Registry
from bullpen.hub.agents.watch import Watch

log = logging.getLogger("bullpen.hub")


class Sockets:
    """The sockets of one home. `listen_again` makes the hub's own anew if it is gone."""

    def __init__(
        self, home: Home, registry: Registry, watch: Watch, listen_again: Callable[[], None]
    ) -> None:
        self.home = home
        self.registry = registry
        self.watch = watch
        self.listen_again = listen_again
        try:
            self._watcher: Watcher | None = Watcher()
        except (OSError, AttributeError) as error:  # too many watchers, or not Linux
            log.warning("cannot watch sockets", extra={"reason": str(error)})
            self._watcher = None

    def look(self) -> None:
        """See to all of them now, and from now on. May be repeated."""
        self.listen_again()
        directory = self.home.sockets
        try:
            if self._watcher is not None:
                self._watcher.watch(directory, self._changed)
        except OSError as error:
            log.warning("cannot watch sockets", extra={"reason": str(error)})
        for live in self.registry:
            self.watch.keep_reachable(live)

    def _changed(self, path: Path) -> None:
        if path.name == f"{HUB}.sock":
            self.listen_again()
            return
        live = self.registry.find(path.name[len("agent.") : -len(".sock")])
        if live is not None:
            self.watch.keep_reachable(live)
