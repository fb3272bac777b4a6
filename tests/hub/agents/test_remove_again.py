"""What a task agent leaves while it is being stopped keeps it from being removed."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.remove import Remover
from bullpen.hub.tree_threads import TreeThreads
from bullpen.model.agent import Agent
from bullpen.model.fold import fold
from bullpen.model.state import Launched, ProgramEnded


class LeavesFilesAtItsEnd:
    """A stopper, and the kind of an agent whose task writes until it is stopped."""

    why = ""

    def __init__(self, live: LiveAgent) -> None:
        self.live = live

    async def stop(self, _name: str, _grace: float | None) -> None:
        self.live.view = fold(self.live.view, ProgramEnded(at=2.0, code=0, signal=None))
        self.why = "its tasks left files"

    def reason_to_keep(self, _agent: Agent) -> str:
        return self.why

    async def bring_over(self, _live: LiveAgent) -> None:
        """It has no git of its own."""


def test_r8_rm_looks_again_after_the_stop(tmp_path: Path) -> None:
    agent = Agent(name="amy", run="r", kind="headless", engine="claude", cwd="/", created="")
    live = LiveAgent(agent, fold(None, Launched(at=1.0, run="r")))
    home = Home(tmp_path)
    (home.session("amy") / "work").mkdir(parents=True)

    async def remove() -> None:
        registry, late = Registry(), LeavesFilesAtItsEnd(live)
        registry.put(live)
        context: Any = SimpleNamespace(home=home, settings=None, trees=TreeThreads())
        parts: Any = (context, None, registry, late, {"headless": late}, late, None, None, None)
        with pytest.raises(BullpenError, match="its tasks left files"):
            await Remover(*parts).remove("amy", None)
        assert registry.find("amy") is live

    asyncio.run(remove())
    assert (home.session("amy") / "work").is_dir()
