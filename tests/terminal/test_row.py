"""The drawn terminal: the program's screen, a status row that stays, and what is passed on."""

import pytest

from bullpen.terminal.row import FRAME_SECONDS, Drawn, PassedOn
from bullpen.terminal.screen import Screen

PASSED = {
    "mouse": (b"\x1b[?1000h", b"\x1b[?1000h"),
    "mouse off": (b"\x1b[?1000;1006l", b"\x1b[?1000;1006l"),
    "paste among others": (b"\x1b[?2004;1049;25h", b"\x1b[?2004h"),
    "cursor keys": (b"\x1b[?1h\x1b=", b"\x1b[?1h\x1b="),
    "kitty": (b"\x1b[>5u\x1b[<1u\x1b[?u", b"\x1b[>5u\x1b[<1u\x1b[?u"),
    "modifyOtherKeys": (b"\x1b[>4;2m", b"\x1b[>4;2m"),
    "questions": (b"\x1b[c\x1b[6n\x1b[>c\x1b[>q", b"\x1b[c\x1b[6n\x1b[>c\x1b[>q"),
    "mode question": (b"\x1b[?2026$p", b"\x1b[?2026$p"),
    "colour question": (b"\x1b]11;?\x07", b"\x1b]11;?\x07"),
    "clipboard": (b"\x1b]52;c;aGk=\x07", b"\x1b]52;c;aGk=\x07"),
    "cursor shape": (b"\x1b[6 q", b"\x1b[6 q"),
    "bell": (b"text\x07", b"\x07"),
}
KEPT = [
    b"text",
    b"\x1b[31m",
    b"\x1b[2J\x1b[H",
    b"\x1b[?1049h",
    b"\x1b[?25l",
    b"\x1b[?2026h",
    b"\x1b[?2048h",
    b"\x1b[2;5r",
    b"\x1b]0;a title\x07",
    b"\x1b]11;#ff0000\x07",
    b"\x1bPq#0;2;0;0;0\x1b\\",
]


@pytest.mark.parametrize(("output", "passed"), PASSED.values(), ids=PASSED)
def test_a2_input_modes_and_questions_reach_the_terminal(output: bytes, passed: bytes) -> None:
    assert PassedOn().feed(output) == passed
    single = PassedOn()
    pieces = [single.feed(output[n : n + 1]) for n in range(len(output))]
    assert b"".join(pieces) == passed


@pytest.mark.parametrize("output", KEPT)
def test_a2_what_draws_does_not(output: bytes) -> None:
    assert PassedOn().feed(output) == b""
    single = PassedOn()
    assert b"".join(single.feed(output[n : n + 1]) for n in range(len(output))) == b""


def test_a2_a_reset_turns_input_modes_off() -> None:
    assert b"1000" in PassedOn().feed(b"\x1bc")


class Terminal:
    """What a real one would show of what is drawn."""

    def __init__(self, view: Drawn, rows: int, cols: int) -> None:
        self.view = view
        self.screen = Screen(rows, cols)
        self.now = 100.0
        self.screen.feed(view.open((rows, cols)))

    def after(self, *outputs: bytes) -> list[str]:
        for output in outputs:
            self.view.feed(output)
        self.now += FRAME_SECONDS
        self.screen.feed(self.view.take(self.now))
        return self.screen.lines()


def drawn(rows: int = 5, cols: int = 20, **more: bool) -> Terminal:
    view = Drawn(**{"status": True, "read_only": False, **more}, program=(24, 80))
    terminal = Terminal(view, rows, cols)
    view.show_status("amy · idle")
    return terminal


def test_a2_the_status_row_survives_a_clear() -> None:
    terminal = drawn()
    assert terminal.after(b"hello") == ["hello", "", "", "", "amy · idle"]
    assert terminal.after(b"\x1b[H\x1b[2J\x1b[3Jnew") == ["new", "", "", "", "amy · idle"]
    assert terminal.after(b"\x1bcreset") == ["reset", "", "", "", "amy · idle"]
    assert terminal.after(b"\x1b[?1049hother\x1b[99;1Hlow")[3:] == ["low", "amy · idle"]


def test_a2_the_program_gets_one_row_less() -> None:
    terminal = drawn()
    assert terminal.view.asked_size() == {"rows": 4, "cols": 20}
    assert terminal.after(b"1\r\n2\r\n3\r\n4\r\n5") == ["2", "3", "4", "5", "amy · idle"]
    assert (terminal.screen.cursor.row, terminal.screen.cursor.col) == (3, 1)


def test_a2_a_tiny_terminal_has_no_status() -> None:
    assert drawn(rows=2).view.asked_size() == {"rows": 2, "cols": 20}


def test_a2_a_new_size_is_drawn_whole() -> None:
    terminal = drawn()
    terminal.after(b"hello")
    terminal.screen.feed(b"\x1b[2Jgarbage")
    terminal.screen.resize(8, 30)
    terminal.screen.feed(terminal.view.resize((8, 30)))
    assert terminal.after() == ["hello", *[""] * 6, "amy · idle"]
    assert terminal.view.asked_size() == {"rows": 7, "cols": 30}


def test_a2_a_shorter_line_leaves_nothing_of_the_longer_one() -> None:
    terminal = drawn()
    terminal.after(b"x" * 20)
    assert terminal.after(b"\x1b[H\x1b[2Kab")[0] == "ab"


def test_a1_a_watcher_sees_the_program_in_its_own_size_and_changes_nothing() -> None:
    terminal = drawn(status=False, read_only=True)
    assert terminal.view.asked_size() == {}
    assert terminal.after(b"\x1b[2;70Hfar\x1b[1;1Hnear") == ["near", "", "", "", ""]
    # Someone else made the program's terminal narrow.
    terminal.view.restart((5, 4))
    assert terminal.after(b"abcdef") == ["abcd", "ef", "", "", ""]
    assert b"1000" not in terminal.view.take(1e9)


def test_a1_a_watcher_passes_nothing_on() -> None:
    terminal = drawn(status=False, read_only=True)
    terminal.view.feed(b"\x1b[?1000h\x1b[c\x07")
    said = terminal.view.take(1e9)
    assert b"1000" not in said
    assert b"\x1b[c" not in said


def test_a2_many_pieces_are_one_picture() -> None:
    terminal = drawn()
    terminal.after(b"start")
    for number in range(100):
        terminal.view.feed(b"\r%d" % number)
        assert terminal.view.take(terminal.now + FRAME_SECONDS / 2) == b""
    assert terminal.view.wait(terminal.now) == pytest.approx(FRAME_SECONDS)
    assert terminal.after()[0] == "99art"
    assert terminal.view.wait(terminal.now) is None
