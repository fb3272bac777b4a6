"""One machine does not notice that there could be others."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hub.pen import Pen, change_hub, made_pen
from tests.waiting import wait_until

# The hub writes down again and again what it has loaded and begun, and when.
MODULES = """
import asyncio, gc, json, os, sys, threading, time
def write():
    while True:
        now = time.time()
        names = [n for n in list(sys.modules) if n.startswith(("nats.", "bullpen.fleet"))]
        begun = [t.get_name() for t in gc.get_objects() if type(t) is asyncio.Task and not t.done()]
        names += [n for n in begun if n.startswith("fleet")]
        names += [t.name for t in threading.enumerate() if "fleet" in t.name]
        with open({file!r} + ".new", "w") as file:
            json.dump([now, names], file)
        os.replace({file!r} + ".new", {file!r})
        time.sleep(0.2)
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
        names = loaded(file)[1]
        assert bool(names) == (not is_alone), names
        # Neither modules nor tasks nor threads; those of a machine of a fleet are seen.
        assert any(name.startswith("fleet") for name in names) == (not is_alone), names


# Every command's module and all that the hub loads when it starts.
LOADED = """
import importlib, pkgutil, sys
import bullpen.cli.commands, bullpen.hub.http.app, bullpen.hub.parts
for module in pkgutil.iter_modules(bullpen.cli.commands.__path__):
    importlib.import_module("bullpen.cli.commands." + module.name)
print([name for name in sys.modules if name.split(".")[0] == "nats" or "bullpen.fleet" in name])
"""


@pytest.mark.slow
def test_l5_no_command_and_no_part_of_the_hub_loads_the_fleet_to_be_there() -> None:
    words = [sys.executable, "-c", LOADED]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "[]\n"


def loaded(file: Path) -> tuple[float, list[str]]:
    if not file.exists():
        return 0.0, []
    when, names = json.loads(file.read_text())
    return when, names


def _link(pen: Pen) -> str:
    return str(pen.ask("GET", "/fleet")[1]["link"])
