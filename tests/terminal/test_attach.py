"""`bullpen attach` at a bare pseudo-terminal: what gets through, and what is left behind."""

import os
import signal
import termios
import time
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from bullpen.terminal.undo import KITTY_DEPTH
from tests.conftest import wait_until
from tests.holder.conftest import HEXER, SIZER, alive, python, shell, ticks

from .conftest import Person, Stage, modes_left_on

# Turns everything on that a terminal has, says READY, then says in hexadecimal what it is given.
EVERYTHING_ON = (
    b"\\x1b[?1049h\\x1b[?1000h\\x1b[?1002h\\x1b[?1003h\\x1b[?1005h\\x1b[?1006h\\x1b[?1015h"
    b"\\x1b[?1004h\\x1b[?2004h\\x1b[?2031h\\x1b[?2026h\\x1b[?1h\\x1b=\\x1b[?25l\\x1b[2;9r"
    b"\\x1b[>5u\\x1b[>4;2m\\x1b[31;44m\\x1b[6 q\\x1b]0;mine\\x07"
).decode()
LOUD = python(
    f"""
import os, tty
tty.setraw(0)
os.write(1, b"{EVERYTHING_ON}READY")
while piece := os.read(0, 65536):
    os.write(1, piece.hex().encode())
"""
)


def slow(value: object) -> ParameterSet:
    return pytest.param(value, marks=pytest.mark.slow)


DETACHED = b"[detached from amy \xc2\xb7 bullpen attach amy]"


def test_a1_keys_and_output_go_through(stage: Stage) -> None:
    stage.agent("amy", shell('stty -echo; echo READY; read line; echo "got: $line"; read line'))
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    person.type("wörld\r".encode())
    person.wait_for("got: wörld".encode())
    said = person.detach()
    assert DETACHED in said
    assert person.settings == person.before


@pytest.mark.slow
def test_a1_the_agent_goes_on_and_is_shown_again_at_the_next_attach(stage: Stage) -> None:
    holder = stage.agent("amy", HEXER)
    first = stage.person("attach", "amy")
    first.wait_for(b"READY")
    first.type(b"ab")
    first.wait_for(b"6162")
    first.detach()
    assert alive(holder.child)
    second = stage.person("attach", "amy")
    second.wait_for(b"READY", b"6162")
    second.detach()


@pytest.mark.slow
def test_a1_the_program_has_the_size_of_the_terminal_and_its_changes(stage: Stage) -> None:
    stage.agent("amy", SIZER)
    person = stage.person("attach", "amy", size=(30, 90))
    person.wait_for(b"<30 90>")
    person.resize(40, 100)
    person.wait_for(b"<40 100>")
    person.detach()


@pytest.mark.parametrize(
    "key", [b"\x1b[92;5:1u", *map(slow, (b"\x1c", b"\x1b[92;5u", b"\x1b[27;5;92~"))]
)
def test_a1_the_key_leaves_also_when_the_program_changed_the_keyboard(
    stage: Stage, key: bytes
) -> None:
    stage.agent("amy", LOUD)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    person.type(key + b"\x1b[92;5:3u")
    assert person.wait() == 0
    assert DETACHED in person.seen
    watcher = stage.person("attach", "amy", "--read-only")
    watcher.wait_for(b"READY")
    watcher.detach()
    assert b"1b" not in watcher.seen  # nothing of the key came to the program


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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_a1_mouse_and_paste_reach_the_program_as_they_are(stage: Stage) -> None:
    stage.agent("amy", LOUD)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    for event in (b"\x1b[<0;10;5M\x1b[<0;10;5m", b"\x1b[200~two\nlines\x1c\x1b[201~", b"\x1b[I"):
        person.type(event)
        person.wait_for(event.hex().encode())
    person.detach()


@pytest.mark.slow
def test_a1_escape_alone_gets_through(stage: Stage) -> None:
    stage.agent("amy", HEXER)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    person.type(b"\x1b")
    person.wait_for(b"READY 1b")
    person.type(b"\x1b[A")
    person.wait_for(b"READY 1b1b5b41")
    person.detach()


def shell_after_attach(stage: Stage) -> Person:
    """A shell script that attaches, and then says what else it was given to read."""
    script = stage.root / "script"
    script.write_text(f'{stage.bullpen} attach amy; echo BACK; read -t 0.3 line; echo "[$line]"')
    return stage.person(argv=["/bin/bash", "--norc", str(script)])


@pytest.mark.parametrize("size", [10, 20_000])
def test_a1_what_was_typed_after_the_key_does_not_reach_the_shell(stage: Stage, size: int) -> None:
    stage.agent("amy", HEXER)
    person = shell_after_attach(stage)
    person.wait_for(b"READY")
    # Like a paste without brackets: first the key, then a command.
    person.type(b"\x1c" + b"x" * size + b"\nrm -rf precious\n")
    person.wait_for(b"BACK")
    assert b"[]" in person.wait_for(b"]\r\n", since=person.seen.index(b"BACK"))


def test_a1_what_the_terminal_sends_late_does_not_reach_the_shell(stage: Stage) -> None:
    stage.agent("amy", LOUD)
    person = shell_after_attach(stage)
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


@pytest.mark.slow
def test_a1_so_is_a_signal(stage: Stage) -> None:
    stage.agent("amy", shell("echo READY; read line; kill -9 $$"))
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    person.type(b"\r")
    assert person.wait() == 0
    assert b"amy ended: signal 9 (SIGKILL)" in person.seen


@pytest.mark.slow
def test_a1_a_holder_that_is_killed_is_told_from_an_end(stage: Stage) -> None:
    holder = stage.agent("amy", LOUD)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    os.kill(holder.pid, signal.SIGKILL)
    assert person.wait() == 3
    assert b"amy's holder is gone" in person.seen
    assert modes_left_on(person.seen) == set()
    assert person.settings == person.before


def test_a1_watching_types_nothing_and_changes_no_size(stage: Stage) -> None:
    stage.agent("amy", SIZER, rows=20, cols=70)
    person = stage.person("attach", "amy", "--read-only", size=(50, 150))
    person.wait_for(b"<20 70>")
    person.type(b"typed")
    person.resize(55, 155)
    person.type(b"more")
    said = person.detach()
    assert DETACHED in said
    assert b"<50" not in person.seen
    assert b"<55" not in person.seen
    assert modes_left_on(person.seen) == set()


FLOOD = shell(
    r"""
    stty -echo; printf '\033[?1000h'; read go; head -c 20000000 /dev/zero | tr '\0' x
    printf '\033[?1000l'; head -c 20000000 /dev/zero | tr '\0' x; echo; echo THE-END; read go
    """
)


@pytest.mark.slow
def test_a1_a_slow_terminal_is_attached_again_and_ends_up_right(stage: Stage) -> None:
    # More than the holder keeps for a client, while nobody reads the terminal.
    holder = stage.agent("amy", FLOOD)
    person = stage.person("attach", "amy")
    person.wait_for(b"\x1b[?1000h")
    log = holder.session / "output.log"
    person.type(b"\r")
    # The program is never held up by a terminal.
    wait_until(lambda: log.stat().st_size > 40_000_000 and b"THE-END" in log.read_bytes()[-20:])
    person.wait_for(b"THE-END")
    assert len(person.seen) < 30_000_000
    assert modes_left_on(person.seen) == set()  # what was lost turned the mouse off
    person.detach()


@pytest.mark.slow
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


@pytest.mark.slow
def test_a1_the_detach_key_is_a_setting(stage: Stage) -> None:
    (stage.root / "config.yaml").write_text("detach_key: ctrl-a\n")
    stage.agent("amy", HEXER)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY", b"ctrl-a leaves")
    person.type(b"\x1c")
    person.wait_for(b"READY 1c")
    person.type(b"\x01")
    assert person.wait() == 0


@pytest.mark.slow
def test_a2_the_title_says_who_and_how_to_leave_and_goes_away(stage: Stage) -> None:
    stage.agent("amy", LOUD)
    person = stage.person("attach", "amy")
    title = "\x1b]2;amy · coder · csv · ctrl-\\ leaves\x07".encode()
    # Also after the program set one of its own.
    person.wait_for(b"\x1b]0;mine\x07")
    person.wait_for(title, since=person.seen.index(b"\x1b]0;mine\x07"))
    said = person.detach()
    assert person.seen.startswith(b"\x1b[22;2t")
    assert b"\x1b[23;2t" in said


def test_a2_the_status_row_stays_and_the_program_has_one_row_less(stage: Stage) -> None:
    stage.agent("amy", SIZER)
    person = stage.person("attach", "amy", "--status", size=(30, 60))
    person.wait_for(b"<29 60>", "\x1b[30;1H\x1b[7mamy · coder · csv".encode())
    said = person.detach()
    assert DETACHED in said
    assert modes_left_on(person.seen) == set()


def test_a1_no_such_agent_names_those_that_run(stage: Stage) -> None:
    stage.agent("amy", HEXER)
    stage.agent("bob", HEXER)
    (stage.root / "sockets" / "agent.dead.sock").write_text("")
    person = stage.person("attach", "nobody")
    assert person.wait() == 4
    assert "error: no agent called nobody · running: amy, bob".encode() in person.seen
    strange = stage.person("attach", "no/body")
    assert strange.wait() == 4
    assert b"no agent called no/body" in strange.seen


def test_a1_without_a_terminal_the_alternatives_are_named(stage: Stage) -> None:
    stage.agent("amy", HEXER)
    done = stage.run("attach", "amy")
    assert done.returncode == 2
    assert b"attach needs a terminal" in done.stderr
    assert b"bullpen peek amy" in done.stderr
    assert b"bullpen logs -f amy" in done.stderr


@pytest.mark.slow
def test_a1_an_agent_cannot_attach_to_itself(stage: Stage) -> None:
    stage.agent("amy", HEXER)
    done = stage.run("attach", "amy", BULLPEN_ACTOR="amy")
    assert done.returncode == 2
    assert b"amy cannot attach to itself" in done.stderr
    other = stage.run("attach", "amy", BULLPEN_ACTOR="bob")
    assert b"attach needs a terminal" in other.stderr


@pytest.mark.slow
def test_a1_an_agent_without_a_terminal_is_said_to_have_none(stage: Stage) -> None:
    stage.agent("amy", ["/bin/cat"], mode="pipe")
    person = stage.person("attach", "amy")
    assert person.wait() == 7
    assert b"amy has no terminal" in person.seen
    assert person.settings == person.before


def test_a1_a_holder_that_does_not_answer_is_not_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bullpen.client import holder as client
    from bullpen.errors import BullpenError, Kind
    from bullpen.paths import Home

    holder = stage.agent("amy", HEXER)
    monkeypatch.setattr(client, "GREETING_SECONDS", 0.2)
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        with pytest.raises(BullpenError, match="does not answer") as raised:
            client.connect(Home(stage.root), "amy")
        assert raised.value.kind is Kind.UNAVAILABLE
    finally:
        os.kill(holder.pid, signal.SIGCONT)


@pytest.mark.slow
def test_a1_the_ssh_agent_of_the_person_is_pointed_at(stage: Stage, tmp_path: Path) -> None:
    stage.agent("amy", HEXER)
    person = stage.person("attach", "amy", SSH_AUTH_SOCK=str(tmp_path / "agent.1"))
    person.wait_for(b"READY")
    assert (stage.root / "sockets" / "ssh-agent").readlink() == tmp_path / "agent.1"
    person.detach()


@pytest.mark.slow
def test_a1_stopped_and_continued_it_is_attached_anew(stage: Stage) -> None:
    stage.agent("amy", LOUD)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    os.kill(person.process.pid, signal.SIGSTOP)
    since = len(person.seen)
    termios.tcsetattr(person.terminal, termios.TCSANOW, person.before)  # as a shell does
    os.kill(person.process.pid, signal.SIGCONT)
    person.wait_for(b"READY", since=since)
    assert person.is_raw
    person.detach()


@pytest.mark.slow
def test_a1_a_terminal_that_goes_away_ends_the_client_and_not_the_agent(stage: Stage) -> None:
    holder = stage.agent("amy", LOUD)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    person.hang_up()
    wait_until(lambda: person.process.poll() is not None)
    assert person.process.returncode == -signal.SIGHUP
    assert alive(holder.child)


@pytest.mark.slow
def test_a1_a_client_that_waits_uses_no_processor(stage: Stage) -> None:
    holder = stage.agent("amy", FLOOD)
    idle = stage.person("attach", "amy")
    stuck = stage.person("attach", "amy")
    for person in (idle, stuck):
        person.wait_for(b"\x1b[?1000h")
    stuck.type(b"\r")
    log = holder.session / "output.log"
    wait_until(lambda: log.stat().st_size > 40_000_000)
    idle.wait_for(b"THE-END")
    used = {person: ticks(person.process.pid) for person in (idle, stuck)}
    begin = time.monotonic()
    wait_until(lambda: time.monotonic() > begin + 2.5)
    for person, before in used.items():
        assert ticks(person.process.pid) - before <= 4  # hundredths of a second
    idle.detach()
