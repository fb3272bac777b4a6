"""The whole way, quick enough for `make check`: an agent outlives its hub and is stopped."""

import re
from collections import Counter

from tests.hub.pen import made_pen
from tests.hub.programs import SLEEP
from tests.processes import alive
from tests.waiting import wait_until


def test_b2_killed_hub_finds_its_agents_again_and_stops_them() -> None:
    with made_pen() as pen:
        ran = pen.cli("run", "--", *SLEEP)
        assert (ran.code, ran.err) == (0, ""), ran
        assert "sleep started" in ran.out
        program, first = pen.program("sleep"), pen.pid
        assert pen.hub_pids() == pen.lock_holders() == {first}
        assert "unknown (it reports no state)" in pen.cli("list").out
        pen.kill_hub()
        assert alive(program)
        listed = pen.cli("list")
        assert (listed.code, listed.err) == (0, "")
        # A holder that says nothing for a while is not waited for.
        shown = re.compile(r"^sleep +command +unknown \(it reports no state\)$", re.M)
        wait_until(lambda: shown.search(pen.cli("list").out) is not None)
        assert alive(program)
        assert pen.pid != first
        assert pen.agents()["sleep"]["running"]
        stopped = pen.cli("stop", "sleep")
        assert (stopped.code, stopped.out) == (0, "sleep stopped · exited (signal 15)\n")
        assert not alive(program)
        # A holder says goodbye before it takes its socket away.
        wait_until(lambda: not (pen.root / "sockets" / "agent.sleep.sock").exists())
        counted = Counter(event["kind"] for event in pen.events("sleep"))
        assert counted["agent.starting"] == counted["agent.started"] == 1
        assert counted["agent.stopping"] == counted["agent.stopped"] == 1
        assert pen.cli("hub", "stop").out == "hub stopped; agents go on\n"
        wait_until(lambda: pen.processes() == {})
