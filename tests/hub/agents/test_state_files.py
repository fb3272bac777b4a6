"""State files lie where an agent may write: whatever it puts there, the others' are read."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen.hub.agents.state_files import MOST_BYTES, StateFiles

PLANTS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "endless": lambda place: place.symlink_to("/dev/zero"),
    "somebody else's": lambda place: place.symlink_to(__file__),
    "directory": Path.mkdir,
    "large": lambda place: (place.touch(), os.truncate(place, 1 << 40)),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_x5_what_an_agent_plants_does_not_keep_us_from_the_files_of_others(
    plant: str, tmp_path: Path
) -> None:
    PLANTS[plant](tmp_path / "planted.json")
    (tmp_path / "good.json").write_text("{}")
    taken: list[bytes] = []

    async def read_both() -> None:
        is_taken = asyncio.Event()

        async def take(_directory: str, text: bytes) -> None:
            taken.append(text)
            if text == b"{}":
                is_taken.set()

        files = StateFiles(take)
        for name in ("planted.json", "good.json"):
            files._note(tmp_path / name)
        reading = asyncio.create_task(files.run())
        try:
            await asyncio.wait_for(is_taken.wait(), 60)
        finally:
            reading.cancel()
            if plant == "pipe":  # or a thread that waits for it would keep the test from ending
                os.close(os.open(tmp_path / "planted.json", os.O_RDWR | os.O_NONBLOCK))

    asyncio.run(read_both())
    others = [len(text) for text in taken if text != b"{}"]
    assert others == ([MOST_BYTES] if plant == "large" else [])
