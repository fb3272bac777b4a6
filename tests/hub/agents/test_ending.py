"""Commands that wait for the end of an agent say so to a person at a terminal."""

import os
import re
import signal

import pytest

from tests.at_terminal import AtTerminal
from tests.hub.pen import Pen
from tests.hub.programs import python
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

# As an interactive shell does.
DEAF = python(
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('READY', flush=True); time.sleep(1000)"
)
SETTINGS = "stop_grace: 10m\n"  # nobody is killed before it is looked for


@pytest.fixture
def deaf(pen: Pen) -> Pen:
    """A home in which amy ignores SIGTERM."""
    path = pen.root / "config.yaml"
    path.write_text(path.read_text().replace("stop_grace: 5s\n", SETTINGS))
    pen.run(*DEAF, name="amy", pod="team")
    wait_until(lambda: b"READY" in pen.log("amy"))
    return pen


@pytest.mark.parametrize(
    "command",
    [
        ("stop", "amy"),
        ("rm", "amy"),
        ("stop", "amy", "--tree"),
        ("pod", "stop", "team"),
        ("shutdown", "--agents"),
    ],
)
@pytest.mark.few(1)
def test_b8_a_person_is_told_for_whom_a_command_waits(deaf: Pen, command: tuple[str, ...]) -> None:
    env = {"BULLPEN_DIR": str(deaf.root), "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    person = AtTerminal(*command, **env)
    person.expect("waiting for amy to end; killed in ")
    os.kill(deaf.program("amy"), signal.SIGKILL)
    assert person.end() == 0
    assert re.search(r"killed in \d+s", person.text)
    assert "\r\x1b[K" in person.text.rpartition("killed in")[2]  # and the line goes


def test_b8_a_script_reads_the_result_alone(deaf: Pen) -> None:
    stopped = deaf.cli("stop", "amy", "--grace", "2s")
    assert (stopped.code, stopped.err) == (0, "")
    assert stopped.out == "amy stopped · exited (signal 9)\n"
