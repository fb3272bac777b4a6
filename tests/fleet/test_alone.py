"""One machine does not notice that there could be others."""

import json
import time
from pathlib import Path

import pytest

from tests.hub.pen import Pen, change_hub, made_pen
from tests.waiting import wait_until

# The hub writes down again and again what it has loaded, and when.
MODULES = """
import json, os, sys, threading, time
def write():
    while True:
        now = time.time()
        names = [n for n in list(sys.modules) if n.startswith(("nats.", "bullpen.fleet"))]
        with open({file!r} + ".new", "w") as file:
            json.dump([now, names], file)
        os.replace({file!r} + ".new", {file!r})
        time.sleep(0.05)
if sys.argv[:1] != ["-c"]:
    threading.Thread(target=write, daemon=True).start()
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_alone", [True, False])
def test_l5_without_the_block_nothing_of_the_fleet_is_loaded(is_alone: bool) -> None:
    with made_pen() as pen:
        file = pen.root.parent / "modules.json"
        if not is_alone:  # so that the test sees what it looks for
            with (pen.root / "config.yaml").open("a") as config:
                config.write('fleet: {url: "nats://127.0.0.1:1", name: h1}\n')
        change_hub(pen, MODULES.format(file=str(file)))
        assert pen.ask("GET", "/agents")[0] == 200
        link = _link(pen)
        assert link == "none" if is_alone else link != "none"
        status, answer = pen.ask("GET", "/agents/h2%2Famy")
        assert status == (404 if is_alone else 503), answer
        if not is_alone:
            wait_until(lambda: bool(loaded(file)[1]))
        asked = time.time()
        wait_until(lambda: loaded(file)[0] > asked)
        assert bool(loaded(file)[1]) == (not is_alone)


def loaded(file: Path) -> tuple[float, list[str]]:
    if not file.exists():
        return 0.0, []
    when, names = json.loads(file.read_text())
    return when, names


def _link(pen: Pen) -> str:
    return str(pen.ask("GET", "/fleet")[1]["link"])
