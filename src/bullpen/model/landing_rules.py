"""How landings go, as `config.yaml` and files of projects say it. Pure.

Apart from `model/landing`, so that a process that reads `config.yaml` need not know what landings
are, nor agents and their roles.
"""

from datetime import timedelta
from typing import Literal

from bullpen.model.fields import Block, PositiveDuration, Text, Texts

Strategy = Literal["merge", "squash", "rebase"]
TIMEOUT = timedelta(minutes=30)


class LandingRules(Block):
    """How landings go, as far as a project's file says it under `landing`."""

    verify: Text | None = None
    strategy: Strategy | None = None
    protected: Texts = ()
    timeout: PositiveDuration | None = None


class LandingSettings(LandingRules):
    """The same in `config.yaml`, with what counts where nobody says anything."""

    strategy: Strategy = "merge"
    timeout: PositiveDuration = TIMEOUT
