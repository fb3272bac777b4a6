"""`bullpen attach` on an agent of another machine."""

import contextlib
import os
import select
import signal
from collections.abc import Iterator

import pytest

from bullpen.client.holder import connect
from tests.at_terminal import AtTerminal
from tests.fleet.machines import Machines, made_machines
from tests.hub.pen import Pen
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ECHO = ("/bin/sh", "-c", 'while read -r line; do echo "<$line> $(stty size)"; done; exit 3')
FLOOD = ("/bin/sh", "-c", "read -r go; yes 0123456789abcdef | head -c 20000000; echo; echo over")


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with made_machines("h1", "h2") as made:
        yield made


@contextlib.contextmanager
def attached(pen: Pen, *words: str) -> Iterator[AtTerminal]:
    """A person at a terminal of that machine."""
    env = {**pen.env, "BULLPEN_DIR": str(pen.root), "TERM": "xterm-256color"}
    terminal = AtTerminal("attach", *words, **env)
    try:
        yield terminal
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(terminal.pid, signal.SIGKILL)
            os.waitpid(terminal.pid, 0)


def test_l2_a_terminal_of_another_machine_is_attached_left_and_ended(machines: Machines) -> None:
    h1, h2 = machines.hosts["h1"], machines.hosts["h2"]
    h2.run(*ECHO, name="amy")
    with attached(h1, "h2/amy") as terminal:
        terminal.expect("leaves")
        terminal.type("hello\r")
        terminal.expect("<hello>")
        terminal.type("\x1c")  # ctrl-\
        terminal.expect("[detached from h2/amy · bullpen attach h2/amy]")
        assert terminal.end() == 0
    assert h2.agents()["amy"]["running"]
    with attached(h1, "h2/amy") as terminal:  # what was there is shown again
        terminal.expect("<hello>")
        terminal.type("\x04")
        terminal.expect("h2/amy ended: exit code 3")
        assert terminal.end() == 0


@pytest.mark.storm
def test_l2_attach_says_what_there_is_not(machines: Machines) -> None:
    h1 = machines.hosts["h1"]
    for name, says in (("h2/nobody", "no agent called nobody"), ("h9/amy", "no hub of that name")):
        with attached(h1, name) as terminal:
            terminal.expect(says)
            assert terminal.end() in (3, 4)


def test_l2_a_terminal_whose_machine_is_lost_says_so_and_claims_no_more(machines: Machines) -> None:
    h1, h2 = machines.hosts["h1"], machines.hosts["h2"]
    h2.run(*ECHO, name="cut")
    with attached(h1, "h2/cut") as terminal:
        terminal.expect("leaves")
        h2.kill_hub()
        terminal.expect("the connection to h2/cut was lost; it may go on")
        assert terminal.end() == 3
    h2.start()
    assert h2.agents()["cut"]["running"]
    # What the hub that was killed had said stands for some seconds.
    wait_until(lambda: machines.shown("h2")["link"] == "connected")


@pytest.mark.storm
def test_l2_a_slow_terminal_is_waited_for_and_disturbs_nobody_else(machines: Machines) -> None:
    """20 MB, of which one reads nothing at first: no more than the windows is on its way."""
    h1, h2 = machines.hosts["h1"], machines.hosts["h2"]
    h2.run(*FLOOD, name="flood")
    h2.run(*ECHO, name="calm")
    with connect(h1.home, "h2/flood") as slow, connect(h1.home, "h2/calm") as calm:
        for line in (slow, calm):
            line.send_fields(b"A", {"read_only": False, "rows": 24, "cols": 80})
        slow.send(b"I", b"go\r")
        wait_until(lambda: len(h2.log("flood")) > 1 << 20)
        calm.send(b"I", b"hello\r")
        received = b""
        while b"<hello>" not in received:
            assert select.select([calm], [], [], 60)[0]
            received += b"".join(body for kind, body in calm.read() if kind in (b"P", b"O"))
        # Now it reads: everything in its order, or the holder's word that it was too slow.
        output, dropped = b"", False
        while not (dropped or b"over" in output):
            assert select.select([slow], [], [], 60)[0]
            for kind, body in slow.read():
                dropped |= kind == b"D"
                output = output[-100:] + body if kind in (b"P", b"O") else output
    wait_until(lambda: h2.ask("GET", "/agents/calm")[0] == 200)
