"""Text that was made to mislead: what a person sees of it. And text that is too long."""

import unicodedata

import pytest

from bullpen.text import (
    BLANKS,
    MARKS,
    cut_to,
    in_one_line,
    literal,
    printable,
    seconds_text,
    wrapped,
)

INVISIBLE = ("C", "Z")
UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rm -rf build && make", "rm -rf build && make"),
        ("a\nb\tc", "a\nb⇥c"),
        ("\x1b[2J\x00\x7f\x9b", "⟨U+001B⟩[2J⟨U+0000⟩⟨U+007F⟩⟨U+009B⟩"),
        ("a\r\nb\u2028c", "a⟨U+000D⟩\nb⟨U+2028⟩c"),
        ("\u202eevil\u2066\u200e", "⟨U+202E⟩evil⟨U+2066⟩⟨U+200E⟩"),
        ("a\u200bb\ufeff\U000e0041", "a⟨U+200B⟩b⟨U+FEFF⟩⟨U+E0041⟩"),
        ("❤\ufe0f\U000e0100", "❤⟨U+FE0F⟩⟨U+E0100⟩"),
        ("a\xa0b\u3000\u2800\u3164", "a⟨U+00A0⟩b⟨U+3000⟩⟨U+2800⟩⟨U+3164⟩"),
        ("\ue000\U000fffff\u0378\ud800", "⟨U+E000⟩⟨U+FFFFF⟩⟨U+0378⟩⟨U+D800⟩"),
        ("Grüße, 日本, ça va", "Grüße, 日本, ça va"),
        ("e\u0301a\u0323\u0302", "e\u0301a\u0323\u0302"),
        ("a" + "\u0300" * 5, "a\u0300\u0300\u0300⟨U+0300⟩⟨U+0300⟩"),
        ("=\u0338 \u0301 \u20dd", "=⟨U+0338⟩ ⟨U+0301⟩ ⟨U+20DD⟩"),
        ("⟨U+202E⟩⏎⇥", "⟨U+27E8⟩U+202E⟨U+27E9⟩⟨U+23CE⟩⟨U+21E5⟩"),
        ("a" + " " * 200 + "b", "a⟨200 spaces⟩b"),
        ("a" + "\n" * 50 + "b", "a\n⟨49 empty lines⟩\nb"),
        ("\\n \\x1b", "\\n \\x1b"),
    ],
)
def test_q4_what_is_decided_on_is_shown_literally(text: str, shown: str) -> None:
    assert literal(text) == shown


@pytest.mark.slow
def test_q4_no_character_is_invisible_where_something_is_decided() -> None:
    chars = [chr(number) for number in range(0x110000) if chr(number) not in " \n"]
    shown = literal("\n".join(chars)).split("\n")
    raw = {char for char, text in zip(chars, shown, strict=True) if char == text}
    assert not [char for char in raw if unicodedata.category(char)[0] in INVISIBLE]
    assert not raw & (BLANKS | set(MARKS))


def test_q4_in_a_list_a_line_break_is_no_line() -> None:
    assert in_one_line(literal("ls\nrm -rf ~\n⏎")) == "ls⏎rm -rf ~⏎⟨U+23CE⟩"


@pytest.mark.storm
def test_q4_the_written_out_characters_are_those_of_their_categories() -> None:
    everything = "".join(map(chr, range(0x110000)))
    raw = set(everything) & set(printable(everything))
    unsafe = {char for char in everything if unicodedata.category(char) in UNSAFE}
    assert not raw & unsafe
    assert all(unicodedata.category(char) == "Cn" for char in set(everything) - raw - unsafe)


def test_q4_whatever_is_printed_controls_no_terminal() -> None:
    text = "a\x1b[2J\r\n\u202eb\u2066\u200b\u2028\x9b\ud800"
    assert printable(text) == "a\\x1b[2J\\r\\n\\u202eb\\u2066\\u200b\\u2028\\x9b\\ud800"
    assert printable(text, lines=True).count("\n") == 1


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("漢字漢", 5, "漢字…"),
        ("漢字", 3, "漢…"),
        ("ab", 0, ""),
    ],
)
def test_cut_to(text: str, columns: int, shown: str) -> None:
    assert cut_to(text, columns) == shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(44.9999, "45 s"), (4.9999, "5 s"), (0.25, "0.25 s"), (9.4, "9.4 s"), (1200.0, "1200 s")],
)
def test_a_wait_has_no_more_digits_than_it_needs(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("text", "columns", "lines"),
    [
        ("a line that fits", 16, ["a line that fits"]),
        ("a line that does not", 10, ["a line", "that does", "not"]),
        ("  its indent stays", 12, ["  its indent", "stays"]),
        ("see /a/path/that/is/long here", 10, ["see", "/a/path/that/is/long", "here"]),
        ("日本 日本", 5, ["日本", "日本"]),
        ("no limit " * 20, 0, ["no limit " * 20]),
        ("", 5, [""]),
    ],
)
def test_words_are_not_broken(text: str, columns: int, lines: list[str]) -> None:
    assert wrapped(text, columns) == lines
