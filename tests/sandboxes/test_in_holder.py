"""Sandboxes in a real holder: stopped, killed, and what is left."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.sandboxes.base import Network
from tests.holder.factory import Factory, Holder, made_factory
from tests.processes import alive
from tests.sandboxes.machine import Machine, made_machine
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

MODES = ("pty", "pipe")


@pytest.fixture
def factory() -> Iterator[Factory]:
    with made_factory() as made:
        made.start()
        yield made


@pytest.fixture
def own(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Of the user who runs the tests: the holder is."""
    with made_machine(os.getuid()) as machine:
        yield machine


def held(
    machine: Machine, factory: Factory, mode: str, script: str, *, relay: bool = False
) -> Holder:
    policy = machine.policy(
        is_terminal=mode == "pty",
        # A file of the test's mark would be cut from the environment.
        keep=frozenset({"HOLDER_TEST"}),
        network=Network(4001, 4002) if relay else None,
    )
    wrapped = machine.wrap(["bash", "-c", script], policy, env=factory.env())
    return factory.hold(list(wrapped.argv), mode=mode, env=dict(wrapped.env))


@pytest.mark.parametrize("relay", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_x2_stop_lets_it_clean_up(own: Machine, factory: Factory, mode: str, relay: bool) -> None:
    script = (
        "trap 'sleep 0.3; echo x >cleaned; exit 6' TERM; echo READY; while :; do sleep 0.02; done"
    )
    holder = held(own, factory, mode, script, relay=relay)
    client = holder.ready()
    record = client.stop(20)
    assert record["code"] == 6
    assert (own.cwd / "cleaned").exists()


@pytest.mark.parametrize("mode", MODES)
def test_x2_nothing_is_left_when_the_holder_is_killed(
    own: Machine, factory: Factory, mode: str
) -> None:
    script = "trap '' TERM HUP; setsid sleep 876543 & echo READY; while :; do date +%N >beat; done"
    holder = held(own, factory, mode, script)
    holder.ready()
    wait_until((own.cwd / "beat").exists)
    os.kill(holder.pid, signal.SIGKILL)
    wait_until(lambda: not alive(holder.child) and not runs("876543"))


def runs(word: str) -> bool:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (entry / "cmdline").read_bytes() and alive(int(entry.name)):
                return True
        except OSError:
            continue
    return False


def test_x2_a_signal_that_ends_the_program_is_told_as_an_exit_code(
    own: Machine, factory: Factory
) -> None:
    holder = held(own, factory, "pipe", "echo READY; exec sleep 1000")
    assert holder.ready().stop(20)["code"] == 128 + signal.SIGTERM
