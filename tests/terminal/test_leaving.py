"""What is left behind on the terminal, however the client comes to its end."""

import os
import signal
import termios
import time
from pathlib import Path

import pytest

from bullpen.terminal.undo import KITTY_DEPTH
from tests.holder.programs import HEXER, shell
from tests.processes import alive
from tests.terminal.person import Person, modes_left_on
from tests.terminal.stage import Stage
from tests.waiting import wait_until

from .programs import DETACHED, FLOOD, LOUD, slow

pytestmark = pytest.mark.slow


def test_a1_leaving_undoes_every_mode(stage: Stage) -> None:
    stage.agent("amy", LOUD)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    assert {b"1049", b"1003", b"1006", b"1004", b"2004", b"2031"} <= modes_left_on(person.seen)
    said = person.detach()
    assert modes_left_on(person.seen) == set()
    for undone in (b"\x1b[<1u", b"\x1b[>4m", b"\x1b>", b"\x1b[r", b"\x1b[?25h", b"\x1b[0 q"):
        assert undone in said
    assert said.index(b"\x1b[<1u") < said.index(b"\x1b[?1049l") < said.index(DETACHED)
    assert person.settings == person.before


def test_a1_a_quiet_program_leaves_a_terminal_undisturbed(stage: Stage) -> None:
    stage.agent("amy", HEXER)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    said = person.detach()
    for disturbing in (b"\x1b[?1049l", b"\x1b[<", b"\x1b[r", b"\x1b[?1000l"):
        assert disturbing not in said


@pytest.mark.parametrize("number", [signal.SIGTERM, *map(slow, (signal.SIGHUP, signal.SIGINT))])
def test_a1_a_client_that_is_told_to_end_restores_the_terminal(stage: Stage, number: int) -> None:
    holder = stage.agent("amy", LOUD)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    wait_until(lambda: person.is_raw)
    os.kill(person.process.pid, number)
    assert person.wait() == -number
    assert modes_left_on(person.seen) == set()
    assert person.settings == person.before
    assert alive(holder.child)


def test_a1_reset_repairs_what_a_killed_client_left(stage: Stage) -> None:
    stage.agent("amy", LOUD)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    person.process.kill()
    person.wait()
    assert modes_left_on(person.seen)
    assert person.is_raw
    # On the same terminal, as its shell would run it.
    repair = stage.person("reset", at=person)
    assert repair.wait() == 0
    said = repair.seen
    assert modes_left_on(person.seen + said) == set()
    for undone in (b"\x1b[<%du" % KITTY_DEPTH, b"\x1b[>4m", b"\x1b>", b"\x1b[r"):
        assert undone in said
    flags = person.settings[3]
    assert flags & termios.ICANON
    assert flags & termios.ECHO
    assert flags & termios.ISIG
    assert person.settings[1] & termios.OPOST


def shell_after_attach(stage: Stage, tmp_path: Path, **seconds: float) -> Person:
    """A shell script that attaches, and then says what else it was given to read.

    `seconds` are those for which `attach` waits: a busy machine may keep this terminal from
    sending on, or from answering, for longer than a person's would take.
    """
    changes = "".join(f"tty.{name} = {value}\n" for name, value in seconds.items())
    (tmp_path / "sitecustomize.py").write_text(f"from bullpen.terminal import tty\n{changes}")
    script = stage.root / "script"
    attach = f"PYTHONPATH={tmp_path} {stage.bullpen} attach amy"
    script.write_text(f'{attach}; echo BACK; read -t 0.3 line; echo "[$line]"')
    return stage.person(argv=["/bin/bash", "--norc", str(script)])


@pytest.mark.parametrize("size", [10, 20_000])
def test_a1_what_was_typed_after_the_key_does_not_reach_the_shell(
    stage: Stage, tmp_path: Path, size: int
) -> None:
    stage.agent("amy", HEXER)
    person = shell_after_attach(stage, tmp_path, QUIET_SECONDS=1.0, LONGEST_SECONDS=60.0)
    person.wait_for(b"READY")
    # Like a paste without brackets: first the key, then a command.
    person.type(b"\x1c" + b"x" * size + b"\nrm -rf precious\n")
    person.wait_for(b"BACK")
    assert b"[]" in person.wait_for(b"]\r\n", since=person.seen.index(b"BACK"))


def test_a1_what_the_terminal_sends_late_does_not_reach_the_shell(
    stage: Stage, tmp_path: Path
) -> None:
    stage.agent("amy", LOUD)
    person = shell_after_attach(stage, tmp_path, ANSWER_SECONDS=60.0, LONGEST_SECONDS=60.0)
    person.wait_for(b"READY")
    person.late = b"\x1b[<35;10;5M" * 3 + b"\x1b[92;5:3u\n"
    person.type(b"\x1c")
    # The way to the terminal is long: nothing comes for a while.
    begin = time.monotonic()
    wait_until(lambda: time.monotonic() > begin + 0.15)
    person.wait_for(b"BACK")
    assert b"[]" in person.wait_for(b"]\r\n", since=person.seen.index(b"BACK"))


def test_a1_the_end_of_the_program_is_told(stage: Stage) -> None:
    stage.agent("amy", shell("echo READY; read line; printf 'last words'; exit 3"))
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    person.type(b"\r")
    assert person.wait() == 0
    assert person.seen.index(b"last words") < person.seen.index(b"amy ended: exit code 3")
    assert person.settings == person.before


def test_a1_so_is_a_signal(stage: Stage) -> None:
    stage.agent("amy", shell("echo READY; read line; kill -9 $$"))
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    person.type(b"\r")
    assert person.wait() == 0
    assert b"amy ended: signal 9 (SIGKILL)" in person.seen


def test_a1_a_holder_that_is_killed_is_told_from_an_end(stage: Stage) -> None:
    holder = stage.agent("amy", LOUD)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    os.kill(holder.pid, signal.SIGKILL)
    assert person.wait() == 3
    assert b"amy's holder is gone" in person.seen
    assert modes_left_on(person.seen) == set()
    assert person.settings == person.before


@pytest.mark.storm
def test_a1_the_detach_key_works_while_the_terminal_takes_nothing(stage: Stage) -> None:
    holder = stage.agent("amy", FLOOD)
    person = stage.person("attach", "amy")
    person.wait_for(b"\x1b[?1000h")
    person.type(b"\r")
    log = holder.session / "output.log"
    wait_until(lambda: log.stat().st_size > 40_000_000)
    # Not a byte is read until it has left.
    person.type(b"\x1c")
    wait_until(lambda: not person.is_raw)
    person.wait()
    assert DETACHED in person.seen


def test_a1_a_terminal_that_goes_away_ends_the_client_and_not_the_agent(stage: Stage) -> None:
    holder = stage.agent("amy", LOUD)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    person.hang_up()
    wait_until(lambda: person.process.poll() is not None)
    assert person.process.returncode == -signal.SIGHUP
    assert alive(holder.child)
