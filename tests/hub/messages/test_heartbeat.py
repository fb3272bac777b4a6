"""Heartbeats: one message per idle period, under the role's condition."""

import json
import sys
from typing import Any

import pytest

from tests.hub.pen import Pen, change_hub
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

# Prints every line that it is told; says by hooks that it is idle.
ECHO = """
import subprocess, sys
def hook(event):
    subprocess.run([sys.argv[1], "hook"], input=('{"hook_event_name": "%s"}' % event).encode())
hook("Stop")
for line in sys.stdin:
    print("HEARD", line, end="", flush=True)
    if "work" in line: hook("UserPromptSubmit")
    if "rest" in line: hook("Stop")
"""


def role(pen: Pen, **heartbeat: Any) -> None:
    from tests.commands import BULLPEN

    fields = {
        "name": "worker",
        "agent_type": "command",
        "command": [sys.executable, "-c", ECHO, str(BULLPEN)],
        "deliver": "lines",
        "heartbeat": heartbeat,
    }
    (pen.root / "roles" / "worker.yaml").write_text(json.dumps(fields))


def beats(pen: Pen) -> list[str]:
    found = pen.client().get("agents", "amy", "messages")["messages"]
    return [message["text"] for message in found if message["sender"] == "bullpen"]


def start(pen: Pen) -> None:
    pen.run(role="worker", name="amy", words=[])
    wait_until(lambda: pen.state("amy") == "idle")


def test_g5_an_idle_agent_gets_one_message_per_idle_period(pen: Pen) -> None:
    role(pen, idle_timeout="1s", message="are you there?")
    start(pen)
    wait_until(lambda: len(beats(pen)) == 1)
    wait_until(lambda: b"are you there?" in pen.log("amy"))
    pen.client().post("agents", "amy", "input", body={"text": "work\n"})
    wait_until(lambda: pen.state("amy").startswith("working"))
    pen.client().post("agents", "amy", "input", body={"text": "rest\n"})
    wait_until(lambda: len(beats(pen)) == 2)
    assert beats(pen) == ["are you there?"] * 2


@pytest.mark.storm
def test_g5_another_hub_does_not_send_it_again(pen: Pen) -> None:
    role(pen, idle_timeout="1s", message="once")
    start(pen)
    wait_until(lambda: len(beats(pen)) == 1)
    pen.kill_hub()
    pen.start()
    # A second agent, started later, gets its own: by then the first one's would have come again.
    pen.run(role="worker", name="bob", words=[])
    wait_until(lambda: bool(pen.client().get("agents", "bob", "messages")["messages"]))
    assert len(beats(pen)) == 1


def test_g5_idle_while_the_hub_was_away_counts(pen: Pen) -> None:
    role(pen, idle_timeout="3s", message="late")
    start(pen)
    pen.kill_hub()
    pen.start()
    wait_until(lambda: len(beats(pen)) == 1)


@pytest.mark.parametrize(
    ("condition", "count"), [("true", 1), ("false", 0), ('test -n "$BULLPEN_ACTOR"', 1)]
)
@pytest.mark.few(1)
def test_g5_the_condition_decides(pen: Pen, condition: str, count: int) -> None:
    marked = f"touch asked; {condition}"
    role(pen, idle_timeout="1s", message="met", condition=marked)
    start(pen)
    wait_until((pen.root / "asked").exists)
    if count:
        wait_until(lambda: len(beats(pen)) == 1)
    else:
        # Its shell has ended by the time that another agent's whole period has passed.
        pen.run(role="worker", name="bob", words=[])
        wait_until(lambda: len(pen.events("bob", "agent.state")) > 1)
    assert len(beats(pen)) == count


def test_g5_a_condition_that_is_not_met_is_asked_again(pen: Pen) -> None:
    """ "Wake me when there is work": the work comes after the first question."""
    change_hub(pen, "import bullpen.hub.messages.heartbeat as it; it.LEAST_AGAIN_SECONDS = 0.2")
    role(pen, idle_timeout="1s", message="there is work", condition="echo >> asked; test -e work")
    start(pen)
    asked = pen.root / "asked"
    wait_until(lambda: asked.exists() and len(asked.read_text()) > 1)
    assert beats(pen) == []
    (pen.root / "work").touch()
    wait_until(lambda: len(beats(pen)) == 1)
