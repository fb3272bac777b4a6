"""What a director, view or bridge is: the class that each of them is a subclass of.

A subclass says what it is and does its work; `component/server` calls its methods, in the order in
which they stand here. Knows nothing of ports, routes of others, or the hub.
"""

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Literal

from starlette.routing import BaseRoute

from bullpen.component import ask
from bullpen.component.config import ComponentConfig, shown_config
from bullpen.component.journal import Journal
from bullpen.component.lifecycle import Life
from bullpen.home.paths import Home
from bullpen.home.settings import Discovery
from bullpen.model.component import CurrentTask, Interface, Status


class ComponentProcess:
    """A component that is a process of its own. Made when its config is known to be right."""

    kind: ClassVar[Literal["director", "view", "bridge"]]
    interfaces: ClassVar[tuple[Interface, ...]] = ("statusable", "configurable")
    config_type: ClassVar[type[ComponentConfig]] = ComponentConfig
    # Keys of the config that may change while it runs.
    live: ClassVar[frozenset[str]] = frozenset({"log_level"})

    def __init__(self, home: Home, name: str, config: ComponentConfig) -> None:
        self.home = home
        self.name = name
        self.config = config
        self.life = Life(Journal(logging.getLogger("bullpen.component")))

    @cached_property
    def home_id(self) -> str:
        """The home's. Written there, when somebody needs it for the first time."""
        return self.home.id

    @property
    def hub_token(self) -> str:
        """What it asks the hub with: the owner's, unless it has one of its own."""
        return ask.owner_token(self.home)

    def discovery(self, settings: Discovery) -> Discovery:
        """Which ports it may have, and whether it announces itself; `settings` are the home's."""
        return settings

    @property
    def own_port(self) -> int | None:
        """The loopback port of its `/status`; None: the first that is free."""
        return self.config.port

    def listen(self) -> None:
        """Open what it serves elsewhere. A BullpenError ends the start."""

    @property
    def is_draining(self) -> bool:
        """Whether it was told to leave: it then takes nothing new."""
        return self.life.is_draining

    def routes(self) -> Sequence[BaseRoute]:
        """What it serves besides `/status`, `/shutdown` and `/config`."""
        return ()

    @property
    def open_paths(self) -> frozenset[str]:
        """Where others than the owner may post: its routes there find out who it is."""
        return frozenset()

    async def prepare(self) -> None:
        """Do the slow part of the start. A BullpenError makes its state `error`."""

    async def run(self) -> None:
        """Do its work, once it is prepared. Cancelled at the end."""

    async def hub_is_back(self) -> None:
        """The hub answers, for the first time or after it was away."""

    def current_task(self) -> CurrentTask | None:
        """What it works on."""
        return None

    @property
    def is_working(self) -> bool:
        """Whether its state is `working`."""
        return self.current_task() is not None

    @property
    def problem(self) -> str:
        """What holds it up, for a person; empty: nothing."""
        return self.life.problem

    def reconfigured(self) -> None:
        """Some of the `live` keys of `config` have changed."""

    async def cancel(self) -> None:
        """End what it works on, now."""

    async def leave(self) -> None:
        """Store what the next process has to know. The last call."""

    def status(self) -> Status:
        """What it answers at `/status`."""
        shown = self.life.status(
            self.kind,
            self.name,
            self.interfaces,
            self.home_id,
            shown_config(self.config),
            self.current_task(),
        )
        return shown.model_copy(update={"state": self.life.phase(self.is_working)})
