"""The hub's side of the factory of holders: one that cannot be started."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bullpen import holder
from bullpen.hub.holders.factory import Factory
from tests.hub.parts import run, until


def test_k6_one_that_cannot_be_started_is_tried_again_ever_more_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "command", lambda *_: ["/bin/false"])
    sleep = asyncio.sleep
    pauses: list[float] = []
    spawned: list[int] = []

    async def pass_quickly(seconds: float) -> None:
        if seconds >= 1:
            pauses.append(seconds)
        await sleep(min(seconds, 0.001))

    async def story() -> None:
        factory = Factory(tmp_path / "factory.sock", 1024)
        spawn = factory._spawn

        def counted(line: int) -> Any:
            spawned.append(line)
            return spawn(line)

        monkeypatch.setattr(factory, "_spawn", counted)
        monkeypatch.setattr(asyncio, "sleep", pass_quickly)
        factory._lost()
        await until(lambda: len(spawned) >= 9)
        assert pauses[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
        assert len(spawned) - len(pauses) in (0, 1)
        factory.leave()
        assert factory._replacing is not None
        await asyncio.wait([factory._replacing])
        assert factory._replacing.cancelled()

    run(story())
