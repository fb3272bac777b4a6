"""A hub that has worked for long holds what one held that had worked for a while."""

import random
from pathlib import Path

import pytest

from tests.hub.pen import change_hub
from tests.hub.soak import Held, Soak, find_growth
from tests.hub.tasks.desk import made_desk

WARM, ROUNDS, LEAKING = 30, 120, 30

HELD = Held(descriptors=100, threads=50, megabytes=80.0, processes=120, files=900, rows=30)

# In the hub: what is kept of each start of an agent.
LEAKS = {
    "descriptors": "kept.append(open('/dev/null'))",
    "threads": "threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "megabytes": "kept.append(bytearray(b'x') * (2 << 20))",
}
LEAK = """
import sys
if "bullpen.hub.main" in sys.orig_argv:
    import threading
    from bullpen.hub.agents.start import Starter
    kept, real = [], Starter.start

    async def start(self, *words, **fields):
        {leak}
        return await real(self, *words, **fields)

    Starter.start = start
"""


@pytest.mark.parametrize("grown", vars(HELD))
def test_b7_only_what_has_grown_by_more_than_chance_is_named(grown: str) -> None:
    fields = vars(HELD)
    assert find_growth(HELD, Held(**{name: value + 3 for name, value in fields.items()})) == {}
    assert find_growth(HELD, Held(**{**fields, grown: fields[grown] * 2})) == {grown: fields[grown]}


@pytest.mark.storm
def test_b7_a_hub_at_work_for_long_holds_no_more(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    with made_desk(tmp_path) as desk:
        soak = Soak(desk, seed)
        soak.work(WARM)
        before = soak.settled()
        soak.work(ROUNDS)
        after = soak.settled(before)
    assert find_growth(before, after) == {}, (before, after)


@pytest.mark.storm
@pytest.mark.parametrize("leak", LEAKS)
def test_b7_a_leak_of_one_for_each_start_is_noticed(tmp_path: Path, leak: str) -> None:
    with made_desk(tmp_path) as desk:
        change_hub(desk.pen, LEAK.format(leak=LEAKS[leak]))
        soak = Soak(desk, 1)
        before = soak.settled()
        soak.work(LEAKING)
        assert leak in find_growth(before, soak.settled())
