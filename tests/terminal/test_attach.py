"""`bullpen attach` at a bare pseudo-terminal: what gets through, both ways."""

import json
import os
import signal
import socketserver
import termios
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from bullpen.terminal.screen import Screen
from tests.holder.programs import HEXER, RAW, SIZER, python, shell
from tests.processes import alive, wait_idle
from tests.terminal.person import modes_left_on
from tests.terminal.stage import Stage
from tests.waiting import wait_until

from .programs import DETACHED, FLOOD, LOUD, slow

pytestmark = pytest.mark.slow


def test_a1_keys_and_output_go_through(stage: Stage) -> None:
    stage.agent("amy", shell('stty -echo; echo READY; read line; echo "got: $line"; read line'))
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    person.type("wörld\r".encode())
    person.wait_for("got: wörld".encode())
    said = person.detach()
    assert DETACHED in said
    assert person.settings == person.before


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
@pytest.mark.few(1)
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


def test_a1_mouse_and_paste_reach_the_program_as_they_are(stage: Stage) -> None:
    stage.agent("amy", LOUD)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    for event in (b"\x1b[<0;10;5M\x1b[<0;10;5m", b"\x1b[200~two\nlines\x1c\x1b[201~", b"\x1b[I"):
        person.type(event)
        person.wait_for(event.hex().encode())
    person.detach()


def test_a1_escape_alone_gets_through(stage: Stage) -> None:
    stage.agent("amy", HEXER)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY")
    person.type(b"\x1b")
    person.wait_for(b"READY 1b")
    person.type(b"\x1b[A")
    person.wait_for(b"READY 1b1b5b41")
    person.detach()


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


# Writes in each row of its terminal which of how many it is, and never clears anything. A handler
# could be interrupted by itself, and write rows of a size of before last.
ROW_BY_ROW = python(
    RAW
    + """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
def draw():
    rows = os.get_terminal_size(1).lines
    os.write(1, b"".join(b"\\x1b[%d;1H%d of %d " % (n, n, rows) for n in range(1, rows + 1)))
draw()
while signal.sigwait({signal.SIGWINCH}):
    draw()
"""
)


@pytest.mark.parametrize("status", [(), ("--status",), ("--read-only",)], ids=str)
@pytest.mark.few(1)
def test_a1_a_smaller_terminal_leaves_no_rows_of_before_on_a_larger_one(
    stage: Stage, status: tuple[str, ...]
) -> None:
    stage.agent("amy", ROW_BY_ROW)
    other = stage.person("attach", "amy", size=(30, 100))
    other.wait_for(b"30 of 30")
    large = stage.person("attach", "amy", *status, size=(30, 100))

    def shown(rows: int) -> bool:
        large.pump(0.05)
        screen = Screen(30, 100)
        screen.feed(large.seen)
        lines = [line.strip() for line in screen.lines()]
        return lines[:rows] == [f"{n} of {rows}" for n in range(1, rows + 1)] and not any(
            lines[rows : 30 - len(status)]
        )

    wait_until(lambda: shown(29 if status == ("--status",) else 30))
    small = stage.person("attach", "amy", size=(12, 40))
    wait_until(lambda: shown(12))
    small.detach()
    wait_until(lambda: shown(29 if status == ("--status",) else 30))
    for person in (other, large):
        person.detach()


@pytest.mark.storm
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


def test_a1_the_detach_key_is_a_setting(stage: Stage) -> None:
    (stage.root / "config.yaml").write_text("detach_key: ctrl-a\n")
    stage.agent("amy", HEXER)
    person = stage.person("attach", "amy")
    person.wait_for(b"READY", b"ctrl-a leaves")
    person.type(b"\x1c")
    person.wait_for(b"READY 1c")
    person.type(b"\x01")
    assert person.wait() == 0


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


def test_a1_the_ssh_agent_of_the_person_is_pointed_at(stage: Stage, tmp_path: Path) -> None:
    stage.agent("amy", HEXER)
    person = stage.person("attach", "amy", SSH_AUTH_SOCK=str(tmp_path / "agent.1"))
    person.wait_for(b"READY")
    assert (stage.root / "sockets" / "ssh-agent").readlink() == tmp_path / "agent.1"
    person.detach()


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


def test_a2_attached_anew_the_title_is_there_again(stage: Stage) -> None:
    stage.agent("amy", HEXER)
    person = stage.person("attach", "amy")
    title = "\x1b]2;amy · coder · csv · ctrl-\\ leaves\x07".encode()
    person.wait_for(b"READY", title)
    os.kill(person.process.pid, signal.SIGSTOP)
    since = len(person.seen)
    os.kill(person.process.pid, signal.SIGCONT)
    person.wait_for(b"\x1b[23;2t", since=since)
    person.wait_for(title, since=person.seen.index(b"\x1b[23;2t", since))
    person.detach()


@pytest.mark.storm
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
    for person in (idle, stuck):
        wait_idle(person.process.pid, most=1)
    idle.detach()


class SaidState(socketserver.ThreadingUnixStreamServer):
    """Answers every question as a hub that says this of the agent's state."""

    daemon_threads = True
    words = "idle"


class Saying(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, SaidState)
        if not self.server.words:
            return self.send_error(503)
        body = json.dumps({"words": self.server.words, "summary": ""}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize("bell", [True, False])
def test_a1_the_bell_rings_once_when_the_agent_begins_to_wait_for_a_person(
    stage: Stage, bell: bool
) -> None:
    (stage.root / "config.yaml").write_text(f"bell: {str(bell).lower()}\n")
    stage.agent("amy", HEXER)
    with SaidState(str(stage.root / "sockets" / "hub.sock"), Saying) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        person = stage.person("attach", "amy")
        person.wait_for(b"READY", b"\xc2\xb7 idle \xc2\xb7")
        rang = b"\x1b]9;amy: blocked (permission: Bash)\x07"
        for words in ("blocked (permission: Bash)", "working (Bash)", "blocked (permission: Bash)"):
            before = len(person.seen)
            hub.words = words
            person.wait_for(words.encode(), since=before)
            person.wait_for(b"\x1b]2;", since=before)
        person.detach()
        hub.shutdown()
    assert person.seen.count(rang) == (2 if bell else 0)


def test_a1_the_bell_does_not_ring_again_because_a_busy_hub_said_nothing_once(
    stage: Stage,
) -> None:
    stage.agent("amy", HEXER)
    with SaidState(str(stage.root / "sockets" / "hub.sock"), Saying) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        person = stage.person("attach", "amy")
        person.wait_for(b"READY", b"\xc2\xb7 idle \xc2\xb7")
        nothing_said = "\x1b]2;amy · coder · csv · ctrl-\\ leaves".encode()
        blocked = "blocked (permission: Bash)"
        for words, shown in ((blocked, blocked.encode()), ("", nothing_said), (blocked, b"Bash")):
            before = len(person.seen)
            hub.words = words
            person.wait_for(shown, since=before)
        person.detach()
        hub.shutdown()
    assert person.seen.count(f"\x1b]9;amy: {blocked}\x07".encode()) == 1


def test_a2_the_status_row_is_a_setting(stage: Stage) -> None:
    (stage.root / "config.yaml").write_text("status_row: true\n")
    stage.agent("amy", SIZER)
    person = stage.person("attach", "amy", size=(30, 90))
    person.wait_for(b"<29 90>")
    person.detach()
