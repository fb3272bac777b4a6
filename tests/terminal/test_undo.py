"""What puts a terminal back: exactly what was turned on, whatever pieces it came in."""

import itertools

import pytest

from bullpen.terminal.undo import ALWAYS_FIRST, ALWAYS_LAST, EVERYTHING, Undo

NOTHING = ALWAYS_FIRST + ALWAYS_LAST
# What a program writes, and what has to be in the undoing.
TURNED_ON = {
    "mouse": (b"\x1b[?1000h", b"\x1b[?1000l"),
    "mouse drag": (b"\x1b[?1002h", b"\x1b[?1002l"),
    "mouse motion": (b"\x1b[?1003h", b"\x1b[?1003l"),
    "focus": (b"\x1b[?1004h", b"\x1b[?1004l"),
    "mouse in UTF-8": (b"\x1b[?1005h", b"\x1b[?1005l"),
    "mouse numbers": (b"\x1b[?1006h", b"\x1b[?1006l"),
    "mouse of urxvt": (b"\x1b[?1015h", b"\x1b[?1015l"),
    "mouse in pixels": (b"\x1b[?1016h", b"\x1b[?1016l"),
    "alternate screen": (b"\x1b[?1049h", b"\x1b[?1049l"),
    "older alternate screen": (b"\x1b[?1047h", b"\x1b[?1047l"),
    "oldest alternate screen": (b"\x1b[?47h", b"\x1b[?47l"),
    "bracketed paste": (b"\x1b[?2004h", b"\x1b[?2004l"),
    "colour scheme reports": (b"\x1b[?2031h", b"\x1b[?2031l"),
    "synchronised output": (b"\x1b[?2026h", b"\x1b[?2026l"),
    "cursor keys": (b"\x1b[?1h", b"\x1b[?1l"),
    "origin": (b"\x1b[?6h", b"\x1b[?6l"),
    "no wrapping": (b"\x1b[?7l", b"\x1b[?7h"),
    "hidden cursor": (b"\x1b[?25l", b"\x1b[?25h"),
    "keypad": (b"\x1b=", b"\x1b>"),
    "kitty keyboard": (b"\x1b[>5u", b"\x1b[<1u"),
    "kitty keyboard twice": (b"\x1b[>5u\x1b[>1u", b"\x1b[<2u"),
    "kitty keyboard set": (b"\x1b[=5;1u", b"\x1b[=0u"),
    "modifyOtherKeys": (b"\x1b[>4;2m", b"\x1b[>4m"),
    "scroll region": (b"\x1b[2;10r", b"\x1b7\x1b[r\x1b8"),
    "cursor shape": (b"\x1b[6 q", b"\x1b[0 q"),
    "background": (b"\x1b]11;#ff0000\x07", b"\x1b]111\x1b\\"),
    "palette": (b"\x1b]4;1;#ff0000\x1b\\", b"\x1b]104\x1b\\"),
    "link": (b"\x1b]8;;http://x\x07text", b"\x1b]8;;\x1b\\"),
    "progress bar": (b"\x1b]9;4;1;50\x07", b"\x1b]9;4;0\x1b\\"),
    "several at once": (b"\x1b[?1000;1006;2004h", b"\x1b[?1000l\x1b[?1006l\x1b[?2004l"),
    "colours": (b"\x1b[31;44;1m", b"\x1b[m"),
    "line drawing": (b"\x1b(0\x0e", b"\x1b(B\x0f"),
    "kept title": (b"\x1b[22;2t", b"\x1b[23;2t"),
    "kept titles": (b"\x1b[22;0t\x1b[22;2t", b"\x1b[23;2t\x1b[23;0t"),
    "insert mode": (b"\x1b[4h", b"\x1b[4l"),
}
TURNED_OFF_AGAIN = [
    b"\x1b[?1000h\x1b[?1000l",
    b"\x1b[?1049h\x1b[?1049l",
    b"\x1b[?1000;1006;2004h\x1b[?2004;1006;1000l",
    b"\x1b=\x1b>",
    b"\x1b[>5u\x1b[<u",
    b"\x1b[>5u\x1b[>1u\x1b[<2u",
    b"\x1b[>4;2m\x1b[>4;0m",
    b"\x1b[>4;2m\x1b[>4m",
    b"\x1b[2;10r\x1b[r",
    b"\x1b[?1049h\x1b[?1000h\x1b[>1u\x1b=\x1bc",
    b"\x1b[?1h\x1b=\x1b[2;5r\x1b[!p",
    b"\x1b[22;2t\x1b[23;2t",
    b"\x1b[22;0;0t\x1b[23;0;0t",
]
UNTOUCHING = [
    b"plain text\r\n",
    b"\x1b[31mred\x1b[m",
    b"\x1b[?1049",
    b"\x1b[5;10H",
    b"\x1b]0;title\x07",
    b"\x1b]9;a notification\x07",
    b"\x1b[?2004l",
    b"\x1b[?1049l",
    b"\x1b[<u",
    b"\x1b[?9999h",
]


@pytest.mark.parametrize(("output", "undone"), TURNED_ON.values(), ids=TURNED_ON)
def test_a1_everything_that_is_turned_on_is_undone(output: bytes, undone: bytes) -> None:
    undo = Undo()
    undo.feed(b"text" + output + b"text")
    assert undone in undo.sequences()


@pytest.mark.parametrize(("output", "undone"), TURNED_ON.values(), ids=TURNED_ON)
def test_a1_also_when_it_came_in_pieces(output: bytes, undone: bytes) -> None:
    whole = Undo()
    whole.feed(output)
    for cut in range(1, len(output)):
        undo = Undo()
        undo.feed(output[:cut])
        undo.feed(output[cut:])
        assert undo.sequences() == whole.sequences(), output[:cut]


@pytest.mark.parametrize("output", TURNED_OFF_AGAIN)
def test_a1_what_the_program_undid_itself_is_left_alone(output: bytes) -> None:
    undo = Undo()
    undo.feed(output)
    assert undo.sequences() == NOTHING


@pytest.mark.parametrize("output", UNTOUCHING)
def test_a1_an_untouched_terminal_is_not_disturbed(output: bytes) -> None:
    # Leaving a screen that was never entered moves the cursor; popping flags that were never
    # pushed takes the shell's.
    undo = Undo()
    undo.feed(output)
    assert undo.sequences() == NOTHING
    assert not undo.reports


def test_a1_keyboard_flags_of_each_screen_are_popped_on_it() -> None:
    undo = Undo()
    undo.feed(b"\x1b[>1u\x1b[?1049h\x1b[>5u\x1b[>5u")
    said = undo.sequences()
    assert said.index(b"\x1b[<2u") < said.index(b"\x1b[?1049l") < said.index(b"\x1b[<1u")


def test_a1_the_scroll_region_of_the_main_screen_is_reset_with_the_cursor_in_place() -> None:
    undo = Undo()
    undo.feed(b"\x1b[?1049h\x1b[2;5r")
    # There, saving the cursor would overwrite the place that leaving goes back to.
    assert b"\x1b7" not in undo.sequences()
    assert b"\x1b[r" in undo.sequences()


def test_a1_a_string_that_was_cut_off_is_ended_first() -> None:
    undo = Undo()
    undo.feed(b"\x1b[?1000h\x1b]0;half a tit")
    assert undo.sequences().startswith(b"\x1b\\")


@pytest.mark.parametrize(
    ("output", "reports"),
    [(b"\x1b[?1003h", True), (b"\x1b[>2u", True), (b"\x1b[?1004h", True), (b"\x1b[?2004h", False)],
)
def test_a1_it_is_known_whether_the_terminal_sends_more_than_keys(
    output: bytes, reports: bool
) -> None:
    undo = Undo()
    undo.feed(output)
    assert undo.reports is reports


def test_a1_a_title_is_noticed_in_any_pieces() -> None:
    for number, cut in itertools.product((b"0", b"1", b"2"), range(1, 5)):
        output = b"\x1b]" + number + b";mine\x07"
        undo = Undo()
        undo.feed(output[:cut])
        undo.feed(output[cut:])
        assert undo.titled
    undo = Undo()
    undo.feed(b"\x1b]52;c;aGk=\x07\x1b]10;red\x07")
    assert not undo.titled


@pytest.mark.parametrize(("output", "undone"), TURNED_ON.values(), ids=TURNED_ON)
def test_a1_reset_undoes_everything_without_knowing(output: bytes, undone: bytes) -> None:
    known = {
        b"\x1b[?6h": b"\x1b[!p",
        b"\x1b[>5u": b"\x1b[<99u",
        b"\x1b[>5u\x1b[>1u": b"\x1b[<99u",
        b"\x1b[?1000;1006;2004h": b"\x1b[?1006l",
        b"\x1b[22;0t\x1b[22;2t": b"\x1b[23;2t\x1b[23;2t",
    }
    if output != TURNED_ON["progress bar"][0]:  # a notification in some terminals
        assert known.get(output, undone) in EVERYTHING


def test_a1_numbers_without_end_do_no_harm() -> None:
    undo = Undo()
    undo.feed(b"\x1b[?" + b"9" * 100_000 + b"h" + b"\x1b[<" + b"9" * 50 + b"u\x1b[?1000h")
    assert b"\x1b[?1000l" in undo.sequences()
