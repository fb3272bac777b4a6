"""Agents that come back by themselves, as their role's `restart` says."""

from typing import Any

import pytest

from tests.hub.pen import Pen
from tests.hub.programs import END, SLEEP
from tests.hub.reboot import rebooted
from tests.processes import kill
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def run(pen: Pen, name: str, restart: str, *command: str) -> dict[str, Any]:
    pen.role(name, agent_type="command", command=list(command or SLEEP), restart=restart)
    found: dict[str, Any] = pen.client().post(
        "agents", body={**pen.launch(role=name, name=name), "words": []}
    )
    return found


def test_b10_roles_bring_agents_back_when_the_hub_starts_after_a_reboot(pen: Pen) -> None:
    first = {name: run(pen, name, name)["run"] for name in ("always", "on-failure", "never")}
    rebooted(pen)
    pen.start()
    back = {"always", "on-failure"}
    wait_until(
        lambda: {name for name, agent in pen.agents().items() if agent["running"]} == back, 60
    )
    assert pen.state("never") == "ended (reboot)"
    assert all(pen.agents()[name]["run"] != first[name] for name in back)
    assert len(pen.events("always", "agent.restarted")) == 1


@pytest.mark.storm
def test_b10_after_a_crash_it_comes_back_and_a_stop_is_no_crash(pen: Pen) -> None:
    first = run(pen, "amy", "on-failure")["run"]
    kill(pen.program("amy"))
    wait_until(lambda: pen.agents()["amy"]["run"] != first and pen.agents()["amy"]["running"], 60)
    pen.stop("amy")
    assert pen.cli("hub", "restart").code == 0
    run(pen, "bob", "always", *END, "7")
    wait_until(lambda: pen.events("bob", "agent.gave_up"), 120)  # looked at later than amy
    assert pen.state("amy") == "exited (signal 15)"
    # Five times in ten minutes, then it stops and says so.
    assert len(pen.events("bob", "agent.restarted")) == 5
    assert len(pen.events("bob", "agent.started")) == 6
    wait_until(lambda: "bob was started again 5 times" in pen.cli("inbox").out, 60)
    assert pen.state("bob") == "exited (7)"
