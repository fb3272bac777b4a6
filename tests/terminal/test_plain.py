"""Logs as text: what a person would have read."""

import random
import time

import pytest

from bullpen.terminal.plain import Plain

READ = {
    "lines": (b"one\r\ntwo\r\n", "one\ntwo\n"),
    "no end": (b"one\r\ntwo", "one\ntwo\n"),
    "empty line": (b"one\r\n\r\ntwo\r\n", "one\n\ntwo\n"),
    "colours": (b"\x1b[1;31mred\x1b[0m text\r\n", "red text\n"),
    "title": (b"\x1b]0;title\x07text\r\n", "text\n"),
    "title with terminator": (b"\x1b]2;title\x1b\\text\r\n", "text\n"),
    "picture": (b"\x1bPq#0;2\n#1\x1b\\text\r\n", "text\n"),
    "progress": (b"10%\r50%\r100%\r\n", "100%\n"),
    "shorter progress": (b"100 of 100\rdone\x1b[K\r\n", "done\n"),
    "overwritten": (b"hello\rJ\r\n", "Jello\n"),
    "backspace": (b"helo\x08lo\r\n", "hello\n"),
    "erased word": (b"wrong\x08\x08\x08\x08\x08\x1b[Kright\r\n", "right\n"),
    "typed in the middle": (b"hllo\x08\x08\x08\x1b[1@e\r\n", "hello\n"),
    "deleted": (b"heello\x1b[5D\x1b[P\r\n", "hello\n"),
    "words apart": (b"one\x1b[1Ctwo\x1b[3Cthree\r\n", "one two   three\n"),
    "column": (b"name\x1b[9Gvalue\r\n", "name    value\n"),
    "drawn": (
        b"\x1b[?1049h\x1b[H\x1b[2Jtop\x1b[5;1Hmiddle\x1b[24;1Hbottom\r\n",
        "top\nmiddle\nbottom\n",
    ),
    "modes": (b"\x1b[?25l\x1b[?2004htext\x1b[?25h\r\n", "text\n"),
    "charset": (b"\x1b(Btext\x0f\r\n", "text\n"),
    "bell and nul": (b"a\x07b\x00c\r\n", "abc\n"),
    "tab": (b"a\tb\r\n", "a\tb\n"),
    "unicode": ("wörld 漢字 👩\u200d💻\r\n".encode(), "wörld 漢字 👩\u200d💻\n"),
    "no text": (b"\xff\xfe\r\n", "\ufffd\ufffd\n"),
    "eight-bit controls": ("a\x9b31mb\r\n".encode(), "a31mb\n"),
    "prompt of zsh": (
        b"\x1b[1m\x1b[7m%\x1b[27m\x1b[1m\x1b[0m   \r \r\r\x1b[0m\x1b[27m\x1b[Jsh> \r\n",
        "sh>\n",
    ),
    "half a sequence at the end": (b"text\x1b[3", "text\n"),
}


def read(*pieces: bytes) -> str:
    plain = Plain()
    return "".join([*map(plain.feed, pieces), plain.finish()])


@pytest.mark.parametrize(("output", "text"), READ.values(), ids=READ)
def test_k3_logs_read_as_text(output: bytes, text: str) -> None:
    assert read(output) == text


@pytest.mark.parametrize(("output", "text"), READ.values(), ids=READ)
def test_k3_in_any_pieces(output: bytes, text: str) -> None:
    assert read(*(output[n : n + 1] for n in range(len(output)))) == text


def test_k3_lines_come_as_soon_as_they_are_whole() -> None:
    plain = Plain()
    assert plain.feed(b"one\r\ntw") == "one\n"
    assert plain.feed(b"o\r") == ""
    assert plain.feed(b"\n") == "two\n"


def test_k3_no_sequence_gets_through_whatever_is_written() -> None:
    chance = random.Random(11)
    letters = [
        b"\x1b",
        b"[",
        b"]",
        b"P",
        b"\\",
        b"\x07",
        b"\x9b",
        b"\xc2\x9b",
        b"5",
        b";",
        b"H",
        b"\r",
    ]
    letters += [
        b"\n",
        b"a",
        b"\x08",
        b"?",
        b"\xe2",
        b"\x90",
        b"\x1b[2J",
        b"\x1b[99999C",
        b"\xc2\x9d",
    ]
    for _ in range(300):
        text = read(*chance.choices(letters, k=60))
        assert all(
            char.isprintable() or char in "\n\t\u2028\ue000" or ord(char) > 0xFFF for char in text
        )
        assert "\x1b" not in text
        assert "\x9b" not in text


def test_k3_a_line_without_end_does_not_grow_for_ever() -> None:
    plain = Plain()
    said = sum(len(plain.feed(b"x" * 65536)) for _ in range(20))
    assert said > 10 * 65536
    moves = plain.feed(b"\x1b[9999C!" * 10_000)
    assert len(moves) < 10_000_000


def test_k3_a_log_costs_as_much_as_it_is_long() -> None:
    assert _cost(lines=16_000) < 16 * _cost(lines=4_000), "four times is right, sixteen is square"


def _cost(lines: int) -> float:
    """Of this thread alone, the least of three: other work makes it look dearer, never cheaper."""
    log = b"\x1b[32m%06d\x1b[0m the quick brown fox jumps over the lazy dog\r\n" * lines
    costs = []
    for _ in range(3):
        begin, plain = time.thread_time(), Plain()
        for start in range(0, len(log), 65536):
            plain.feed(log[start : start + 65536])
        costs.append(time.thread_time() - begin)
    return min(costs)


@pytest.mark.parametrize("final", "CDGPX@")
@pytest.mark.parametrize("digits", [5, 9, 5000])
def test_k3_absurd_numbers_move_and_fill_nothing(final: str, digits: int) -> None:
    """Python refuses thousands of digits, and a million blanks would be made for six."""
    shown = Plain().feed(b"ab\x1b[" + b"9" * digits + final.encode() + b"c\n")
    assert len(shown) < 10
    assert "c" in shown
