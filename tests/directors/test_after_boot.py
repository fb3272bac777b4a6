"""What the units of `hub install-service` run after a boot: the lines as systemd reads them."""

import contextlib
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.cli.directors import find_running
from bullpen.cli.view import find_view
from bullpen.client.start import wait_for_hub
from bullpen.component import service
from bullpen.errors import BullpenError
from tests.hub.pen import Pen, made_pen
from tests.processes import alive, kill
from tests.waiting import wait_until


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        yield made


def begin(pen: Pen, unit: Path) -> "subprocess.Popen[bytes]":
    """What systemd does with it."""
    fields = [line.partition("=") for line in unit.read_text().splitlines() if "=" in line]
    words = next(value for name, _, value in fields if name == "ExecStart")
    directory = next(value for name, _, value in fields if name == "WorkingDirectory")
    given = [shlex.split(value)[0] for name, _, value in fields if name == "Environment"]
    env = {**pen.env, **dict(value.split("=", 1) for value in given)}
    return subprocess.Popen(shlex.split(words), cwd=directory, env=env, stdout=subprocess.DEVNULL)


def test_b1_who_waits_for_a_hub_starts_none(pen: Pen) -> None:
    with pytest.raises(BullpenError, match="no hub serves"):
        wait_for_hub(pen.home, 0.05)
    assert pen.hub_pids() == set()


@pytest.mark.slow
def test_b1_directors_and_the_view_come_back_after_a_boot(pen: Pen) -> None:
    (pen.root / "web").mkdir(mode=0o700)
    web = f"port: {pen.free_port()}\nbind: 127.0.0.1\nautostart: true\n"
    (pen.root / "web" / "config.yaml").write_text(web)
    for name, line in (("auto", "autostart: true\n"), ("manual", "")):
        text = f"type: scheduler\nport: {pen.free_port()}\n{line}"
        (pen.home.directors / f"{name}.yaml").write_text(text)
    units, _ = service.install(pen.home, Path(sys.executable), pen.root.parent)
    hub_unit, up_unit = units
    with contextlib.ExitStack() as stack:
        # systemd does not wait until the hub serves.
        up = stack.enter_context(begin(pen, up_unit))
        hub = stack.enter_context(begin(pen, hub_unit))
        stack.callback(hub.terminate)
        stack.callback(pen.cli, "down")
        assert up.wait(120) == 0
        assert (pen.pid, pen.hub_pids()) == (hub.pid, {hub.pid})
        director, view = find_running(pen.home, "auto"), find_view(pen.home)
        assert director is not None
        assert view is not None
        assert find_running(pen.home, "manual") is None
        # A hub alone brings nothing back that a person has stopped.
        assert pen.cli("down", "auto").code == 0
        kill(hub.pid)
        again = stack.enter_context(begin(pen, hub_unit))
        stack.callback(again.terminate)
        wait_until(lambda: alive(again.pid) and pen.answers())
        assert find_running(pen.home, "auto") is None
