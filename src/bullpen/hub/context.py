"""What all parts of a hub share. Made by `main`, read by every part. Nothing of it changes while a
hub runs but the settings, which `settings_watch` alone replaces: nobody keeps them."""

from dataclasses import dataclass, field
from pathlib import Path

from bullpen.home.paths import Home
from bullpen.home.settings import Settings
from bullpen.hub.tree_threads import TreeThreads


@dataclass
class HubContext:
    """Home, settings and port of one running hub, and what it has found on its machine."""

    home: Home
    settings: Settings
    port: int
    person: Path
    last_boot: str | None = None  # of the machine, when a hub wrote `hub.json` before this one
    trees: TreeThreads = field(default_factory=TreeThreads)  # for work on agents' trees
